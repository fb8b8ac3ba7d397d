// SPDX-License-Identifier: Apache-2.0
#include "agent/lib/status_text.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>

namespace weft::agent {
namespace {

transport::FleetStatus sample() {
  transport::FleetStatus status;
  status.fleet = FleetId{{2, 1}};
  status.epoch.number = 3;
  status.committed = {Version{7}, Digest{{1, 0}}, Digest{{0xAB, 0xCD}}};
  transport::MemberStatus member;
  member.id = "node-\"1\"";
  member.state = wire::MemberState::kLagging;
  member.content = status.committed;
  member.cause = wire::Cause{ErrorCode::kNoSpace, "1 GiB needed"};
  member.bytes = 3 << 20;
  member.scrub = wire::ScrubReport{7'260'000, 3, 17, 4000, 0};
  status.members.push_back(member);
  status.refit = transport::RefitStatus{
      {{3, ProcessId{9}}, 1}, "streaming", Version{7}, Version{8}, "star", 4, 1, 2, 0, 55, 1500};
  wire::RefitOutcome last;
  last.verdict = wire::Verdict::kAbort;
  last.cause = wire::Cause{ErrorCode::kTimeout, "no votes"};
  last.prepare_ns = 1'500'000'000;
  status.last = last;
  return status;
}

TEST(StatusText, JsonHasTheDocumentedKeys) {
  const std::string json = status_json(sample());
  std::ifstream in(std::string(WEFT_SOURCE_DIR) + "/docs/json.md");
  std::stringstream document;
  document << in.rdbuf();
  const std::string text = document.str();
  const std::regex key(R"re("(\w+)":)re");
  std::set<std::string> keys;
  for (auto it = std::sregex_iterator(json.begin(), json.end(), key); it != std::sregex_iterator();
       ++it) {
    keys.insert((*it)[1].str());
  }
  EXPECT_GT(keys.size(), 30U);
  for (const std::string& name : keys) {
    EXPECT_TRUE(std::regex_search(text, std::regex("\\b" + name + "\\b"))) << name;
  }
}

TEST(StatusText, JsonOfAnEmptyFleetHasNulls) {
  EXPECT_EQ(status_json({}),
            R"({"fleet":"00000000000000000000000000000000","epoch":0,"version":0,)"
            R"("root":"00000000000000000000000000000000","members":[],"refit":null,"last":null})");
}

TEST(StatusText, TextShowsMembersCausesAndTheOpenRefit) {
  const std::string text = status_text(sample());
  EXPECT_NE(text.find("version 7"), std::string::npos) << text;
  EXPECT_NE(text.find("2 of 4 prepared"), std::string::npos) << text;
  EXPECT_NE(text.find("no_space: 1 GiB needed"), std::string::npos) << text;
  EXPECT_NE(text.find("timeout: no votes"), std::string::npos) << text;
  EXPECT_NE(text.find("3.0 MiB"), std::string::npos) << text;
  EXPECT_NE(text.find("2 h ago"), std::string::npos) << text;
}

TEST(StatusText, JsonTellsHowOldTheProofOfAMembersFilesIs) {
  auto status = sample();
  EXPECT_NE(
      status_json(status).find(R"("passes":3,"damaged_chunks":0,"last_pass_seconds_ago":7260)"),
      std::string::npos)
      << status_json(status);
  status.members[0].scrub->age_ms.reset();
  EXPECT_NE(status_json(status).find(R"("last_pass_seconds_ago":null)"), std::string::npos);
  EXPECT_NE(status_text(status).find("never"), std::string::npos) << status_text(status);
  status.members[0].scrub.reset();
  EXPECT_NE(status_json(status).find(R"("scrub":null)"), std::string::npos);
}

TEST(StatusText, MetricsEscapeLabels) {
  const std::string text = status_metrics(sample());
  EXPECT_NE(text.find(R"(weft_member_version{member="node-\"1\""} 7)"), std::string::npos) << text;
  EXPECT_NE(text.find("weft_members{state=\"lagging\"} 1"), std::string::npos) << text;
  EXPECT_NE(text.find("weft_refit_open 1"), std::string::npos) << text;
}

TEST(StatusText, CountersBecomeMetrics) {
  EXPECT_EQ(counter_metrics({{"frames_total", 3}}),
            "# TYPE weft_frames_total counter\nweft_frames_total 3\n");
}

}  // namespace
}  // namespace weft::agent
