// SPDX-License-Identifier: Apache-2.0
// What every call of include/weft/c.h does: codes out, no exception.
#pragma once

#include <exception>
#include <string>

#include "weft/base/event_sink.hpp"
#include "weft/base/result.hpp"
#include "weft/c.h"

namespace weft::agent {

// Keeps the text for weft_last_error() and gives the code.
int fail(const Error& error);
int fail(const std::string& what);

inline std::string text_of(const char* text) { return text == nullptr ? std::string() : text; }

// Lines for a callback.
// Threads: any.
class CallbackSink final : public EventSink {
 public:
  CallbackSink(weft_event_callback callback, void* context)
      : callback_(callback), context_(context) {}
  void report(Severity, std::string_view name, std::span<const EventField> fields) override {
    if (callback_ == nullptr) return;
    std::string text(name);
    for (const EventField& field : fields) text += " " + std::string(field.key) + "=" + field.value;
    callback_(context_, text.c_str());
  }
  void count(std::string_view, std::uint64_t) override {}

 private:
  const weft_event_callback callback_;
  void* const context_;
};

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
