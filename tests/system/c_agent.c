/* SPDX-License-Identifier: Apache-2.0
 * c_agent CONFIG VERSION: a node agent inside a C program, through the C API: serves until its
 * weight files are VERSION (60 s at most), then stops.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "weft/c.h"

static int wrong(const char* what, int code) {
  fprintf(stderr, "%s: %d %s: %s\n", what, code, weft_error_name(code), weft_last_error());
  return 1;
}

int main(int argc, char** argv) {
  weft_agent_options options = {0};
  weft_agent_status status = {0};
  weft_agent* agent = NULL;
  weft_agent* second = NULL;
  uint64_t version;
  time_t end = time(NULL) + 60;
  int code;
  if (argc != 3) return 2;
  version = strtoull(argv[2], NULL, 10);
  options.struct_bytes = sizeof(options);
  code = weft_agent_open(&options, &agent);
  if (strcmp(weft_error_name(code), "config") != 0) return wrong("no configuration", code);
  options.config_text = "weights.dir = 7\n";
  code = weft_agent_open(&options, &agent);
  if (strcmp(weft_error_name(code), "config") != 0) return wrong("wrong configuration", code);
  options.config_text = NULL;
  options.config_file = argv[1];
  code = weft_agent_open(&options, &agent);
  if (code != 0) return wrong("open", code);
  code = weft_agent_open(&options, &second);
  if (strcmp(weft_error_name(code), "busy") != 0) return wrong("the same directories", code);
  code = weft_agent_status_now(agent, &status);
  if (strcmp(weft_error_name(code), "config") != 0) return wrong("status without a size", code);
  status.struct_bytes = sizeof(status);
  printf("open\n");
  fflush(stdout);
  do {
    /* Nothing ends it, so this is the pause between two looks. */
    code = weft_agent_wait_ended(agent, 20);
    if (strcmp(weft_error_name(code), "timeout") != 0) return wrong("it has ended", code);
    code = weft_agent_status_now(agent, &status);
    if (code != 0) return wrong("status", code);
  } while ((status.version != version || !status.ready) && time(NULL) < end);
  printf("%s %s version %llu committed %llu ready %d connected %d serving %d cause %d%s\n",
         status.agent_id, status.state, (unsigned long long)status.version,
         (unsigned long long)status.committed_version, status.ready, status.connected,
         status.serving, status.cause, status.cause_detail);
  code = weft_agent_stop(agent);
  if (code != 0) return wrong("stop", code);
  code = weft_agent_wait_ended(agent, 0);
  if (code != 0) return wrong("it has stopped", code);
  code = weft_agent_status_now(agent, &status);
  if (code != 0 || status.serving || status.ready) return wrong("stopped", code);
  weft_agent_close(agent);
  weft_agent_close(NULL);
  return 0;
}
