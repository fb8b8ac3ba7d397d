// SPDX-License-Identifier: Apache-2.0
// What a hook does, as written in the configuration: HTTP requests and commands, in order.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "weft/base/ids.hpp"
#include "weft/base/result.hpp"

namespace weft::apply {

// `POST URL [BODY]`, `PUT URL [BODY]`, `GET URL`, or `run PROGRAM [ARGUMENT...]`. In a body and in
// arguments {path}, {version}, {root} and {refit} stand for what the hook is about.
// Threads: a value; one at a time.
struct HookCall {
  std::string method;  // empty: a command
  std::string url;
  std::string body;
  std::vector<std::string> arguments;  // the program by its absolute path first
  bool is_command() const { return method.empty(); }
};

// What a hook is told.
// Threads: a value; one at a time.
struct HookFacts {
  std::string path;  // the folder with the files, resolved
  Content content;
  RefitId refit;
};

// Errors: kConfig with the number of the call.
Result<std::vector<HookCall>> parse_hook(const std::vector<std::string>& calls);

// `in_json`: text that may hold quotes and backslashes is escaped for a JSON string.
std::string fill_in(std::string_view pattern, const HookFacts& facts, bool in_json);

// WEFT_PATH=..., WEFT_VERSION=..., WEFT_ROOT=..., WEFT_REFIT=... and WEFT_EVENT=<name of the hook>.
std::vector<std::string> hook_environment(const HookFacts& facts, std::string_view event);

}  // namespace weft::apply
