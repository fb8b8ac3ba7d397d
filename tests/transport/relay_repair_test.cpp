// SPDX-License-Identifier: Apache-2.0
// Relays on the fake fabric: what no link brings is read from whoever has it.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "support/relay_fleet.hpp"

namespace weft::transport {
namespace {

using namespace std::chrono_literals;

// Injects what is left of `count` and runs until everybody has everything.
bool finish(RelayFleet& fleet, std::uint32_t count, Duration limit = 60s) {
  return fleet.until(
      [&] {
        if (fleet.injected(0) < count) fleet.inject(0);
        return fleet.injected(0) == count && fleet.complete();
      },
      limit);
}

struct RelayLoss {
  std::uint32_t frames_before;
  bool reported;
  bool replanned;
};

void PrintTo(const RelayLoss& loss, std::ostream* out) {
  *out << (loss.reported ? "reported" : "silent") << " after " << loss.frames_before
       << (loss.replanned ? ", new trees" : ", no new trees");
}

class RelayLost : public testing::TestWithParam<RelayLoss> {};

// The main claim: what dies with an interior relay is lost for nobody else.
TEST_P(RelayLost, EverySurvivorHasEveryFrameOnce) {
  RelayFleet fleet({.shape = "kary(2)", .agents = 6});
  fleet.enter_all();
  ASSERT_TRUE(fleet.until([&] {
    if (fleet.injected(0) < 100) fleet.inject(0);
    return fleet.agent(0).observer->frames.size() >= GetParam().frames_before;
  }));
  fleet.kill(fleet.agent_index(0), GetParam().reported);
  ASSERT_TRUE(fleet.until(
      [&] {
        if (fleet.injected(0) < 100) fleet.inject(0);
        return !fleet.agent(2).observer->lost.empty();
      },
      20s, 1ms));
  const TimePoint detected = fleet.clock().now();
  const std::size_t had = fleet.agent(2).observer->frames.size();
  if (GetParam().replanned) fleet.replan();
  if (had < 100) {
    ASSERT_TRUE(fleet.until([&] {
      if (fleet.injected(0) < 100) fleet.inject(0);
      return fleet.agent(2).observer->frames.size() > had;
    }));
    EXPECT_LE(fleet.clock().now() - detected, 1s);
  }
  ASSERT_TRUE(finish(fleet, 100));
  fleet.expect_each_frame_once();
  EXPECT_EQ(fleet.agent(2).observer->lost.size(), 1U);
  fleet.leave_and_expect_all_slots_back();
}

INSTANTIATE_TEST_SUITE_P(Points, RelayLost,
                         testing::Values(RelayLoss{0, true, true}, RelayLoss{0, false, false},
                                         RelayLoss{1, true, true}, RelayLoss{2, false, true},
                                         RelayLoss{3, true, false}, RelayLoss{5, true, true},
                                         RelayLoss{8, false, true}, RelayLoss{13, true, false},
                                         RelayLoss{21, true, true}, RelayLoss{34, false, true},
                                         RelayLoss{50, true, false}, RelayLoss{55, false, true},
                                         RelayLoss{64, true, true}, RelayLoss{72, false, false},
                                         RelayLoss{80, true, true}, RelayLoss{89, false, true},
                                         RelayLoss{95, true, false}, RelayLoss{98, true, true},
                                         RelayLoss{99, false, true}, RelayLoss{100, true, true}));

TEST(RelayRepair, SurvivesLossReorderingAndRepetitionOfItsMessages) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    FleetOptions options{.shape = "chain", .agents = 4};
    options.fake = {.seed = seed,
                    .lost_doorbells = 50,
                    .duplicate_doorbells = 50,
                    .lost_messages = 100,
                    .duplicate_messages = 100,
                    .again = 50};
    RelayFleet fleet(options);
    fleet.enter_all();
    ASSERT_TRUE(fleet.until([&] {
      if (fleet.injected(0) < 60) fleet.inject(0);
      return fleet.agent(1).observer->frames.size() >= 20;
    })) << "seed "
        << seed;
    fleet.kill(fleet.agent_index(1), seed % 2 == 0);
    ASSERT_TRUE(fleet.until(
        [&] {
          if (fleet.injected(0) < 60) fleet.inject(0);
          return !fleet.agent(2).observer->lost.empty();
        },
        30s, 1ms))
        << "seed " << seed;
    if (seed % 3 != 0) fleet.replan();
    ASSERT_TRUE(finish(fleet, 60)) << "seed " << seed;
    fleet.expect_each_frame_once();
    fleet.leave_and_expect_all_slots_back();
  }
}

