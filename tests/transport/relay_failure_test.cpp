// SPDX-License-Identifier: Apache-2.0
// Relays on the fake fabric when peers die, freeze, refuse and come back.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "support/relay_fleet.hpp"

namespace weft::transport {
namespace {

using namespace std::chrono_literals;

// B-043: with and without a word from the fabric, at several points of the stream.
struct Death {
  bool errors_reported;
  std::size_t frames_before;
};

void PrintTo(const Death& death, std::ostream* out) {
  *out << (death.errors_reported ? "reported" : "silent") << " after " << death.frames_before;
}

// One that has never been heard has the time to connect.
Duration deadline_of(const Death& death) { return death.frames_before == 0 ? 10'100ms : 3'100ms; }

class RelayDeath : public testing::TestWithParam<Death> {};

TEST_P(RelayDeath, ADeadLeafIsNamedInTimeAndOthersFinish) {
  RelayFleet fleet({.shape = "kary(2)", .agents = 6});
  fleet.enter_all();
  std::uint32_t sent = 0;
  ASSERT_TRUE(fleet.until([&] {
    if (sent < 100) sent += fleet.inject(0) ? 1 : 0;
    return fleet.agent(5).observer->frames.size() >= GetParam().frames_before;
  }));
  fleet.kill(fleet.agent_index(5), GetParam().errors_reported);
  const TimePoint died = fleet.clock().now();
  ASSERT_TRUE(fleet.until(
      [&] {
        if (sent < 100) sent += fleet.inject(0) ? 1 : 0;
        return !fleet.agent(1).observer->lost.empty();
      },
      20s, 1ms));
  EXPECT_LE(fleet.clock().now() - died, deadline_of(GetParam()));
  EXPECT_EQ(fleet.agent(1).observer->lost[0].member, "agent-5");
  EXPECT_EQ(fleet.agent(1).observer->lost[0].error.code, ErrorCode::kPeerLost);
  EXPECT_TRUE(fleet.until([&] {
    if (sent < 100) sent += fleet.inject(0) ? 1 : 0;
    return sent == 100 && fleet.complete();
  }));
  EXPECT_EQ(fleet.agent(1).observer->lost.size(), 1U);
  fleet.leave_and_expect_all_slots_back();
}

TEST_P(RelayDeath, ADeadInteriorRelayIsNamedByParentAndChildren) {
  RelayFleet fleet({.shape = "kary(2)", .agents = 6});
  fleet.enter_all();
  std::uint32_t sent = 0;
  ASSERT_TRUE(fleet.until([&] {
    if (sent < 100) sent += fleet.inject(0) ? 1 : 0;
    return fleet.agent(0).observer->frames.size() >= GetParam().frames_before;
  }));
  fleet.kill(fleet.agent_index(0), GetParam().errors_reported);
  const TimePoint died = fleet.clock().now();
  const std::vector<std::uint32_t> neighbours{0, fleet.agent_index(2), fleet.agent_index(3)};
  ASSERT_TRUE(fleet.until(
      [&] {
        return std::all_of(neighbours.begin(), neighbours.end(), [&](std::uint32_t node) {
          return !fleet.node(node).observer->lost.empty();
        });
      },
      20s, 1ms));
  EXPECT_LE(fleet.clock().now() - died, deadline_of(GetParam()));
  for (const std::uint32_t node : neighbours) {
    EXPECT_EQ(fleet.node(node).observer->lost[0].member, "agent-0");
    EXPECT_EQ(fleet.node(node).observer->lost[0].error.code, ErrorCode::kPeerLost);
  }
  // What the dead parent might still write to is set aside, nothing else is.
  EXPECT_LE(fleet.agent(2).core->quarantined(), 4U);
  fleet.leave_and_expect_all_slots_back();
}

INSTANTIATE_TEST_SUITE_P(Points, RelayDeath,
                         testing::Values(Death{true, 0}, Death{false, 0}, Death{true, 50},
                                         Death{false, 50}, Death{true, 100}, Death{false, 100}));

// B-035: a full queue and a dead peer look the same.
TEST(RelayFailure, APeerThatAcceptsNoPostIsLostAtTheDeadlineAndNamed) {
  RelayFleet fleet({.shape = "star", .agents = 2});
  fleet.enter_all();
  ASSERT_TRUE(fleet.stream(5));
  fleet.network().refuse_posts(*fleet.agent(0).fabric, true);
  const TimePoint start = fleet.clock().now();
  ASSERT_TRUE(fleet.until([&] { return !fleet.node(0).observer->lost.empty(); }, 20s, 1ms));
  EXPECT_EQ(fleet.node(0).observer->lost[0].member, "agent-0");
  EXPECT_EQ(fleet.node(0).observer->lost[0].error.code, ErrorCode::kPeerLost);
  EXPECT_GE(fleet.clock().now() - start, 3s);
  EXPECT_LE(fleet.clock().now() - start, 3500ms);
  for (int i = 0; i < 5; ++i) fleet.inject(0);
  EXPECT_TRUE(fleet.until([&] { return fleet.agent(1).observer->frames.size() == 10; }));
}

TEST(RelayFailure, RefusedPostsThatResolveInTimeAreNoFailure) {
  RelayFleet fleet({.agents = 2});
  fleet.enter_all();
  ASSERT_TRUE(fleet.stream(5));
  fleet.network().refuse_posts(*fleet.agent(1).fabric, true);
  for (int i = 0; i < 5; ++i) fleet.inject(0);
  fleet.run_for(200ms);
  EXPECT_EQ(fleet.agent(1).observer->frames.size(), 5U);
  fleet.network().refuse_posts(*fleet.agent(1).fabric, false);
  EXPECT_TRUE(fleet.until([&] { return fleet.complete(); }));
  EXPECT_TRUE(fleet.agent(0).observer->lost.empty());
}

TEST(RelayFailure, AFreezeWithinTheDeadlineIsHealed) {
  RelayFleet fleet({.agents = 3});
  fleet.enter_all();
  ASSERT_TRUE(fleet.stream(5));
  fleet.network().freeze(*fleet.agent(1).fabric, true);
  for (int i = 0; i < 10; ++i) fleet.inject(0);
  fleet.run_for(2500ms);
  fleet.network().freeze(*fleet.agent(1).fabric, false);
  EXPECT_TRUE(fleet.until([&] { return fleet.complete(); }));
  for (std::uint32_t i = 0; i < fleet.size(); ++i) {
    EXPECT_TRUE(fleet.node(i).observer->lost.empty());
  }
  fleet.leave_and_expect_all_slots_back();
}

TEST(RelayFailure, ANeighbourThatNeverConnectsIsNamedAtTheConnectDeadline) {
  RelayFleet fleet({.agents = 2});
  fleet.enter(0);
  fleet.enter(1);  // agent-0; agent-1 never enters
  EXPECT_TRUE(fleet.until([&] { return !fleet.agent(0).observer->lost.empty(); }, 11s, 1ms));
  EXPECT_EQ(fleet.agent(0).observer->lost[0].member, "agent-1");
  EXPECT_EQ(fleet.agent(0).observer->lost[0].error.code, ErrorCode::kPeerLost);
}

// Null-context errors name nobody: everybody is probed, nobody is lost.
TEST(RelayFailure, TroubleWithoutAContextLosesNobodyWhoAnswers) {
  RelayFleet fleet({.agents = 2});
  fleet.enter_all();
  std::uint32_t sent = 0;
  EXPECT_TRUE(fleet.until([&] {
    if (fleet.network().draw(20) == 0) fleet.network().report_trouble(*fleet.node(1).fabric);
    if (sent < 100) sent += fleet.inject(0) ? 1 : 0;
    return sent == 100 && fleet.complete();
  }));
  EXPECT_GT(fleet.node(1).core->counters().fabric_troubles, 0U);
  EXPECT_TRUE(fleet.node(1).observer->lost.empty());
}

// The same address with a new process id is a new peer: its messages mean nothing to old links.
TEST(RelayFailure, AStrangerOnAKnownAddressIsNotThePeer) {
  RelayFleet fleet({.agents = 1});
  wire::Plan other = fleet.plan();
  other.nodes[0].process.value = 4711;  // the plan names another process at the producer's address
  ASSERT_TRUE(fleet.agent(0).core->enter(other, NodeIndex{1}));
  fleet.enter(0);
  fleet.inject(0);
  EXPECT_TRUE(fleet.until([&] { return !fleet.agent(0).observer->lost.empty(); }, 11s, 1ms));
  EXPECT_TRUE(fleet.agent(0).observer->frames.empty());
}

// A parent that was declared lost comes back and finishes its old writes.
TEST(RelayFailure, AZombieWriteReachesOnlyQuarantinedSlots) {
  for (const bool stale_writes_land : {true, false}) {
    FakeOptions fake;
    fake.stale_writes_land = stale_writes_land;
    fake.early_completion = true;
    RelayFleet fleet({.fake = fake, .agents = 1});
    fleet.enter_all();
    ASSERT_TRUE(fleet.stream(3));
    // Four writes are under way when all goes silent.
    fleet.network().hold_writes(*fleet.agent(0).fabric, true);
    for (int i = 0; i < 4; ++i) fleet.inject(0);
    fleet.run_for(50ms);
    fleet.network().freeze(*fleet.node(0).fabric, true);
    ASSERT_TRUE(fleet.until([&] { return !fleet.agent(0).observer->lost.empty(); }, 20s, 1ms));
    EXPECT_EQ(fleet.agent(0).observer->lost[0].member, "producer-0");
    EXPECT_EQ(fleet.agent(0).core->quarantined(), 4U);
    fleet.agent(0).core->leave(fleet.plan().refit);
    ASSERT_TRUE(fleet.until([&] { return fleet.agent(0).core->idle(); }));
    // Every slot that anybody could use now, filled.
    SlabPool& pool = *fleet.agent(0).pool;
    std::vector<Lease> leases;
    while (auto lease = pool.try_acquire()) {
      std::memset(lease->frame_room().data(), 0x77, lease->frame_room().size());
      leases.push_back(std::move(*lease));
    }
    EXPECT_EQ(leases.size(), 26U);
    fleet.network().freeze(*fleet.node(0).fabric, false);
    fleet.network().hold_writes(*fleet.agent(0).fabric, false);
    fleet.run_for(100ms);
    for (const Lease& lease : leases) {
      const auto room = lease.frame_room();
      EXPECT_TRUE(std::all_of(room.begin(), room.end(),
                              [](std::byte byte) { return byte == std::byte{0x77}; }));
    }
    EXPECT_EQ(fleet.agent(0).observer->frames.size(), 3U);
    leases.clear();
  }
}

// The doorbell of a lost write comes after its slot was given up: the frame came another way.
TEST(RelayFailure, ALateWriteAfterItsSlotWasRetiredChangesNothing) {
  FakeOptions fake;
  fake.early_completion = true;
  RelayFleet fleet({.fake = fake, .agents = 1, .slots_per_link = 4});
  fleet.enter_all();
  ASSERT_TRUE(fleet.stream(2));
  fleet.network().hold_writes(*fleet.agent(0).fabric, true);
  fleet.inject(0);
  fleet.run_for(4s);  // locally complete, never seen: given up, to be sent again
  fleet.network().hold_writes(*fleet.agent(0).fabric, false);
  EXPECT_TRUE(fleet.until([&] { return fleet.complete(); }));
  EXPECT_TRUE(fleet.stream(20));
  fleet.expect_each_frame_once();
  fleet.leave_and_expect_all_slots_back();
  EXPECT_EQ(fleet.agent(0).core->quarantined(), 0U);
}

// B-050: the rail closes in the middle, again and again; every slot is back.
TEST(RelayFailure, ClosingInTheMiddleAccountsForEverySlot) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    FakeOptions fake;
    fake.seed = seed;
    RelayFleet fleet({.fake = fake, .shape = "kary(2)", .producers = 2, .agents = 3});
    fleet.enter_all();
    const std::uint64_t steps = fleet.network().draw(60);
    for (std::uint64_t i = 0; i < steps; ++i) {
      fleet.inject(0);
      fleet.inject(1);
      fleet.turn();
    }
    const auto victim = static_cast<std::uint32_t>(fleet.network().draw(fleet.size()));
    RelayFleet::Node& node = fleet.node(victim);
    node.core->close();
    node.dead = true;
    EXPECT_EQ(node.pool->free_count(), 32U) << "seed " << seed;
    const RelayCounters& counters = node.core->counters();
    EXPECT_EQ(counters.frames_posted, counters.frames_completed + counters.frames_abandoned);
    fleet.network().run(200);
  }
}

