// SPDX-License-Identifier: Apache-2.0
#include "agent/lib/node_status.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>

#include "agent/lib/scrub_status.hpp"
#include "agent/lib/status_text.hpp"

namespace weft::agent {
namespace {

NodeSnapshot sample() {
  NodeSnapshot node;
  node.agent_id = "node-1";
  node.rail = {"tcp", 7, "eth0", "fi_sockaddr_in://10.0.0.1:4711", "1.17.0", 64, 1};
  transport::LinkStatus parent;
  parent.refit = {{3, ProcessId{9}}, 1};
  parent.member_id = "a \"b\"";
  parent.from_parent = true;
  parent.phase = "open";
  parent.slots = 8;
  parent.credits = 5;
  parent.frames = 40;
  parent.bytes = 4'000'000;
  transport::LinkStatus child = parent;
  child.member_id = "node-2";
  child.from_parent = false;
  child.demoted = true;
  child.demotions = 2;
  child.waiting = 3;
  node.links = {parent, child};
  return node;
}

TEST(NodeStatus, LinksHaveTheDocumentedKeys) {
  const std::string json = node_status_json(sample(), TimePoint{});
  EXPECT_NE(json.find(R"("parent":"a \"b\"","phase":"open","suspect":false)"), std::string::npos)
      << json;
  EXPECT_NE(json.find(R"("child":"node-2")"), std::string::npos);
  std::ifstream in(std::string(WEFT_SOURCE_DIR) + "/docs/json.md");
  std::stringstream document;
  document << in.rdbuf();
  const std::string text = document.str();
  const std::string node = json.substr(json.find("\"node\":"));
  const std::regex key(R"re("(\w+)":)re");
  for (auto it = std::sregex_iterator(node.begin(), node.end(), key); it != std::sregex_iterator();
       ++it) {
    EXPECT_TRUE(std::regex_search(text, std::regex("\\b" + (*it)[1].str() + "\\b"))) << (*it)[1];
  }
}

// The two ways to the same member: from the scrubber here, from what a member told there.
TEST(NodeStatus, ScrubIsWrittenAsInTheFleetsStatus) {
  NodeSnapshot node = sample();
  node.scrub = {17, 4000, 3, TimePoint{}, 1};
  const TimePoint now = TimePoint{} + std::chrono::milliseconds(90'250);
  const std::string expected =
      R"("scrub":{"chunks_checked":17,"chunk_count":4000,"passes":3,"damaged_chunks":1,)"
      R"("last_pass_seconds_ago":90.25})";
  EXPECT_NE(node_status_json(node, now).find(expected), std::string::npos)
      << node_status_json(node, now);
  transport::FleetStatus fleet;
  fleet.members.resize(1);
  fleet.members[0].scrub = scrub_report(node.scrub, now);
  EXPECT_NE(status_json(fleet).find(expected), std::string::npos) << status_json(fleet);
  node.scrub.pass_ended.reset();
  EXPECT_NE(node_status_json(node, now).find(R"("last_pass_seconds_ago":null})"),
            std::string::npos);
}

TEST(NodeStatus, TextNamesRailAndLinks) {
  const std::string text = node_status_text(sample());
  EXPECT_NE(text.find("rail tcp, protocol 7, device eth0"), std::string::npos) << text;
  EXPECT_NE(text.find("64 slots, NUMA node 1\n"), std::string::npos) << text;
  EXPECT_TRUE(
      std::regex_search(text, std::regex("to node-2 +0 +open, demoted +8 +5 +3 +2 +40 +4000000\n")))
      << text;
  EXPECT_NE(node_status_text({}).find("no link since the start"), std::string::npos);
}

TEST(NodeStatus, MetricsHaveALabelPerLink) {
  const std::string text = node_metrics(sample(), TimePoint{});
  EXPECT_NE(text.find("weft_link_credits{parent=\"a \\\"b\\\"\",tree=\"0\"} 5\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("weft_link_demotions{child=\"node-2\",tree=\"0\"} 2\n"), std::string::npos);
}

}  // namespace
}  // namespace weft::agent
