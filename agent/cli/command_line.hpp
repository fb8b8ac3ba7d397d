// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "agent/cli/stop_token.hpp"

namespace weft::cli {

// Parses the command line and runs the subcommand; the process's exit code. A wrong command line
// says which option is wrong and how to get help, on stderr, and returns kExitUsage.
int run_command_line(int argc, const char* const* argv, StopToken& stop);

}  // namespace weft::cli
