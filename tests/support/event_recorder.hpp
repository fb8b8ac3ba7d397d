// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "weft/base/event_sink.hpp"
#include "weft/base/guarded.hpp"

namespace weft::test_support {

// Keeps the names of all events, for a test to look at.
// Threads: any.
class EventRecorder final : public EventSink {
 public:
  void report(Severity, std::string_view name, std::span<const EventField>) override {
    names_.with([&](auto& names) { names.emplace_back(name); });
  }
  void count(std::string_view, std::uint64_t) override {}
  std::ptrdiff_t times(std::string_view name) const {
    return names_.with(
        [&](const auto& names) { return std::count(names.begin(), names.end(), name); });
  }

 private:
  Guarded<std::vector<std::string>> names_;
};

}  // namespace weft::test_support
