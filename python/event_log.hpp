// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <string>

#include "weft/base/event_sink.hpp"
#include "weft/base/guarded.hpp"

namespace weft::python {

// EventLog keeps lines of weft's own threads, which must not wait for the interpreter, until a
// thread of Python's passes by and logs them.
// Threads: any; flush() with the interpreter's lock.
// Limits:  kLinesMax lines wait; what comes then is counted.
class EventLog final : public EventSink {
 public:
  static constexpr std::size_t kLinesMax = 1000;

  void report(Severity severity, std::string_view name,
              std::span<const EventField> fields) override;
  void count(std::string_view, std::uint64_t) override {}

  // To the logger "weft".
  void flush();

 private:
  struct Line {
    Severity severity;
    std::string text;
  };
  struct Waiting {
    std::deque<Line> lines;
    std::uint64_t dropped = 0;
  };
  Guarded<Waiting> waiting_;
  std::atomic<bool> any_{false};
};

}  // namespace weft::python
