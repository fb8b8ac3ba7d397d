// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "agent/lib/config.hpp"
#include "weft/base/clock.hpp"
#include "weft/base/event_sink.hpp"
#include "weft/base/guarded.hpp"

namespace weft::cli {

// What reports become: one structured line per event, and counters for /metrics.
// A line that repeats is shown once, then counted and summed up once per interval; an event name
// shows at most kLinesPerSecond lines per second whatever its fields are (case B-099). Both kinds
// of silence are told: `repeated=N` on the next line of its kind, `lines_dropped` on the name's.
// Threads: any.
class LogEventSink final : public EventSink {
 public:
  static constexpr std::uint32_t kLinesPerSecond = 9;
  static constexpr std::size_t kRemembered = 1024;  // different lines; the oldest is forgotten

  // Gets whole lines without a newline; must not block for long and must not throw.
  using LineOut = std::function<void(Severity severity, const std::string& line)>;

  // The sink of a program: lines to stderr, or to the file, through a bounded queue and a thread
  // of its own; when the queue is full the oldest lines go, so that a blocked disk or pipe blocks
  // nobody. A file that cannot be opened is reported as `log_file_failed` on stderr.
  explicit LogEventSink(const agent::LogConfig& config);
  // `wall_ms`: milliseconds since 1970, for the time stamps.
  LogEventSink(const agent::LogConfig& config, LineOut out, const Clock& clock,
               std::function<std::int64_t()> wall_ms);
  ~LogEventSink() override;

  void report(Severity severity, std::string_view name,
              std::span<const EventField> fields) override;
  void count(std::string_view name, std::uint64_t by) override;

  // Sums up what repeats although its next line never comes; called now and then and at the end.
  void flush(bool all);

  std::map<std::string, std::uint64_t> counters() const;

 private:
  struct Line {
    Severity severity = Severity::kInfo;
    std::string name;
    std::string fields;  // formatted
    std::uint64_t repeated = 0;
    TimePoint shown_at;
  };
  struct Budget {
    TimePoint second_began;
    std::uint32_t shown = 0;
    std::uint64_t dropped = 0;
  };
  struct State {
    std::map<std::string, Line> lines;  // by name and fields
    std::deque<std::string> order;      // keys of `lines`, oldest first
    std::map<std::string, Budget> budgets;
  };

  std::string format_fields(std::span<const EventField> fields) const;
  void write(const Line& line, std::uint64_t repeated, std::uint64_t dropped);
  void forget_oldest(State& state);

  const agent::LogConfig config_;
  const LineOut out_;
  const Clock& clock_;
  const std::function<std::int64_t()> wall_ms_;
  Guarded<State> state_;
  Guarded<std::map<std::string, std::uint64_t, std::less<>>> counters_;
};

}  // namespace weft::cli
