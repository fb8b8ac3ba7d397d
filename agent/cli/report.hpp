// SPDX-License-Identifier: Apache-2.0
// How a command ends: its result on stdout, its error on stderr (with --json: on stdout as one
// object, docs/json.md), and the exit code that docs/errors.md lists.
#pragma once

#include <string_view>

#include "agent/cli/options.hpp"
#include "weft/base/error.hpp"

namespace weft::cli {

inline constexpr int kExitUsage = 2;  // the command line itself is wrong

// Says what failed and what to do next; returns exit_code(error.code).
int report_failure(const Error& error, const CommonOptions& common);

// One line, or one JSON text, to stdout. Errors: kIoFailed (stdout is closed or full) as exit code.
int report_result(std::string_view text);

}  // namespace weft::cli
