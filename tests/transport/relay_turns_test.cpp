// SPDX-License-Identifier: Apache-2.0
// More producers than trees may be open at once: they take turns.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "support/fake_fabric.hpp"
#include "support/relay_fleet.hpp"

namespace weft::transport {
namespace {

constexpr std::size_t kOtherRegistrations = 2;  // the slab, the reserve

// A fleet whose producers send a number of frames each, as their slots allow.
// Threads: one at a time.
class Turns {
 public:
  explicit Turns(const FleetOptions& options, std::uint32_t frames)
      : fleet(options), options_(options), frames_(frames) {
    fleet.network().options().seed = 7;
    stripes_ = static_cast<std::uint32_t>(fleet.plan().trees.size()) / options.producers;
    finished_.resize(options.producers, false);
  }

  // Injects what fits, finishes who has sent everything, and looks at every agent's registrations.
  bool done() {
    bool all = true;
    for (std::uint32_t p = 0; p < options_.producers; ++p) {
      if (fleet.injected(p) < frames_of(p)) fleet.inject(p);
      const bool whole = fleet.injected(p) == frames_of(p);
      if (whole && !finished_[p]) {
        fleet.node(p).core->finish(fleet.plan().refit, ProducerIndex{p}, frames_of(p));
        finished_[p] = true;
      }
      all &= whole;
    }
    for (std::uint32_t i = options_.producers; i < fleet.size(); ++i) {
      const RelayFleet::Node& node = fleet.node(i);
      if (node.dead) continue;
      const std::size_t count = static_cast<FakeFabric*>(node.fabric)->registration_count();
      ranges_max = std::max(ranges_max, count - kOtherRegistrations);
    }
    return all && fleet.complete();
  }
  bool stream(Duration limit = std::chrono::seconds(60)) {
    return fleet.until([&] { return done(); }, limit, std::chrono::milliseconds(1));
  }
  std::size_t ranges_allowed() const { return std::max(options_.trees_open_max, stripes_); }
  // Trees that an agent has a range for.
  std::uint32_t links_up(std::uint32_t agent) {
    const auto links = fleet.agent(agent).core->links();
    return static_cast<std::uint32_t>(
        std::count_if(links.begin(), links.end(),
                      [](const LinkStatus& link) { return link.from_parent && link.slots > 0; }));
  }
  std::uint32_t frames_of(std::uint32_t producer) const {
    return producer % 5 == 4 ? 0 : frames_ + producer % 3;  // some have nothing to say
  }

  RelayFleet fleet;
  std::size_t ranges_max = 0;