TEST(RelayFailure, LeavingInTheMiddleIsOrderlyOnBothSides) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    FakeOptions fake;
    fake.seed = seed;
    RelayFleet fleet({.fake = fake, .shape = "kary(2)", .producers = 2, .agents = 5, .slots = 40});
    fleet.enter_all();
    const std::uint64_t steps = fleet.network().draw(80);
    for (std::uint64_t i = 0; i < steps; ++i) {
      fleet.inject(0);
      fleet.inject(1);
      fleet.turn();
    }
    // One leaves long before the others.
    fleet.node(static_cast<std::uint32_t>(fleet.network().draw(fleet.size())))
        .core->leave(fleet.plan().refit);
    fleet.run_for(300ms);
    fleet.leave_and_expect_all_slots_back();
    for (std::uint32_t i = 0; i < fleet.size(); ++i) {
      EXPECT_EQ(fleet.node(i).core->quarantined(), 0U) << "seed " << seed << " node " << i;
      EXPECT_TRUE(fleet.node(i).observer->lost.empty()) << "seed " << seed << " node " << i;
    }
  }
}

// The rail's endpoint is closed and opened again when too much is set aside.
TEST(RelayFailure, ARailWithTooMuchInQuarantineIsRecycledBetweenRefits) {
  RelayFleet fleet({.agents = 1, .slots = 12, .recycle = true});
  fleet.enter_all();
  ASSERT_TRUE(fleet.stream(3));
  fleet.network().freeze(*fleet.node(0).fabric, true);
  ASSERT_TRUE(fleet.until([&] { return !fleet.agent(0).observer->lost.empty(); }, 20s, 1ms));
  EXPECT_EQ(fleet.agent(0).core->quarantined(), 4U);
  fleet.agent(0).core->leave(fleet.plan().refit);
  EXPECT_TRUE(fleet.until([&] { return fleet.agent(0).pool->free_count() == 10; }));
  EXPECT_EQ(fleet.agent(0).core->quarantined(), 0U);
  // The fake gives every rail a new address, which must be announced; then it serves again.
  EXPECT_EQ(fleet.agent(0).observer->rails_changed, 1);
  fleet.network().freeze(*fleet.node(0).fabric, false);
  fleet.node(0).core->leave(fleet.plan().refit);
  ASSERT_TRUE(fleet.until([&] { return fleet.node(0).core->idle(); }));
  fleet.agent(0).fabric = &fleet.agent(0).core->fabric();
  fleet.plan() = fleet.make_plan(2);
  fleet.agent(0).observer->frames.clear();
  fleet.restart_sequences();
  fleet.enter_all();
  EXPECT_TRUE(fleet.stream(10));
  fleet.leave_and_expect_all_slots_back();
}

