// SPDX-License-Identifier: Apache-2.0
// Rooms never print: they report events here, and the roof logs and counts them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace weft {

enum class Severity : std::uint8_t { kDebug, kInfo, kWarning, kError };

struct EventField {
  std::string_view key;
  std::string value;
};

// Threads: any; implementations must not block and must not throw.
class EventSink {
 public:
  virtual ~EventSink() = default;
  // `name` is a stable word such as "link_lost"; fields are key=value in the log line.
  virtual void report(Severity severity, std::string_view name,
                      std::span<const EventField> fields) = 0;
  // Adds to the counter `weft_<name>`.
  virtual void count(std::string_view name, std::uint64_t by) = 0;
};

// Threads: immutable.
class NullEventSink final : public EventSink {
 public:
  void report(Severity, std::string_view, std::span<const EventField>) override {}
  void count(std::string_view, std::uint64_t) override {}
};

}  // namespace weft
