// SPDX-License-Identifier: Apache-2.0
#include <sys/resource.h>

#include "agent/cli/command_line.hpp"
#include "agent/cli/stop_token.hpp"

int main(int argc, char** argv) {
  // Every member and every connection takes a descriptor: the soft limit is for programs that use
  // select(), and this one does not.
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
  }
  weft::cli::StopToken stop;
  const weft::cli::SignalWatch signals(stop);
  return weft::cli::run_command_line(argc, argv, stop);
}
