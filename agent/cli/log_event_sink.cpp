// SPDX-License-Identifier: Apache-2.0
#include "agent/cli/log_event_sink.hpp"

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <utility>
#include <vector>

#include "agent/lib/json_writer.hpp"

namespace weft::cli {
namespace {

std::string_view to_text(Severity severity) {
  switch (severity) {
    case Severity::kDebug:
      return "debug";
    case Severity::kInfo:
      return "info";
    case Severity::kWarning:
      return "warning";
    case Severity::kError:
      return "error";
  }
  return "error";
}

bool shown(agent::LogLevel level, Severity severity) {
  return level != agent::LogLevel::kOff && static_cast<int>(severity) >= static_cast<int>(level);
}

// "2026-11-30T13:00:00.123Z"
std::string timestamp(std::int64_t wall_ms) {
  const std::time_t seconds = wall_ms / 1000;
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char text[48];
  const std::size_t length = std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &parts);
  std::snprintf(text + length, sizeof(text) - length, ".%03dZ", static_cast<int>(wall_ms % 1000));
  return text;
}

// Plain where it can be, else quoted as in JSON: one event stays one line.
std::string text_value(const std::string& value) {
  const bool plain = !value.empty() && std::all_of(value.begin(), value.end(), [](char c) {
    return static_cast<unsigned char>(c) > 0x20 && c != '"' && c != '=' && c != '\\' && c != 0x7F;
  });
  return plain ? value : agent::JsonWriter().value(value).take();
}

}  // namespace

LogEventSink::LogEventSink(const agent::LogConfig& config, LineOut out, const Clock& clock,
                           std::function<std::int64_t()> wall_ms)
    : config_(config), out_(std::move(out)), clock_(clock), wall_ms_(std::move(wall_ms)) {}

LogEventSink::~LogEventSink() { flush(true); }

std::string LogEventSink::format_fields(std::span<const EventField> fields) const {
  std::string text;
  for (const EventField& field : fields) {
    if (config_.format == agent::LogFormat::kJson) {
      text += "," + agent::JsonWriter().value(field.key).take() + ":" +
              agent::JsonWriter().value(field.value).take();
    } else {
      text += " " + std::string(field.key) + "=" + text_value(field.value);
    }
  }
  return text;
}

void LogEventSink::write(const Line& line, std::uint64_t repeated, std::uint64_t dropped) {
  std::vector<EventField> behind;
  if (repeated > 0) behind.push_back({"repeated", std::to_string(repeated)});
  if (dropped > 0) behind.push_back({"lines_dropped", std::to_string(dropped)});
  const std::string fields = line.fields + format_fields(behind);
  const std::string time = timestamp(wall_ms_());
  if (config_.format == agent::LogFormat::kJson) {
    agent::JsonWriter json;
    json.begin_object().member("time", time).member("level", to_text(line.severity));
    json.member("event", line.name).end_object();
    std::string text = json.take();
    text.insert(text.size() - 1, fields);
    out_(line.severity, text);
  } else {
    out_(line.severity,
         time + " " + std::string(to_text(line.severity)) + " " + line.name + fields);
  }
}

void LogEventSink::forget_oldest(State& state) {
  const auto oldest = state.lines.find(state.order.front());
  state.order.pop_front();
  if (oldest == state.lines.end()) return;
  if (oldest->second.repeated > 0) write(oldest->second, oldest->second.repeated, 0);
  state.lines.erase(oldest);
}

void LogEventSink::report(Severity severity, std::string_view name,
                          std::span<const EventField> fields) {
  if (!shown(config_.level, severity)) return;
  const TimePoint now = clock_.now();
  Line line{severity, std::string(name), format_fields(fields), 0, now};
  // The lock is held while the line is handed over, which keeps lines in their order.
  state_.with([&](State& state) {
    const auto [known, is_new] = state.lines.try_emplace(line.name + line.fields, line);
    if (!is_new && now - known->second.shown_at < config_.summary_interval) {
      ++known->second.repeated;
      return;
    }
    Budget& budget = state.budgets[line.name];
    if (now - budget.second_began >= std::chrono::seconds(1)) {
      budget.second_began = now;
      budget.shown = 0;
    }
    if (is_new) state.order.push_back(known->first);
    if (++budget.shown > kLinesPerSecond) {
      ++budget.dropped;
    } else {
      write(line, std::exchange(known->second.repeated, 0), std::exchange(budget.dropped, 0));
    }
    known->second.shown_at = now;
    if (state.order.size() > kRemembered) forget_oldest(state);
  });
}

void LogEventSink::count(std::string_view name, std::uint64_t by) {
  counters_.with([&](auto& counters) {
    const auto found = counters.find(name);
    if (found != counters.end()) {
      found->second += by;
    } else {
      counters.emplace(name, by);
    }
  });
}

void LogEventSink::flush(bool all) {
  const TimePoint now = clock_.now();
  state_.with([&](State& state) {
    for (auto& [key, line] : state.lines) {
      const bool due = all || now - line.shown_at >= config_.summary_interval;
      if (line.repeated == 0 || !due) continue;
      write(line, std::exchange(line.repeated, 0), 0);
      line.shown_at = now;
    }
  });
}

std::map<std::string, std::uint64_t> LogEventSink::counters() const {
  return counters_.with([](const auto& counters) {
    return std::map<std::string, std::uint64_t>(counters.begin(), counters.end());
  });
}

}  // namespace weft::cli
