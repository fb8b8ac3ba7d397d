// SPDX-License-Identifier: Apache-2.0
#include "agent/cli/report.hpp"

#include <cstdio>
#include <string>

#include "agent/lib/json_writer.hpp"

namespace weft::cli {

int report_failure(const Error& error, const CommonOptions& common) {
  const int code = exit_code(error.code);
  if (common.json) {
    agent::JsonWriter json;
    json.begin_object().key("error").begin_object();
    json.member("code", to_string(error.code)).member("stage", to_string(error.stage));
    json.member("detail", error.detail).member("native", error.native);
    json.member("next_step", to_string(next_step(error.code))).member("exit_code", code);
    json.end_object().end_object();
    static_cast<void>(report_result(json.take()));
    return code;
  }
  std::fprintf(stderr, "weft: %s\n      next: %s (docs/errors.md)\n", error.message().c_str(),
               std::string(to_string(next_step(error.code))).c_str());
  return code;
}

int report_result(std::string_view text) {
  const std::string line = std::string(text) + "\n";
  const bool written = std::fwrite(line.data(), 1, line.size(), stdout) == line.size();
  if (written && std::fflush(stdout) == 0) return 0;
  return exit_code(ErrorCode::kIoFailed);
}

}  // namespace weft::cli