// New trees leave the links alone that are in both; nothing is sent twice over them.
TEST(RelayRepair, LinksThatBothPlansHaveStay) {
  RelayFleet fleet({.shape = "kary(2)", .agents = 6});
  fleet.enter_all();
  ASSERT_TRUE(fleet.stream(40));
  fleet.kill(fleet.agent_index(5), true);
  fleet.replan();
  ASSERT_TRUE(fleet.stream(40));
  for (std::uint32_t i = 0; i < 5; ++i) {
    EXPECT_EQ(fleet.agent(i).core->counters().frames_repeated, 0U) << i;
    EXPECT_EQ(fleet.agent(i).core->counters().frames_read, 0U) << i;
    EXPECT_EQ(fleet.agent(i).core->quarantined(), 0U) << i;
  }
}

TEST(RelayRepair, OneThatJoinsLateGetsWhatPassedBefore) {
  RelayFleet fleet({.shape = "chain", .agents = 2});
  fleet.enter_all();
  ASSERT_TRUE(fleet.stream(50));
  const std::uint32_t late = fleet.add_late_agent();
  fleet.replan();
  ASSERT_TRUE(finish(fleet, 80));
  EXPECT_EQ(fleet.node(late).observer->frames.size(), 80U);
  EXPECT_GE(fleet.node(late).core->counters().frames_read, 50U);
  fleet.expect_each_frame_once();
  fleet.leave_and_expect_all_slots_back();
}

// What it held before it was restarted is not sent again.
TEST(RelayRepair, FramesThatWereHeldBeforeAreNotAskedFor) {
  RelayFleet fleet({.shape = "chain", .agents = 1});
  fleet.enter_all();
  ASSERT_TRUE(fleet.stream(50));
  const std::uint32_t late = fleet.add_late_agent();
  fleet.replan();
  std::vector<FrameSequence> held;
  for (std::uint32_t i = 0; i < 50; i += i == 20 ? 5 : 1) held.push_back(FrameSequence{i});
  fleet.node(late).core->mark_held(fleet.plan().refit, ProducerIndex{0}, held);
  const std::size_t missing = 50 - held.size();
  ASSERT_TRUE(
      fleet.until([&] { return fleet.node(late).observer->frames.size() >= missing; }, 10s));
  fleet.run_for(2s);
  EXPECT_EQ(fleet.node(late).observer->frames.size(), missing);
  EXPECT_EQ(fleet.node(late).core->counters().frames_read, missing);
}

// The seal says how many frames there are; one that no link brings is read.
TEST(RelayRepair, WhatIsMissingAtTheSealIsRead) {
  RelayFleet fleet({.shape = "chain", .agents = 2});
  fleet.enter_all();
  ASSERT_TRUE(fleet.stream(20));
  fleet.agent(1).core->refetch(fleet.plan().refit, ProducerIndex{0}, FrameSequence{7});
  fleet.agent(1).observer->frames.erase({0, 7});
  const std::vector<std::uint32_t> counts{20};
  fleet.agent(1).core->set_goal(fleet.plan().refit, counts);
  ASSERT_TRUE(fleet.until([&] { return fleet.complete(); }, 5s));
  const std::uint64_t posted = fleet.agent(1).core->counters().reads_posted;
  fleet.run_for(2s);
  EXPECT_EQ(fleet.agent(1).core->counters().reads_posted, posted);  // and no longer
}

