// SPDX-License-Identifier: Apache-2.0
#include "agent/cli/log_event_sink.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

namespace weft::cli {
namespace {

using namespace std::chrono_literals;

// Threads: one at a time.
class LogEventSinkTest : public ::testing::Test {
 protected:
  LogEventSink open(agent::LogConfig config = {}) {
    return LogEventSink(
        config, [this](Severity, const std::string& line) { lines_.push_back(line); }, clock_,
        [] { return std::int64_t{1'796'043'600'123}; });
  }

  ManualClock clock_;
  std::vector<std::string> lines_;
};

TEST_F(LogEventSinkTest, OneEventIsOneLineOfKeysAndValues) {
  LogEventSink sink = open();
  const std::array fields = {EventField{"peer", "node-3"}, EventField{"detail", "a \"b\"\nc=d"},
                             EventField{"empty", ""}};
  sink.report(Severity::kWarning, "link_lost", fields);
  ASSERT_EQ(lines_.size(), 1U);
  EXPECT_EQ(lines_[0],
            "2026-11-30T13:00:00.123Z warning link_lost peer=node-3 "
            "detail=\"a \\\"b\\\"\\nc=d\" empty=\"\"");
}

TEST_F(LogEventSinkTest, JsonLinesAreObjects) {
  agent::LogConfig config;
  config.format = agent::LogFormat::kJson;
  LogEventSink sink = open(config);
  const std::array fields = {EventField{"peer", "node \"3\""}};
  sink.report(Severity::kInfo, "joined", fields);
  sink.report(Severity::kInfo, "ready", {});
  ASSERT_EQ(lines_.size(), 2U);
  EXPECT_EQ(
      lines_[0],
      R"({"time":"2026-11-30T13:00:00.123Z","level":"info","event":"joined","peer":"node \"3\""})");
  EXPECT_EQ(lines_[1], R"({"time":"2026-11-30T13:00:00.123Z","level":"info","event":"ready"})");
}

TEST_F(LogEventSinkTest, LevelsBelowTheConfiguredOneAreSilent) {
  agent::LogConfig config;
  config.level = agent::LogLevel::kWarning;
  LogEventSink sink = open(config);
  sink.report(Severity::kInfo, "joined", {});
  sink.report(Severity::kWarning, "slow", {});
  sink.report(Severity::kError, "failed", {});
  EXPECT_EQ(lines_.size(), 2U);
  config.level = agent::LogLevel::kOff;
  LogEventSink off = open(config);
  off.report(Severity::kError, "failed", {});
  EXPECT_EQ(lines_.size(), 2U);
}

TEST_F(LogEventSinkTest, AThousandIdenticalErrorsAreOneLineAndASummary) {
  LogEventSink sink = open();
  const std::array fields = {EventField{"cause", "format"}};
  for (int i = 0; i < 1000; ++i) sink.report(Severity::kError, "refused", fields);
  EXPECT_EQ(lines_.size(), 1U);
  clock_.advance(10s);
  sink.report(Severity::kError, "refused", fields);
  ASSERT_EQ(lines_.size(), 2U);
  EXPECT_TRUE(lines_[1].ends_with("cause=format repeated=999")) << lines_[1];
}

TEST_F(LogEventSinkTest, WhatStopsRepeatingIsSummedUpAtTheEnd) {
  {
    LogEventSink sink = open();
    for (int i = 0; i < 5; ++i) sink.report(Severity::kError, "refused", {});
    sink.flush(false);
    EXPECT_EQ(lines_.size(), 1U);
  }
  ASSERT_EQ(lines_.size(), 2U);
  EXPECT_TRUE(lines_[1].ends_with("repeated=4")) << lines_[1];
}

TEST_F(LogEventSinkTest, ADeadPeerForMinutesStaysBelowTenLinesPerSecond) {
  LogEventSink sink = open();
  for (int second = 0; second < 120; ++second) {
    const std::size_t before = lines_.size();
    for (int i = 0; i < 250; ++i) {
      const std::array fields = {EventField{"attempt", std::to_string(second * 250 + i)}};
      sink.report(Severity::kWarning, "connect_failed", fields);
    }
    EXPECT_LT(lines_.size() - before, 10U);
    clock_.advance(1s);
  }
  EXPECT_NE(lines_[9].find("lines_dropped=241"), std::string::npos) << lines_[9];
}

TEST_F(LogEventSinkTest, OneCauseDoesNotSilenceAnother) {
  LogEventSink sink = open();
  for (int i = 0; i < 100; ++i) {
    const std::array fields = {EventField{"attempt", std::to_string(i)}};
    sink.report(Severity::kWarning, "connect_failed", fields);
  }
  const std::size_t before = lines_.size();
  sink.report(Severity::kError, "disk_full", {});
  EXPECT_EQ(lines_.size(), before + 1);
}

TEST_F(LogEventSinkTest, CountersAddUp) {
  LogEventSink sink = open();
  sink.count("frames_total", 3);
  sink.count("frames_total", 4);
  sink.count("aborts_total", 1);
  const auto counters = sink.counters();
  EXPECT_EQ(counters.at("frames_total"), 7U);
  EXPECT_EQ(counters.at("aborts_total"), 1U);
}

TEST(LogFile, GetsTheLines) {
  const std::string file = ::testing::TempDir() + "weft-log-file-test.log";
  std::remove(file.c_str());
  {
    agent::LogConfig config;
    config.file = file;
    LogEventSink sink(config);
    sink.report(Severity::kInfo, "ready", {});
  }
  std::ifstream in(file);
  std::string line;
  ASSERT_TRUE(std::getline(in, line));
  EXPECT_TRUE(line.ends_with(" info ready")) << line;
}

TEST(LogFile, ThatCannotBeOpenedIsToldOnStderrAndStopsNothing) {
  ::testing::internal::CaptureStderr();
  {
    agent::LogConfig config;
    config.file = "/dev/null/weft.log";
    LogEventSink sink(config);
    sink.report(Severity::kInfo, "ready", {});
  }
  const std::string lines = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(lines.find("log_file_failed"), std::string::npos) << lines;
  EXPECT_NE(lines.find("info ready"), std::string::npos) << lines;
}

}  // namespace
}  // namespace weft::cli
