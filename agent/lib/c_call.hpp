// SPDX-License-Identifier: Apache-2.0
// What every call of include/weft/c.h does: codes out, no exception.
#pragma once

#include <exception>
#include <string>

#include "weft/base/result.hpp"

namespace weft::agent {

// Keeps the text for weft_last_error() and gives the code.
int fail(const Error& error);
int fail(const std::string& what);

inline std::string text_of(const char* text) { return text == nullptr ? std::string() : text; }

// Runs a call: no exception leaves it.
template <typename F>
int guarded(F&& call) noexcept {
  try {
    return call();
  } catch (const std::exception& thrown) {
    return fail(failure(ErrorCode::kResourceLimit, Stage::kPublish, thrown.what()));
  } catch (...) {
    return fail(failure(ErrorCode::kInternal, Stage::kPublish, "unknown exception"));
  }
}

}  // namespace weft::agent