// One holder that has nothing is not the end: the next one up is asked.
TEST(RelayRepair, AHolderThatCannotServeIsPassedOver) {
  RelayFleet fleet({.shape = "chain", .agents = 3});
  fleet.agent(1).observer->keep = false;
  fleet.enter_all();
  ASSERT_TRUE(fleet.stream(10));
  fleet.agent(2).observer->frames.erase({0, 4});
  const std::vector<std::uint32_t> counts{10};
  fleet.agent(2).core->set_goal(fleet.plan().refit, counts);
  fleet.agent(2).core->refetch(fleet.plan().refit, ProducerIndex{0}, FrameSequence{4});
  ASSERT_TRUE(fleet.until([&] { return fleet.complete(); }, 10s));
  EXPECT_EQ(fleet.agent(2).core->counters().frames_read, 1U);
}

// A frame that does not decode is asked for above the parent, whose copy may be the bad one, and is
// not forwarded: the children look after themselves.
TEST(RelayRepair, AFrameFetchedAgainComesFromSomebodyElse) {
  RelayFleet fleet({.shape = "chain", .agents = 3});
  fleet.enter_all();
  ASSERT_TRUE(fleet.stream(10));
  fleet.agent(0).observer->wanted_count = 0;
  fleet.agent(1).observer->wanted_count = 0;
  fleet.agent(2).core->refetch(fleet.plan().refit, ProducerIndex{0}, FrameSequence{3});
  ASSERT_TRUE(fleet.until([&] { return fleet.agent(2).observer->frames[{0, 3}] == 2; }, 5s));
  EXPECT_EQ(fleet.agent(1).observer->wanted_count, 0U);  // its parent
  EXPECT_GE(fleet.agent(0).observer->wanted_count, 1U);
  fleet.agent(1).core->refetch(fleet.plan().refit, ProducerIndex{0}, FrameSequence{3});
  ASSERT_TRUE(fleet.until([&] { return fleet.agent(1).observer->frames[{0, 3}] == 2; }, 5s));
  fleet.run_for(1s);
  EXPECT_EQ(fleet.agent(2).core->counters().frames_repeated, 0U);
}

// An offer may end under a read: what was read is looked at before it is believed.
TEST(RelayRepair, AReadOfSomethingElseIsRefusedAndDoneAgain) {
  RelayFleet fleet({.shape = "chain", .agents = 1});
  fleet.enter_all();
  ASSERT_TRUE(fleet.stream(10));
  int spoiled = 0;
  fleet.network().on_read([&](std::span<std::byte> bytes) {
    if (++spoiled <= 3) bytes[bytes.size() / 2] ^= std::byte{1};
  });
  const std::uint32_t late = fleet.add_late_agent();
  fleet.replan();
  ASSERT_TRUE(finish(fleet, 10));
  EXPECT_GE(fleet.node(late).core->counters().reads_refused, 3U);
  EXPECT_TRUE(fleet.node(late).observer->faults.empty());
}

// B-071: a reader that vanishes with an offer in its hands holds it for the lease, no longer.
TEST(RelayRepair, AReaderThatVanishesReleasesItsOfferByLease) {
  RelayFleet fleet({.shape = "star", .agents = 1});
  fleet.enter_all();
  ASSERT_TRUE(fleet.stream(10));
  const std::uint32_t gone = fleet.add_late_agent();
  fleet.replan();
  // New ones hang below the one that has no child yet.
  ASSERT_TRUE(fleet.until([&] { return fleet.agent(0).core->counters().frames_offered > 0; }, 5s));
  fleet.kill(gone, false);
  const std::uint32_t second = fleet.add_late_agent();
  fleet.replan();
  const TimePoint start = fleet.clock().now();
  ASSERT_TRUE(finish(fleet, 10));
  EXPECT_EQ(fleet.node(second).observer->frames.size(), 10U);
  EXPECT_LE(fleet.clock().now() - start, 3s);
  fleet.leave_and_expect_all_slots_back();
}

