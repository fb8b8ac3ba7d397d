// SPDX-License-Identifier: Apache-2.0
#include "python/event_log.hpp"

#include <pybind11/pybind11.h>

#include <utility>

namespace py = pybind11;

namespace weft::python {

namespace {

// The numbers of Python's logging.
int level_of(Severity severity) {
  switch (severity) {
    case Severity::kDebug:
      return 10;
    case Severity::kInfo:
      return 20;
    case Severity::kWarning:
      return 30;
    case Severity::kError:
      return 40;
  }
  return 40;
}

}  // namespace

void EventLog::report(Severity severity, std::string_view name,
                      std::span<const EventField> fields) {
  std::string text(name);
  for (const EventField& field : fields) text += " " + std::string(field.key) + "=" + field.value;
  waiting_.with([&](Waiting& waiting) {
    if (waiting.lines.size() < kLinesMax) {
      waiting.lines.push_back({severity, std::move(text)});
    } else {
      ++waiting.dropped;
    }
  });
  any_.store(true);
}

void EventLog::flush() {
  if (!any_.exchange(false)) return;
  Waiting taken = waiting_.with([](Waiting& waiting) { return std::exchange(waiting, {}); });
  const py::object log = py::module_::import("logging").attr("getLogger")("weft").attr("log");
  if (taken.dropped != 0) {
    taken.lines.push_back(
        {Severity::kWarning, "events_dropped count=" + std::to_string(taken.dropped)});
  }
  for (const Line& line : taken.lines) log(level_of(line.severity), "%s", line.text);
}

}  // namespace weft::python
