// SPDX-License-Identifier: Apache-2.0
// Relays on the fake fabric: what must hold when nothing is broken, and with every bad manner that
// the strictest contract allows.
#include <gtest/gtest.h>

#include <set>

#include "support/relay_fleet.hpp"

namespace weft::transport {
namespace {

using namespace std::chrono_literals;

struct ShapeCase {
  const char* shape;
  std::uint32_t producers;
  std::uint32_t agents;
};

void PrintTo(const ShapeCase& shape, std::ostream* out) {
  *out << shape.shape << " " << shape.producers << "->" << shape.agents;
}

class RelayShapes : public testing::TestWithParam<ShapeCase> {};

TEST_P(RelayShapes, EveryAgentGetsEveryFrameOnce) {
  RelayFleet fleet({.shape = GetParam().shape,
                    .producers = GetParam().producers,
                    .agents = GetParam().agents,
                    .slots = 64});
  fleet.enter_all();
  EXPECT_TRUE(fleet.stream(50));
  fleet.expect_each_frame_once();
  fleet.leave_and_expect_all_slots_back();
  for (std::uint32_t i = 0; i < fleet.size(); ++i) {
    for (const auto& lost : fleet.node(i).observer->lost) ADD_FAILURE() << lost.error.message();
    EXPECT_TRUE(fleet.node(i).observer->faults.empty());
    EXPECT_EQ(fleet.node(i).core->quarantined(), 0U);
  }
  EXPECT_FALSE(fleet.network().overrun());
}

INSTANTIATE_TEST_SUITE_P(All, RelayShapes,
                         testing::Values(ShapeCase{"chain", 1, 1}, ShapeCase{"chain", 1, 4},
                                         ShapeCase{"star", 1, 5}, ShapeCase{"kary(2)", 1, 7},
                                         ShapeCase{"binomial", 1, 8}, ShapeCase{"chain", 3, 4},
                                         ShapeCase{"kary(2)", 4, 7}, ShapeCase{"star", 2, 3}));

// Every shape, all producers at once, three credits: nothing waits in a circle.
TEST(RelayCore, NoShapeWaitsInACircleWithThreeCreditsAndAllProducersAtOnce) {
  for (const char* shape : {"star", "chain", "kary(2)", "kary(3)", "binomial", "pipeline",
                            "striped(2)", "striped(3)", "regional(kary(2), chain)", "auto"}) {
    for (const std::uint32_t agents : {5U, 7U}) {
      SCOPED_TRACE(std::string(shape) + " over " + std::to_string(agents));
      RelayFleet fleet(
          {.shape = shape, .producers = 4, .agents = agents, .slots = 90, .slots_per_link = 3});
      fleet.enter_all();
      ASSERT_TRUE(fleet.stream(24));
      fleet.expect_each_frame_once();
      fleet.leave_and_expect_all_slots_back();
    }
  }
}

// Trees over the same nodes run both ways between neighbours; with three credits each, frames of
// one tree must not wait for another's.
TEST(RelayCore, ManyTreesWithThreeCreditsDoNotWaitInACircle) {
  RelayFleet fleet(
      {.shape = "chain", .producers = 6, .agents = 6, .slots = 36, .slots_per_link = 3});
  fleet.enter_all();
  EXPECT_TRUE(fleet.stream(40));
  fleet.expect_each_frame_once();
  fleet.leave_and_expect_all_slots_back();
}

class RelayBadManners : public testing::TestWithParam<std::uint64_t> {};

TEST_P(RelayBadManners, EveryFrameArrivesOnceWhateverIsLostOrRepeated) {
  SCOPED_TRACE("seed " + std::to_string(GetParam()) + ": --gtest_filter='*RelayBadManners*'");
  FakeOptions fake;
  fake.seed = GetParam();
  fake.lost_doorbells = 100;
  fake.duplicate_doorbells = 100;
  fake.lost_messages = 100;
  fake.duplicate_messages = 100;
  fake.again = 200;
  fake.failed_writes = 10;  // of 1000; a link that loses one in each of its 4 slots is given up
  fake.early_completion = GetParam() % 2 == 0;
  fake.virtual_addresses = GetParam() % 3 == 0;
  fake.writes_in_flight_max = 5;
  RelayFleet fleet({.fake = fake, .shape = "kary(2)", .producers = 2, .agents = 5, .slots = 48});
  fleet.enter_all();
  EXPECT_TRUE(fleet.stream(40, 300s));
  fleet.expect_each_frame_once();
  for (std::uint32_t i = 0; i < fleet.size(); ++i) {
    for (const auto& lost : fleet.node(i).observer->lost) ADD_FAILURE() << lost.error.message();
    EXPECT_TRUE(fleet.node(i).observer->faults.empty());
  }
  fleet.leave_and_expect_all_slots_back();
  EXPECT_EQ(fleet.network().empty_writes(), 0U);
}

INSTANTIATE_TEST_SUITE_P(Seeds, RelayBadManners, testing::Range<std::uint64_t>(1, 21));

TEST(RelayCore, LostDoorbellsAreHealedByTheParentsTable) {
  FakeOptions fake;
  fake.lost_doorbells = 1000;
  RelayFleet fleet({.fake = fake, .agents = 2});
  fleet.enter_all();
  EXPECT_TRUE(fleet.stream(20));
  EXPECT_EQ(fleet.agent(0).core->counters().frames_healed, 20U);
  fleet.expect_each_frame_once();
}

// The very memory that received is what is posted to the child.
TEST(RelayCore, ForwardsTheMemoryThatReceived) {
  RelayFleet fleet({.agents = 3});
  std::map<std::uint64_t, std::multiset<const std::byte*>> posted;  // by reader
  fleet.network().posted_write = [&](const RemoteOperation& write) {
    posted[write.peer.value].insert(write.bytes.data());
  };
  fleet.enter_all();
  EXPECT_TRUE(fleet.stream(100));
  for (std::uint32_t i = 0; i < 2; ++i) {
    const auto& received = fleet.agent(i).observer->addresses;
    const std::multiset<const std::byte*> from(received.begin(), received.end());
    const std::uint64_t child =
        wire::load_le<std::uint64_t>(fleet.agent(i + 1).fabric->local_address().data());
    EXPECT_EQ(from.size(), 100U);
    EXPECT_EQ(from, posted[child]);
  }
}

TEST(RelayCore, ACorruptFrameIsReportedAndAskedForAgain) {
  RelayFleet fleet({.agents = 3});
  int writes = 0;
  fleet.network().on_write([&](std::span<std::byte> bytes) {
    if (++writes == 5) bytes[2000] ^= std::byte{1};
  });
  fleet.enter_all();
  EXPECT_TRUE(fleet.stream(20));
  fleet.expect_each_frame_once();
  std::size_t faults = 0;
  for (std::uint32_t i = 0; i < fleet.size(); ++i) {
    for (const auto& fault : fleet.node(i).observer->faults) {
      EXPECT_EQ(fault.error.code, ErrorCode::kCorruptPayload);
      ++faults;
    }
  }
  EXPECT_EQ(faults, 1U);
  fleet.leave_and_expect_all_slots_back();
}

TEST(RelayCore, ALinkThatOnlyCorruptsIsLostAndNamed) {
  RelayFleet fleet({.agents = 1});
  fleet.network().on_write([](std::span<std::byte> bytes) { bytes[500] ^= std::byte{1}; });
  fleet.enter_all();
  fleet.inject(0);
  EXPECT_TRUE(fleet.until([&] { return !fleet.node(0).observer->lost.empty(); }));
  EXPECT_EQ(fleet.node(0).observer->lost[0].member, "agent-0");
  EXPECT_EQ(fleet.node(0).observer->lost[0].error.code, ErrorCode::kCorruptPayload);
  EXPECT_TRUE(fleet.agent(0).observer->frames.empty());
  fleet.leave_and_expect_all_slots_back();
}

TEST(RelayCore, RefusesFramesOfAnotherIdentityBeforeTheirPayload) {
  for (int what = 0; what < 4; ++what) {
    RelayFleet fleet({.agents = 2});
    fleet.enter_all();
    wire::Plan foreign = fleet.plan();
    std::uint32_t producer = 0;
    if (what == 0) foreign.fleet.low ^= 1;
    if (what == 1) foreign.refit.attempt += 1;
    if (what == 2) foreign.base.lattice.high ^= 1;
    if (what == 3) producer = 1;
    SharedSlot frame = make_frame(*fleet.node(0).pool->try_acquire(), foreign, producer, 0);
    fleet.node(0).core->inject({fleet.plan().refit, ProducerIndex{0}, frame});
    ASSERT_TRUE(fleet.until([&] { return !fleet.agent(0).observer->faults.empty(); }));
    EXPECT_EQ(fleet.agent(0).observer->faults[0].error.code, ErrorCode::kProtocol);
    EXPECT_EQ(fleet.agent(0).observer->faults[0].member, "producer-0");
    EXPECT_TRUE(fleet.stream(5));  // the link goes on
    EXPECT_EQ(fleet.agent(1).observer->faults.size(), 0U);
    frame.drop();
    fleet.leave_and_expect_all_slots_back();
  }
}

// B-068: one sequence, two bodies.
TEST(RelayCore, TheSameSequenceWithOtherBytesIsAConflictAndGoesNoFurther) {
  RelayFleet fleet({.agents = 2});
  fleet.enter_all();
  ASSERT_TRUE(fleet.stream(3));
  SharedSlot other = make_frame(*fleet.node(0).pool->try_acquire(), fleet.plan(), 0, 1, 777);
  fleet.node(0).core->inject({fleet.plan().refit, ProducerIndex{0}, std::move(other)});
  ASSERT_TRUE(fleet.until([&] { return !fleet.agent(0).observer->faults.empty(); }));
  EXPECT_EQ(fleet.agent(0).observer->faults[0].error.code, ErrorCode::kPayloadConflict);
  EXPECT_TRUE(fleet.stream(3));
  EXPECT_TRUE(fleet.agent(1).observer->faults.empty());
  fleet.expect_each_frame_once();
}

TEST(RelayCore, ARepeatedFrameIsTakenOnceAndForwardedOnce) {
  RelayFleet fleet({.agents = 2});
  fleet.enter_all();
  ASSERT_TRUE(fleet.stream(3));
  SharedSlot again = make_frame(*fleet.node(0).pool->try_acquire(), fleet.plan(), 0, 1);
  fleet.node(0).core->inject({fleet.plan().refit, ProducerIndex{0}, std::move(again)});
  EXPECT_TRUE(fleet.until([&] { return fleet.agent(0).core->counters().frames_repeated == 1; }));
  EXPECT_TRUE(fleet.stream(3));
  EXPECT_EQ(fleet.agent(0).core->counters().frames_posted, 6U);
  fleet.expect_each_frame_once();
}

// B-037: a child may know the plan long before its parent, and the other way round.
TEST(RelayCore, NodesMayEnterInAnyOrder) {
  RelayFleet fleet({.agents = 3});
  fleet.enter(3);
  fleet.run_for(500ms);
  fleet.enter(0);
  EXPECT_TRUE(fleet.inject(0));
  fleet.run_for(500ms);
  fleet.enter(2);
  fleet.run_for(500ms);
  fleet.enter(1);
  EXPECT_TRUE(fleet.stream(10));
  fleet.expect_each_frame_once();
}

// B-037: refits with equal producers and sequences do not mix.
TEST(RelayCore, TwoOpenRefitsWithEqualNumbersDoNotMix) {
  RelayFleet fleet({.agents = 2, .slots = 64});
  fleet.enter_all();
  ASSERT_TRUE(fleet.stream(5));
  const wire::Plan first = fleet.plan();
  fleet.plan() = fleet.make_plan(2);
  fleet.enter_all();
  for (std::uint32_t sequence = 0; sequence < 5; ++sequence) {
    for (const wire::Plan& plan : {first, fleet.plan()}) {
      SharedSlot frame = make_frame(*fleet.node(0).pool->try_acquire(), plan, 0, 100 + sequence,
                                    1000 + plan.refit.attempt);
      fleet.node(0).core->inject({plan.refit, ProducerIndex{0}, std::move(frame)});
    }
  }
  EXPECT_TRUE(fleet.until([&] { return fleet.agent(1).core->counters().frames_received == 15; }));
  EXPECT_TRUE(fleet.agent(1).observer->faults.empty());
  fleet.node(0).core->leave(first.refit);
  fleet.agent(0).core->leave(first.refit);
  fleet.agent(1).core->leave(first.refit);
  fleet.leave_and_expect_all_slots_back();
}

// B-065: nobody waits for a child that takes nothing, memory stays what it is, and it is named.
TEST(RelayCore, AChildThatTakesNothingHoldsBackNobodyAndIsDroppedAtTheDeadline) {
  RelayFleet fleet({.shape = "star", .agents = 2, .slots = 16});
  fleet.agent(0).observer->hold = true;  // never gives a slot back
  fleet.enter_all();
  std::uint32_t injected = 0;
  EXPECT_TRUE(fleet.until(
      [&] {
        injected += injected < 200 && fleet.inject(0) ? 1 : 0;
        return !fleet.node(0).observer->lost.empty();
      },
      30s, 1ms));
  EXPECT_EQ(injected, 200U);
  EXPECT_EQ(fleet.agent(1).observer->frames.size(), 200U);
  EXPECT_EQ(fleet.node(0).observer->lost.at(0).member, "agent-0");
  EXPECT_EQ(fleet.node(0).observer->lost.at(0).error.code, ErrorCode::kTimeout);
  EXPECT_LE(fleet.agent(0).observer->frames.size(), 16U);
  fleet.agent(0).observer->held.clear();
  for (int i = 0; i < 10; ++i) injected += fleet.inject(0) ? 1 : 0;
  EXPECT_TRUE(fleet.until([&] { return fleet.agent(1).observer->frames.size() == injected; }));
}

TEST(RelayCore, DrainedOnlyWhenEveryChildHasTakenEverything) {
  RelayFleet fleet({.agents = 1});
  fleet.enter_all();
  fleet.network().hold_writes(*fleet.agent(0).fabric, true);
  fleet.inject(0);
  fleet.run_for(300ms);
  EXPECT_FALSE(fleet.node(0).core->drained(fleet.plan().refit));
  fleet.network().hold_writes(*fleet.agent(0).fabric, false);
  EXPECT_TRUE(fleet.until([&] { return fleet.node(0).core->drained(fleet.plan().refit); }));
  EXPECT_TRUE(fleet.complete());
}

// B-071: the producer's memory lives until the slow child has it, though the fast one is done.
TEST(RelayCore, FramesLiveUntilTheSlowestChildHasThem) {
  RelayFleet fleet({.shape = "star", .agents = 2});
  fleet.enter_all();
  fleet.network().hold_writes(*fleet.agent(1).fabric, true);
  fleet.inject(0);
  ASSERT_TRUE(fleet.until([&] { return fleet.agent(0).observer->frames.size() == 1; }));
  fleet.run_for(200ms);
  EXPECT_EQ(fleet.node(0).pool->free_count(), 29U);
  fleet.network().hold_writes(*fleet.agent(1).fabric, false);
  EXPECT_TRUE(fleet.until([&] { return fleet.node(0).pool->free_count() == 30; }));
  EXPECT_TRUE(fleet.complete());
}

TEST(RelayCore, ASmallQueueAndFewWritesInFlightAreEnough) {
  FakeOptions fake;
  fake.writes_in_flight_max = 2;
  fake.queue_depth = 64;
  RelayFleet fleet({.fake = fake, .shape = "kary(2)", .agents = 7});
  fleet.enter_all();
  EXPECT_TRUE(fleet.stream(50));
  EXPECT_FALSE(fleet.network().overrun());
}

TEST(RelayCore, RefusesAPlanThatDoesNotFit) {
  RelayFleet fleet({.agents = 2});
  const auto refused = [&](auto&& spoil) {
    wire::Plan plan = fleet.plan();
    spoil(plan);
    const Status entered = fleet.agent(0).core->enter(plan, NodeIndex{1});
    return !entered && entered.error().code == ErrorCode::kProtocol;
  };
  EXPECT_TRUE(refused([](wire::Plan& plan) { plan.nodes.clear(); }));
  EXPECT_TRUE(refused([](wire::Plan& plan) { plan.nodes[1].process.value ^= 1; }));
  EXPECT_TRUE(refused([](wire::Plan& plan) { plan.trees.clear(); }));
  EXPECT_TRUE(refused([](wire::Plan& plan) { plan.trees[0].nodes.pop_back(); }));
  EXPECT_TRUE(refused([](wire::Plan& plan) { plan.trees[0].nodes[1].parent = NodeIndex{9}; }));
  EXPECT_TRUE(refused([](wire::Plan& plan) { plan.trees[0].nodes[1].children = {NodeIndex{1}}; }));
  EXPECT_EQ(fleet.agent(0).pool->free_count(), 30U);
}

TEST(RelayCore, NamesBothSidesWhenThereIsNoCommonProtocol) {
  RelayFleet fleet({.agents = 1});
  fleet.plan().nodes[0].rails[0].protocol = 4711;
  fleet.plan().nodes[0].rails[0].provider = "efa";
  const Status entered = fleet.agent(0).core->enter(fleet.plan(), NodeIndex{1});
  ASSERT_FALSE(entered);
  EXPECT_EQ(entered.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(entered.error().detail.find("efa"), std::string::npos);
  EXPECT_NE(entered.error().detail.find("fake"), std::string::npos);
  EXPECT_EQ(fleet.agent(0).pool->free_count(), 30U);
}

TEST(RelayCore, TooManyTreesForTheSlabIsAResourceLimitAndLeavesNothingBehind) {
  RelayFleet fleet({.producers = 4, .agents = 2, .slots = 11});
  const Status entered = fleet.agent(0).core->enter(fleet.plan(), NodeIndex{4});
  ASSERT_FALSE(entered);
  EXPECT_EQ(entered.error().code, ErrorCode::kResourceLimit);
  EXPECT_EQ(fleet.agent(0).pool->free_count(), 11U - 2);
}

// B-041: a registration that fails in the middle.
TEST(RelayCore, AFailedRegistrationIsALimitAndLeavesNothingBehind) {
  FakeOptions fake;
  RelayFleet fleet({.fake = fake, .producers = 3, .agents = 2, .slots = 32});
  fleet.network().options().registrations_max = 4;  // slab, reserve and two of three ranges
  const Status entered = fleet.agent(0).core->enter(fleet.plan(), NodeIndex{3});
  ASSERT_FALSE(entered);
  EXPECT_EQ(entered.error().code, ErrorCode::kResourceLimit);
  EXPECT_EQ(fleet.agent(0).pool->free_count(), 30U);
  EXPECT_EQ(static_cast<FakeFabric&>(*fleet.agent(0).fabric).registration_count(), 2U);
}

TEST(RelayCore, EnteringTwiceAndLeavingTwiceHaveNoSecondEffect) {
  RelayFleet fleet({.agents = 2});
  fleet.enter_all();
  const auto free = fleet.agent(0).pool->free_count();
  fleet.enter_all();
  EXPECT_EQ(fleet.agent(0).pool->free_count(), free);
  EXPECT_TRUE(fleet.stream(5));
  fleet.leave_and_expect_all_slots_back();
  fleet.leave_and_expect_all_slots_back();
}

}  // namespace
}  // namespace weft::transport
