// SPDX-License-Identifier: Apache-2.0
// The only file that knows spdlog.
#include <spdlog/async.h>
#include <spdlog/async_logger.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <unistd.h>

#include <array>
#include <chrono>

#include "agent/cli/log_event_sink.hpp"
#include "weft/base/assert.hpp"

namespace weft::cli {
namespace {

constexpr std::size_t kQueuedLines = 8192;

spdlog::level::level_enum to_spdlog(Severity severity) {
  switch (severity) {
    case Severity::kDebug:
      return spdlog::level::debug;
    case Severity::kInfo:
      return spdlog::level::info;
    case Severity::kWarning:
      return spdlog::level::warn;
    case Severity::kError:
      return spdlog::level::err;
  }
  return spdlog::level::err;
}

std::int64_t wall_milliseconds() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// Lines through spdlog's queue. Ends with the last copy: what is queued is written first.
// Threads: any.
struct QueuedLines {
  std::shared_ptr<spdlog::details::thread_pool> pool;
  std::shared_ptr<spdlog::async_logger> logger;

  void operator()(Severity severity, const std::string& line) const {
    logger->log(to_spdlog(severity), spdlog::string_view_t(line));
  }
};

Result<LogEventSink::LineOut> open_lines(const std::string& file) {
  try {
    spdlog::sink_ptr sink;
    if (file.empty()) {
      sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
    } else {
      sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(file);
    }
    QueuedLines lines;
    lines.pool = std::make_shared<spdlog::details::thread_pool>(kQueuedLines, 1);
    lines.logger = std::make_shared<spdlog::async_logger>(
        "weft", sink, lines.pool, spdlog::async_overflow_policy::overrun_oldest);
    lines.logger->set_pattern("%v");
    lines.logger->set_level(spdlog::level::trace);
    lines.logger->flush_on(spdlog::level::trace);
    // A full disk must not fill stderr, nor stop anything: the line is lost.
    lines.logger->set_error_handler([](const std::string&) {});
    return LogEventSink::LineOut(lines);
  } catch (const spdlog::spdlog_ex& error) {
    return failure(ErrorCode::kIoFailed, Stage::kConfig,
                   "log.file = '" + file + "': " + error.what());
  }
}

LogEventSink::LineOut open_lines_or_stderr(const std::string& file) {
  auto lines = open_lines(file);
  if (!lines) lines = open_lines("");
  WEFT_ASSERT(lines.has_value());  // stderr needs no opening
  return *std::move(lines);
}

const MonotonicClock kClock;

}  // namespace

LogEventSink::LogEventSink(const agent::LogConfig& config)
    : LogEventSink(config, open_lines_or_stderr(config.file), kClock, wall_milliseconds) {
  if (config.file.empty() || access(config.file.c_str(), W_OK) == 0) return;
  const std::array fields = {EventField{"cause", "io_failed"}, EventField{"file", config.file}};
  report(Severity::kError, "log_file_failed", fields);
}

}  // namespace weft::cli
