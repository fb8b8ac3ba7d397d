// SPDX-License-Identifier: Apache-2.0
// Relays on the fake fabric: a child that takes nothing holds back nobody else (B-065).
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/relay_fleet.hpp"

namespace weft::transport {
namespace {

using namespace std::chrono_literals;

std::uint64_t demotions(RelayFleet& fleet) {
  std::uint64_t sum = 0;
  for (std::uint32_t i = 0; i < fleet.size(); ++i) sum += fleet.node(i).core->counters().demotions;
  return sum;
}

struct Slow {
  const char* shape;
  std::uint32_t agents;
  std::uint32_t stopped;  // agent
  bool pinned;            // writes to it never complete, not even locally
};

void PrintTo(const Slow& slow, std::ostream* out) {
  *out << slow.shape << " without agent " << slow.stopped << (slow.pinned ? ", pinned" : "");
}

class SlowChild : public testing::TestWithParam<Slow> {};

// Everybody who is not below the stopped one has all frames long before it is lost; when it goes on
// in time, it gets everything too.
TEST_P(SlowChild, StopsNobodyElseAndCatchesUpWhenItGoesOn) {
  FleetOptions options{.shape = GetParam().shape, .agents = GetParam().agents};
  options.fake.early_completion = !GetParam().pinned;
  options.fake.reorder = false;
  RelayFleet fleet(options);
  fleet.enter_all();
  ASSERT_TRUE(fleet.stream(4));
  fleet.network().freeze(*fleet.agent(GetParam().stopped).fabric, true);
  const TimePoint stopped = fleet.clock().now();
  // Who hangs below the stopped one waits with it.
  std::vector<bool> waits(fleet.size(), false);
  waits[fleet.agent_index(GetParam().stopped)] = true;
  for (bool grown = true; grown;) {
    grown = false;
    for (const auto& tree : fleet.plan().trees) {
      for (std::uint32_t i = 0; i < fleet.size(); ++i) {
        const auto parent = tree.nodes[i].parent;
        if (!parent || !waits[parent->value] || waits[i]) continue;
        waits[i] = grown = true;
      }
    }
  }
  const auto others_have = [&](std::size_t count) {
    for (std::uint32_t i = 1; i < fleet.size(); ++i) {
      if (!waits[i] && fleet.node(i).observer->frames.size() < count) return false;
    }
    return true;
  };
  ASSERT_TRUE(fleet.until(
      [&] {
        if (fleet.injected(0) < 150) fleet.inject(0);
        return fleet.injected(0) == 150 && others_have(150);
      },
      2500ms));
  EXPECT_LE(fleet.clock().now() - stopped, 2500ms);
  fleet.network().freeze(*fleet.agent(GetParam().stopped).fabric, false);
  ASSERT_TRUE(fleet.until([&] { return fleet.complete(); }));
  fleet.expect_each_frame_once();
  for (std::uint32_t i = 0; i < fleet.size(); ++i) {
    EXPECT_TRUE(fleet.node(i).observer->lost.empty()) << i;
  }
  EXPECT_GE(demotions(fleet), 1U);
  fleet.leave_and_expect_all_slots_back();
}

INSTANTIATE_TEST_SUITE_P(Places, SlowChild,
                         testing::Values(Slow{"star", 3, 1, false}, Slow{"star", 3, 1, true},
                                         Slow{"kary(2)", 6, 3, false}, Slow{"kary(2)", 6, 3, true},
                                         Slow{"kary(2)", 6, 1, false}, Slow{"chain", 3, 2, false},
                                         Slow{"chain", 3, 1, false}, Slow{"kary(3)", 12, 5, true},
                                         Slow{"binomial", 7, 6, false}));

// Sends until agent 1, which is frozen, has been demoted.
void demote_agent_1(RelayFleet& fleet) {
  fleet.enter_all();
  ASSERT_TRUE(fleet.stream(4));
  fleet.network().freeze(*fleet.agent(1).fabric, true);
  ASSERT_TRUE(fleet.until([&] {
    fleet.inject(0);
    return demotions(fleet) > 0;
  }));
  const std::uint32_t goal = fleet.injected(0) + 20;
  ASSERT_TRUE(fleet.until([&] { return fleet.inject(0), fleet.injected(0) >= goal; }, 2500ms));
  fleet.network().freeze(*fleet.agent(1).fabric, false);
}

// After it has caught up it is written to again.
TEST(RelayDemotion, EndsWhenTheChildHasEverything) {
  for (const char* shape : {"star", "chain", "kary(2)", "striped(2)"}) {
    SCOPED_TRACE(shape);
    RelayFleet fleet({.shape = shape, .agents = 4});
    demote_agent_1(fleet);
    ASSERT_FALSE(testing::Test::HasFatalFailure());
    ASSERT_TRUE(fleet.until([&] { return fleet.complete(); }));
    fleet.run_for(1500ms);
    const std::uint64_t read = fleet.agent(1).core->counters().frames_read;
    EXPECT_GT(read, 0U);
    ASSERT_TRUE(fleet.stream(50));
    EXPECT_EQ(fleet.agent(1).core->counters().frames_read, read);
    fleet.leave_and_expect_all_slots_back();
  }
}

// Who has everything and knows it does not ask any more; nobody takes that for a stall.
TEST(RelayDemotion, WhoHasEverythingIsNotLostForReadingNothing) {
  RelayFleet fleet({.shape = "star", .agents = 2});
  demote_agent_1(fleet);
  const std::uint32_t counts[] = {fleet.injected(0)};
  for (std::uint32_t i = 0; i < 2; ++i) fleet.agent(i).core->set_goal(fleet.plan().refit, counts);
  ASSERT_TRUE(fleet.until([&] { return fleet.complete(); }));
  fleet.run_for(15s, 5ms);
  EXPECT_TRUE(fleet.node(0).observer->lost.empty());
  EXPECT_TRUE(fleet.node(0).core->drained(fleet.plan().refit));
}

// Children that are equally slow hold back nobody: nobody is demoted.
TEST(RelayDemotion, ABusyLinkIsNoReason) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    FleetOptions options{.shape = "kary(3)", .agents = 12};
    options.fake.seed = seed;
    RelayFleet fleet(options);
    fleet.enter_all();
    ASSERT_TRUE(fleet.stream(200));
    for (std::uint32_t i = 0; i < fleet.size(); ++i) {
      EXPECT_EQ(fleet.node(i).core->counters().demotions, 0U) << "seed " << seed << " node " << i;
    }
  }
}

}  // namespace
}  // namespace weft::transport
