// SPDX-License-Identifier: Apache-2.0
#include "agent/lib/c_call.hpp"

#include "weft/c.h"

namespace {
thread_local std::string last_error;
}  // namespace

namespace weft::agent {

int fail(const Error& error) {
  last_error = error.message();
  return static_cast<int>(error.code);
}

int fail(const std::string& what) {
  return fail(failure(ErrorCode::kConfig, Stage::kPublish, what));
}

}  // namespace weft::agent

const char* weft_last_error(void) { return last_error.c_str(); }

const char* weft_error_name(int code) {
  if (code == 0) return "ok";
  if (code < 0 || code > weft::kErrorCodeCount) return "unknown";
  return weft::to_string(static_cast<weft::ErrorCode>(code)).data();
}
