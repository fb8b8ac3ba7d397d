// SPDX-License-Identifier: Apache-2.0
// What a relay says of its links.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "support/relay_fleet.hpp"

namespace weft::transport {
namespace {

using namespace std::chrono_literals;

LinkStatus link_to(const RelayFleet::Node& node, const std::string& member) {
  const auto links = node.core->links();
  const auto found = std::find_if(links.begin(), links.end(),
                                  [&](const LinkStatus& link) { return link.member_id == member; });
  return found == links.end() ? LinkStatus{} : *found;
}

TEST(RelayLinks, CountWhatCameAndWhatWent) {
  RelayFleet fleet({.shape = "kary(2)", .agents = 3, .slots_per_link = 4});
  fleet.enter_all();
  EXPECT_EQ(link_to(fleet.agent(0), "producer-0").phase, "connecting");
  ASSERT_TRUE(fleet.stream(50));
  fleet.run_for(300ms);
  const LinkStatus up = link_to(fleet.agent(0), "producer-0");
  EXPECT_TRUE(up.from_parent);
  EXPECT_EQ(up.refit, fleet.plan().refit);
  EXPECT_EQ(up.phase, "open");
  EXPECT_EQ(up.slots, 4U);
  EXPECT_EQ(up.credits, 4U);
  EXPECT_EQ(up.frames, 50U);
  const LinkStatus down = link_to(fleet.node(0), "agent-0");
  EXPECT_FALSE(down.from_parent);
  EXPECT_EQ(down.slots, 4U);
  EXPECT_EQ(down.credits, 4U);
  EXPECT_EQ(down.waiting, 0U);
  EXPECT_EQ(down.frames, 50U);
  EXPECT_EQ(down.bytes, up.bytes);
  EXPECT_GT(up.bytes, 50U * 3000);
  EXPECT_EQ(fleet.agent(0).core->links().size(), 2U);  // agent-2 hangs below it
}

TEST(RelayLinks, ShowAChildThatIsSilentDemotedAndLost) {
  RelayFleet fleet({.shape = "star", .agents = 2});
  fleet.enter_all();
  ASSERT_TRUE(fleet.stream(10));
  fleet.network().freeze(*fleet.agent(1).fabric, true);
  const auto inject = [&] {
    if (fleet.injected(0) < 100) fleet.inject(0);
    return link_to(fleet.node(0), "agent-1");
  };
  ASSERT_TRUE(fleet.until([&] { return inject().demoted; }, 10s, 1ms));
  EXPECT_EQ(link_to(fleet.node(0), "agent-1").demotions, 1U);
  ASSERT_TRUE(fleet.until([&] { return inject().suspect; }, 10s, 1ms));
  ASSERT_TRUE(fleet.until([&] { return inject().phase == "ended"; }, 10s, 1ms));
  const LinkStatus lost = link_to(fleet.node(0), "agent-1");
  EXPECT_EQ(lost.credits, 0U);
  EXPECT_EQ(lost.waiting, 0U);
  EXPECT_FALSE(lost.suspect);
}

}  // namespace
}  // namespace weft::transport