// Readers take turns: nobody waits for another one's last frame.
TEST(RelayRepair, ManyReadersShareTheReserve) {
  RelayFleet fleet({.shape = "star", .agents = 1, .slots = 64});
  fleet.enter_all();
  ASSERT_TRUE(fleet.stream(40));
  std::vector<std::uint32_t> late;
  for (int i = 0; i < 5; ++i) late.push_back(fleet.add_late_agent());
  fleet.replan();
  std::size_t least_when_first_is_done = 0;
  ASSERT_TRUE(fleet.until([&] {
    std::size_t least = 1000;
    std::size_t most = 0;
    for (const std::uint32_t node : late) {
      least = std::min(least, fleet.node(node).observer->frames.size());
      most = std::max(most, fleet.node(node).observer->frames.size());
    }
    if (most == 40 && least_when_first_is_done == 0) least_when_first_is_done = least;
    return fleet.complete();
  }));
  EXPECT_GE(least_when_first_is_done, 20U);
}

struct SlowOrphan {
  std::uint32_t slots;
  bool demoted;
};
class OrphanWhoseChildTakesNothing : public testing::TestWithParam<SlowOrphan> {};

// What is read for the child leaves room for the range of a new parent; that room is no reason to
// wait for the child for ever.
TEST_P(OrphanWhoseChildTakesNothing, HasRoomForANewParent) {
  const auto [slots, demoted] = GetParam();
  RelayFleet fleet({.shape = "chain", .agents = 3, .slots = slots, .slots_per_link = 8});
  const auto inject_all = [&] {
    if (fleet.injected(0) < 60) fleet.inject(0);
    return fleet.injected(0) == 60;
  };
  fleet.enter_all();
  ASSERT_TRUE(fleet.until([&] {
    inject_all();
    return fleet.agent(2).observer->frames.size() >= 8;
  }));
  fleet.kill(fleet.agent_index(0), true);
  ASSERT_TRUE(fleet.until([&] { return inject_all() && !fleet.agent(1).observer->lost.empty(); },
                          20s, 1ms));
  fleet.agent(2).observer->hold = true;
  fleet.run_for(500ms);
  EXPECT_GE(fleet.agent(1).core->counters().frames_read, 2U);
  if (demoted) fleet.run_for(2s);
  EXPECT_EQ(fleet.agent(1).core->counters().demotions, demoted ? 1U : 0U);
  fleet.replan();
  fleet.agent(2).observer->hold = false;
  fleet.agent(2).observer->held.clear();
  ASSERT_TRUE(finish(fleet, 60));
  fleet.expect_each_frame_once();
  fleet.leave_and_expect_all_slots_back();
}

INSTANTIATE_TEST_SUITE_P(Slots, OrphanWhoseChildTakesNothing,
                         testing::Values(SlowOrphan{16, false}, SlowOrphan{16, true},
                                         SlowOrphan{32, false}, SlowOrphan{32, true}));

// A child that its parent gave up, and that has given the parent up, comes back under the same
// plan.
TEST(RelayRepair, AChildThatWasGivenUpStartsANewLinkByTheNextPlan) {
  RelayFleet fleet({.shape = "chain", .agents = 2});
  fleet.enter_all();
  ASSERT_TRUE(fleet.stream(10));
  fleet.network().freeze(*fleet.agent(1).fabric, true);
  ASSERT_TRUE(fleet.until([&] { return !fleet.agent(0).observer->lost.empty(); }, 10s, 1ms));
  fleet.network().freeze(*fleet.agent(1).fabric, false);
  ASSERT_TRUE(fleet.until([&] { return !fleet.agent(1).observer->lost.empty(); }, 10s, 1ms));
  fleet.replan();
  ASSERT_TRUE(finish(fleet, 40));
  fleet.expect_each_frame_once();
  EXPECT_LT(fleet.agent(1).core->counters().frames_read, 30U);  // the link is back
  fleet.leave_and_expect_all_slots_back();
}

}  // namespace
}  // namespace weft::transport