// One tree of two between the same nodes is given up by the parent: the child hears of it.
TEST(RelayFailure, ALinkThatItsParentGaveUpIsLostThoughThePeerLives) {
  RelayFleet fleet({.shape = "chain", .producers = 2, .agents = 4});
  fleet.enter_all();
  // Agent-2 is agent-1's child in both trees and lets nothing of producer 0 go.
  fleet.agent(2).observer->hold_producer = 0;
  EXPECT_TRUE(fleet.until(
      [&] {
        fleet.inject(0);
        return !fleet.agent(2).observer->lost.empty();
      },
      30s, 1ms));
  EXPECT_EQ(fleet.agent(1).observer->lost.at(0).member, "agent-2");
  EXPECT_EQ(fleet.agent(1).observer->lost.at(0).error.code, ErrorCode::kTimeout);
  EXPECT_EQ(fleet.agent(2).observer->lost.at(0).member, "agent-1");
  const auto before = fleet.agent(2).observer->frames.size();
  fleet.inject(1);
  EXPECT_TRUE(fleet.until([&] { return fleet.agent(2).observer->frames.size() > before; }));
}

// B-071: a reader that vanishes lets go of what it held.
TEST(RelayFailure, AVanishedChildReleasesTheFramesItHeld) {
  RelayFleet fleet({.shape = "star", .agents = 2});
  fleet.enter_all();
  ASSERT_TRUE(fleet.stream(3));
  fleet.network().freeze(*fleet.agent(1).fabric, true);
  for (int i = 0; i < 4; ++i) fleet.inject(0);
  ASSERT_TRUE(fleet.until([&] { return !fleet.node(0).observer->lost.empty(); }, 20s, 1ms));
  // Writes that never came back keep their memory; the others are free at once.
  EXPECT_TRUE(fleet.until([&] {
    return fleet.node(0).pool->free_count() + RelayFleet::under_way(fleet.node(0)) == 30;
  }));
  EXPECT_TRUE(fleet.node(0).core->drained(fleet.plan().refit));
}

