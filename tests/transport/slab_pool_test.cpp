// SPDX-License-Identifier: Apache-2.0
#include "transport/buffer/slab_pool.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

namespace weft::transport {
namespace {

using namespace std::chrono_literals;

// Remembers the last event's fields.
// Threads: one at a time.
class LastEvent final : public EventSink {
 public:
  void report(Severity, std::string_view name, std::span<const EventField> fields) override {
    text = std::string(name);
    for (const EventField& field : fields) text += " " + std::string(field.key) + "=" + field.value;
  }
  void count(std::string_view, std::uint64_t) override {}
  std::string text;
};

std::unique_ptr<SlabPool> open_pool(std::uint32_t slot_count) {
  NullEventSink events;
  auto pool = SlabPool::open({.slot_count = slot_count, .slot_bytes = 16 * 1024}, events);
  return pool ? std::move(*pool) : nullptr;
}

TEST(SlabPool, LeasesEverySlotOnceAndTakesItBack) {
  const auto pool = open_pool(70);
  ASSERT_TRUE(pool);
  for (int round = 0; round < 2; ++round) {
    std::vector<Lease> leases;
    std::set<std::uint32_t> seen;
    while (auto lease = pool->try_acquire()) {
      seen.insert(lease->slot_index());
      leases.push_back(std::move(*lease));
    }
    EXPECT_EQ(seen.size(), 70U);
    EXPECT_EQ(pool->free_count(), 0U);
  }
  EXPECT_EQ(pool->free_count(), 70U);
}

TEST(SlabPool, ASharedSlotIsFreeOnlyAfterItsLastDrop) {
  const auto pool = open_pool(1);
  SharedSlot first = std::move(*pool->try_acquire()).share(limits::kFrameHeaderBytes);
  SharedSlot second = first;
  first.drop();
  EXPECT_FALSE(pool->try_acquire());
  second.drop();
  EXPECT_TRUE(pool->try_acquire());
}

TEST(SlabPool, AcquireGivesUpAtItsTimeout) {
  const auto pool = open_pool(1);
  const auto lease = pool->try_acquire();
  const auto refused = pool->acquire(5ms);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kTimeout);
}

TEST(SlabPool, AcquireWakesWhenAnotherThreadDrops) {
  const auto pool = open_pool(1);
  for (int round = 0; round < 200; ++round) {
    Lease held = std::move(*pool->try_acquire());
    std::thread dropper([lease = std::move(held)]() mutable { lease.drop(); });
    const auto lease = pool->acquire(10s);
    dropper.join();
    ASSERT_TRUE(lease);
  }
}

TEST(SlabPool, FrameRoomIsAlignedSoThatPayloadPagesAre) {
  const auto pool = open_pool(2);
  const auto lease = pool->try_acquire();
  const auto room = lease->frame_room();
  const auto address = reinterpret_cast<std::uintptr_t>(room.data());
  EXPECT_EQ((address + limits::kFrameHeaderBytes) % 4096, 0U);
  EXPECT_EQ(room.size(), 16U * 1024 - 4096 + 128 - 64);
}

TEST(SlabPool, RangesAndLeasesNeverShareASlot) {
  const auto pool = open_pool(16);
  const auto lease = pool->try_acquire();
  EXPECT_EQ(lease->slot_index(), 15U);
  EXPECT_EQ(pool->take_range(8), 0U);
  EXPECT_FALSE(pool->take_range(8));
  EXPECT_EQ(pool->free_count(), 7U);  // a run that was too short has been put back
  EXPECT_EQ(pool->take_range(7), 8U);
  EXPECT_FALSE(pool->try_acquire());
  for (std::uint32_t slot = 0; slot < 15; ++slot) pool->release(slot, false);
  EXPECT_EQ(pool->free_count(), 15U);
}

TEST(SlabPool, ARangedSlotReturnsToItsLinkAndNotToTheFree) {
  const auto pool = open_pool(8);
  ASSERT_EQ(pool->take_range(4), 0U);
  SharedSlot frame = Lease(&pool->slot(2)).share(limits::kFrameHeaderBytes);
  EXPECT_EQ(pool->take_returned(0), 0U);
  frame.drop();
  EXPECT_EQ(pool->take_returned(0), 0b100U);
  EXPECT_EQ(pool->take_returned(0), 0U);
  EXPECT_EQ(pool->free_count(), 4U);
}

TEST(SlabPool, ASlotReleasedInUseIsFreeAtItsLastDropOnce) {
  const auto pool = open_pool(4);
  for (int round = 0; round < 500; ++round) {
    const auto first = pool->take_range(1);
    ASSERT_TRUE(first);
    SharedSlot frame = Lease(&pool->slot(*first)).share(limits::kFrameHeaderBytes);
    std::thread dropper([slot = std::move(frame)]() mutable { slot.drop(); });
    pool->release(*first, true);
    dropper.join();
    ASSERT_EQ(pool->free_count(), 4U);
  }
}

TEST(SlabPool, SaysWhichPagesItGotAndNeedsNoHugeOnes) {
  LastEvent events;
  const auto pool = SlabPool::open({.slot_count = 4, .slot_bytes = limits::kSlotBytes}, events);
  ASSERT_TRUE(pool);
  EXPECT_NE(events.text.find("slab_opened bytes=4194304 slots=4 pages="), std::string::npos);
  const auto plain = SlabPool::open({.slot_count = 4, .huge_pages = false}, events);
  EXPECT_NE(events.text.find("pages=normal numa_node=no preference"), std::string::npos);
}

TEST(SlabPool, SaysWhenANodeIsNotThere) {
  LastEvent events;
  const auto pool = SlabPool::open({.slot_count = 2, .numa_node = 4711}, events);
  ASSERT_TRUE(pool);
  EXPECT_NE(events.text.find("numa_node=4711 (could not be bound)"), std::string::npos);
}

TEST(SlabPool, RefusesCountsBeyondADoorbellsReach) {
  NullEventSink events;
  for (const std::uint32_t count : {0U, kSlotsMax + 1}) {
    const auto pool = SlabPool::open({.slot_count = count}, events);
    ASSERT_FALSE(pool);
    EXPECT_EQ(pool.error().code, ErrorCode::kConfig);
  }
}

TEST(SlabPool, AForkedChildDoesNotInheritTheSlab) {
  const auto pool = open_pool(4);
  const pid_t child = fork();
  if (child == 0) {
    // write() reports EFAULT for memory that is not there, without a signal.
    int ends[2];
    if (pipe(ends) != 0) _exit(2);
    _exit(write(ends[1], pool->memory().data(), 1) == -1 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace weft::transport
