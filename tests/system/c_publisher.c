/* SPDX-License-Identifier: Apache-2.0
 * c_publisher COORDINATOR BASE TARGET_BYTES NAME: publishes version 2 of a checkpoint with the one
 * BF16 tensor NAME through the C API, its values from a file: first refused calls, then a residual;
 * then version 3 from the same source, and version 4 through boxes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "weft/c.h"

static unsigned char* values;
static size_t value_bytes;

static int convert(void* context, uint64_t first_element, void* into, size_t into_bytes) {
  if (context != &values || first_element * 2 + into_bytes > value_bytes) return 23;
  memcpy(into, values + first_element * 2, into_bytes);
  return 0;
}

static int calls;

static int count(void* context, uint64_t first_element, void* into, size_t into_bytes) {
  ++calls;
  return convert(context, first_element, into, into_bytes);
}

static int refuse(void* context, uint64_t first_element, void* into, size_t into_bytes) {
  (void)context;
  (void)first_element;
  (void)into;
  (void)into_bytes;
  return 11;
}

static int wrong(const char* what, int code) {
  fprintf(stderr, "%s: %d %s: %s\n", what, code, weft_error_name(code), weft_last_error());
  return 1;
}

int main(int argc, char** argv) {
  weft_publisher_options options = {0};
  weft_publisher* publisher = NULL;
  weft_refit* refit = NULL;
  weft_refit_report report = {0};
  weft_residual_source source = {0};
  weft_box box = {0};
  weft_box_axis axis = {0};
  const void* parts[1];
  uint64_t version = 0;
  uint8_t root[16];
  FILE* file;
  int code;
  if (argc != 5) return 2;
  file = fopen(argv[3], "rb");
  if (file == NULL) return 2;
  fseek(file, 0, SEEK_END);
  value_bytes = (size_t)ftell(file);
  rewind(file);
  values = malloc(value_bytes);
  if (values == NULL || fread(values, 1, value_bytes, file) != value_bytes) return 2;
  fclose(file);

  options.struct_bytes = sizeof(options);
  options.coordinator = argv[1];
  options.base_dir = "/there/is/no/such/directory";
  code = weft_publisher_open(&options, &publisher);
  if (code == 0 || publisher != NULL || strlen(weft_last_error()) == 0)
    return wrong("no base", code);
  options.base_dir = argv[2];
  code = weft_publisher_open(&options, &publisher);
  if (code != 0) return wrong("open", code);

  code = weft_refit_begin(publisher, 2, &refit);
  if (code != 0) return wrong("begin", code);
  code = weft_refit_put(refit, "no.such.tensor", WEFT_SHARD_SAME, values, value_bytes);
  if (strcmp(weft_error_name(code), "config") != 0) return wrong("unknown tensor", code);
  code = weft_refit_put(refit, argv[4], 7, values, value_bytes);
  if (strcmp(weft_error_name(code), "config") != 0) return wrong("unknown type", code);
  code = weft_refit_commit(refit, 0, NULL);
  if (strcmp(weft_error_name(code), "config") != 0) return wrong("nothing put", code);
  code = weft_refit_put_residual(refit, argv[4], refuse, NULL);
  if (strcmp(weft_error_name(code), "io_failed") != 0) return wrong("failing converter", code);
  weft_refit_close(refit);

  code = weft_refit_begin(publisher, 2, &refit);
  if (code != 0) return wrong("begin again", code);
  parts[0] = values;
  source.struct_bytes = sizeof(source);
  source.part_count = 1;
  code = weft_refit_put_residual_from(refit, argv[4], convert, &values, &source);
  if (strcmp(weft_error_name(code), "config") != 0) return wrong("source without parts", code);
  source.parts = parts;
  source.part_bytes = &value_bytes;
  code = weft_refit_put_residual_from(refit, argv[4], convert, &values, &source);
  if (code != 0) return wrong("put_residual", code);
  report.struct_bytes = sizeof(report);
  code = weft_refit_commit(refit, 0, &report);
  if (code != 0) return wrong("commit", code);
  weft_refit_close(refit);
  if (report.version != 2 || report.changed_elements == 0) return wrong("report", 0);
  if (report.skipped_elements != 0) return wrong("nothing was known", 0);

  code = weft_refit_begin(publisher, 3, &refit);
  if (code != 0) return wrong("begin 3", code);
  code = weft_refit_put_residual_from(refit, argv[4], count, &values, &source);
  if (code != 0 || calls != 0) return wrong("same source", code);
  code = weft_refit_commit(refit, 0, &report);
  if (code != 0) return wrong("commit 3", code);
  weft_refit_close(refit);
  if (report.changed_elements != 0 || report.skipped_elements != report.total_elements) {
    return wrong("skipped", 0);
  }

  /* The same tensor in two views: its second half, then all of it (refused), then the first. */
  code = weft_refit_begin(publisher, 4, &refit);
  if (code != 0) return wrong("begin 4", code);
  box.tensor = argv[4];
  box.target_offset = value_bytes / 4;
  box.rank = 1;
  box.axes = &axis;
  axis.extent = value_bytes / 2 - value_bytes / 4;
  axis.source_stride = 1;
  axis.target_stride = 1;
  code = weft_refit_put_shard(refit, &box, 1, WEFT_SHARD_SAME, values + value_bytes / 4 * 2,
                              value_bytes - value_bytes / 4 * 2);
  if (code != 0) return wrong("second half", code);
  code = weft_refit_commit(refit, 0, NULL);
  if (strcmp(weft_error_name(code), "config") != 0) return wrong("a gap", code);
  if (strstr(weft_last_error(), "elements [0, ") == NULL) return wrong("a gap's range", code);
  box.target_offset = 0;
  axis.extent = value_bytes / 2;
  code = weft_refit_put_shard(refit, &box, 1, WEFT_SHARD_SAME, values, value_bytes);
  if (strcmp(weft_error_name(code), "config") != 0) return wrong("an overlap", code);
  axis.extent = value_bytes / 4;
  code = weft_refit_put_shard(refit, &box, 1, WEFT_SHARD_SAME, values, value_bytes);
  if (code != 0) return wrong("first half", code);
  code = weft_refit_commit(refit, 0, &report);
  if (code != 0) return wrong("commit 4", code);
  weft_refit_close(refit);

  code = weft_publisher_content(publisher, &version, root);
  if (code != 0 || version != 4) return wrong("content", code);
  weft_publisher_close(publisher);
  weft_publisher_close(NULL);
  weft_refit_close(NULL);
  free(values);
  return strcmp(weft_error_name(99), "unknown") == 0 ? 0 : 1;
}