 private:
  FleetOptions options_;
  std::uint32_t frames_;
  std::uint32_t stripes_ = 1;
  std::vector<bool> finished_;
};

class RelayTurns : public testing::TestWithParam<std::uint32_t> {};

// Every shape, many producers at once, three credits; the plainest shapes with 64 of them.
TEST_P(RelayTurns, NoShapeWaitsInACircleAndRangesAreBounded) {
  for (const char* shape : {"star", "chain", "kary(2)", "kary(3)", "binomial", "pipeline",
                            "striped(2)", "striped(3)", "regional(kary(2), chain)", "auto"}) {
    SCOPED_TRACE(shape);
    const std::string name = shape;
    const bool most = name == "star" || (name == "chain" && GetParam() == 2);
    Turns turns({.shape = name,
                 .producers = most ? 64U : 12U,
                 .agents = 4,
                 .slots = 40,
                 .slots_per_link = 3,
                 .trees_open_max = GetParam()},
                3);
    turns.fleet.enter_all();
    ASSERT_TRUE(turns.stream());
    EXPECT_LE(turns.ranges_max, turns.ranges_allowed());
    EXPECT_GT(turns.ranges_max, 0U);
    turns.fleet.expect_each_frame_once();
    turns.fleet.leave_and_expect_all_slots_back();
  }
}

// Slabs that hold a third of what each producer sends: who waits for a turn waits with full slots.
TEST_P(RelayTurns, ProducersHoldBackUntilTheirTurn) {
  Turns turns({.shape = "kary(2)",
               .producers = 12,
               .agents = 4,
               .slots = 36,
               .slots_per_link = 3,
               .trees_open_max = GetParam()},
              100);
  turns.fleet.enter_all();
  turns.fleet.until([&] { return turns.done() || turns.fleet.injected(0) >= 60; });
  // The last one has filled its slab and no more: nobody reads its frames from a spool.
  EXPECT_LT(turns.fleet.injected(11), 36U);
  ASSERT_TRUE(turns.stream(std::chrono::seconds(120)));
  EXPECT_LE(turns.ranges_max, turns.ranges_allowed());
  std::uint64_t read = 0;
  for (std::uint32_t i = 0; i < 4; ++i) read += turns.fleet.agent(i).core->counters().frames_read;
  EXPECT_LT(read, 4 * 12 * 100U / 10);
  turns.fleet.expect_each_frame_once();
  turns.fleet.leave_and_expect_all_slots_back();
}

TEST_P(RelayTurns, LostDoorbellsAndMessagesOnlyDelayATurn) {
  FakeOptions fake;
  fake.lost_doorbells = fake.duplicate_doorbells = 100;
  fake.lost_messages = fake.duplicate_messages = 100;
  fake.again = 100;
  Turns turns({.fake = fake,
               .shape = "kary(2)",
               .producers = 16,
               .agents = 5,
               .slots = 48,
               .slots_per_link = 3,
               .trees_open_max = GetParam()},
              20);
  turns.fleet.enter_all();
  ASSERT_TRUE(turns.stream(std::chrono::seconds(120)));
  EXPECT_LE(turns.ranges_max, turns.ranges_allowed());
  turns.fleet.expect_each_frame_once();
  turns.fleet.leave_and_expect_all_slots_back();
}

INSTANTIATE_TEST_SUITE_P(OpenMax, RelayTurns, testing::Values(1U, 2U, 8U));

TEST(RelayTurnsEnd, TheNextTreeOpensOnlyWhenAnEarlierOneIsComplete) {
  Turns turns({.shape = "star", .producers = 3, .agents = 2, .trees_open_max = 1}, 0);
  RelayFleet& fleet = turns.fleet;
  fleet.enter_all();
  ASSERT_TRUE(fleet.inject(0));
  fleet.inject(1);
  fleet.run_for(std::chrono::seconds(12),
                std::chrono::milliseconds(5));  // beyond every deadline of a connection
  EXPECT_EQ(fleet.agent(0).observer->frames.size(), 1U);
  EXPECT_EQ(turns.links_up(0), 1U);
  for (std::uint32_t i = 0; i < fleet.size(); ++i) {
    EXPECT_TRUE(fleet.node(i).observer->lost.empty()) << fleet.node(i).name;
    EXPECT_EQ(fleet.node(i).core->counters().demotions, 0U);
  }
  fleet.node(0).core->finish(fleet.plan().refit, ProducerIndex{0}, 1);
  EXPECT_TRUE(fleet.until([&] { return fleet.agent(0).observer->frames.size() == 2; }));
  EXPECT_EQ(turns.links_up(0), 1U);
  fleet.leave_and_expect_all_slots_back();
}

// The place of a producer that is lost is free when its refit has ended.
TEST(RelayTurnsEnd, ALostProducersPlaceIsFreeForTheNextRefit) {
  Turns turns({.shape = "chain", .producers = 3, .agents = 3, .trees_open_max = 1}, 5);
  RelayFleet& fleet = turns.fleet;
  fleet.enter_all();
  for (int i = 0; i < 3; ++i) fleet.inject(0);
  ASSERT_TRUE(fleet.until([&] { return fleet.agent(2).observer->frames.size() == 3; }));
  fleet.kill(0);
  fleet.run_for(std::chrono::seconds(5));
  EXPECT_FALSE(fleet.agent(0).observer->lost.empty());
  fleet.leave_and_expect_all_slots_back();
}

// A relay goes while producers take turns: its orphans go on below another, each frame comes once.
TEST(RelayTurnsEnd, ALostRelayDoesNotEndTheTurns) {
  for (const std::uint32_t open_max : {1U, 2U}) {
    Turns turns({.shape = "chain",
                 .producers = 6,
                 .agents = 4,
                 .slots = 48,
                 .slots_per_link = 3,
                 .trees_open_max = open_max},
                30);
    RelayFleet& fleet = turns.fleet;
    fleet.enter_all();
    ASSERT_TRUE(
        fleet.until([&] { return turns.done() || fleet.agent(3).observer->frames.size() > 60; }));
    fleet.kill(fleet.agent_index(1));
    fleet.run_for(std::chrono::seconds(4));
    fleet.replan();
    ASSERT_TRUE(turns.stream(std::chrono::seconds(120))) << open_max;
    fleet.expect_each_frame_once();
    EXPECT_LE(turns.ranges_max, turns.ranges_allowed());
    fleet.leave_and_expect_all_slots_back();
  }
}

// Who comes late starts at the first producer and is told of those that have ended.
TEST(RelayTurnsEnd, ALateAgentTakesAllTurns) {
  Turns turns({.shape = "kary(2)", .producers = 5, .agents = 3, .slots = 48, .trees_open_max = 2},
              10);
  RelayFleet& fleet = turns.fleet;
  fleet.enter_all();
  ASSERT_TRUE(turns.stream());
  const std::uint32_t late = fleet.add_late_agent();
  fleet.replan();
  ASSERT_TRUE(turns.stream());
  EXPECT_EQ(fleet.node(late).observer->frames.size(), fleet.agent(0).observer->frames.size());
  EXPECT_LE(turns.ranges_max, turns.ranges_allowed());
  fleet.leave_and_expect_all_slots_back();
}

// One that holds frames for long is left to read; its siblings' turns go on.
TEST(RelayTurnsEnd, AStuckChildDoesNotHoldBackItsSiblings) {
  Turns turns({.shape = "star",
               .producers = 4,
               .agents = 3,
               .slots = 24,
               .slots_per_link = 3,
               .trees_open_max = 1},
              60);
  RelayFleet& fleet = turns.fleet;
  fleet.agent(1).observer->hold = true;
  fleet.enter_all();
  const auto others = [&] {
    turns.done();
    std::size_t total = 0;
    for (std::uint32_t p = 0; p < 4; ++p) total += turns.frames_of(p);
    return fleet.agent(0).observer->frames.size() == total &&
           fleet.agent(2).observer->frames.size() == total;
  };
  ASSERT_TRUE(fleet.until(others, std::chrono::seconds(60)));
  fleet.agent(1).observer->hold = false;
  fleet.agent(1).observer->held.clear();
  ASSERT_TRUE(turns.stream(std::chrono::seconds(120)));
  fleet.expect_each_frame_once();
  fleet.leave_and_expect_all_slots_back();
}

}  // namespace
}  // namespace weft::transport