// The link of an only child goes down and the provider holds on to what was posted to it: its
// parent still has slots for what comes, and is not taken for lost itself.
TEST(RelayFailure, WritesThatAreStuckAtAnOnlyChildDoNotStopItsParent) {
  for (const std::uint32_t slots : {3U, 4U, 8U}) {
    FleetOptions options{.shape = "chain", .agents = 2, .slots_per_link = slots};
    options.fake.early_completion = false;
    RelayFleet fleet(options);
    fleet.enter_all();
    ASSERT_TRUE(fleet.stream(10));
    fleet.network().freeze(*fleet.agent(1).fabric, true);
    ASSERT_TRUE(fleet.until(
        [&] {
          if (fleet.injected(0) < 60) fleet.inject(0);
          return fleet.agent(0).observer->frames.size() == 60 &&
                 !fleet.agent(0).observer->lost.empty();
        },
        30s, 1ms))
        << slots;
    EXPECT_EQ(fleet.agent(0).observer->lost[0].member, "agent-1");
    EXPECT_TRUE(fleet.node(0).observer->lost.empty()) << slots;
    EXPECT_EQ(fleet.node(0).core->counters().demotions, 0U) << slots;
    fleet.network().freeze(*fleet.agent(1).fabric, false);
    fleet.leave_and_expect_all_slots_back();
  }
}

}  // namespace
}  // namespace weft::transport
