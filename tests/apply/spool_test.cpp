// SPDX-License-Identifier: Apache-2.0
#include "apply/spool/spool.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <random>
#include <thread>

#include "support/fault_store.hpp"
#include "support/memory_store.hpp"

namespace weft::apply {
namespace {

using namespace test_support;  // NOLINT(google-build-using-namespace)

const RefitId kRefit{{5, ProcessId{9}}, 2};

// A frame whose checksum holds; what its payload means is none of the spool's business.
std::vector<std::byte> make_frame(std::uint32_t producer, std::uint32_t sequence,
                                  std::size_t payload_bytes, const RefitId& refit = kRefit) {
  std::mt19937_64 random(sequence * 1000ULL + producer);
  std::vector<std::byte> frame(sizeof(wire::FrameHeader) + wire::kIndexEntryBytes + payload_bytes);
  for (std::size_t i = sizeof(wire::FrameHeader); i < frame.size(); ++i) {
    frame[i] = static_cast<std::byte>(random());
  }
  wire::FrameHeader header;
  header.set_refit(refit);
  header.producer = producer;
  header.sequence = sequence;
  header.chunk_count = 1;
  header.index_bytes = wire::kIndexEntryBytes;
  header.payload_bytes = static_cast<std::uint32_t>(payload_bytes);
  const Digest checksum =
      wire::frame_checksum(header, std::span(frame).subspan(sizeof(wire::FrameHeader)));
  header.checksum_low = checksum.low;
  header.checksum_high = checksum.high;
  std::memcpy(frame.data(), &header, sizeof(header));
  return frame;
}

std::vector<std::byte> read_frame(const Spool& spool, std::uint32_t producer,
                                  std::uint32_t sequence) {
  const auto bytes = spool.frame_bytes(ProducerIndex{producer}, FrameSequence{sequence});
  if (!bytes) return {};
  std::vector<std::byte> frame(*bytes);
  EXPECT_TRUE(spool.read(ProducerIndex{producer}, FrameSequence{sequence}, frame));
  return frame;
}

Status append(Spool& spool, std::uint32_t producer, std::uint32_t sequence,
              std::size_t payload_bytes = 500) {
  return spool.append(ProducerIndex{producer}, FrameSequence{sequence},
                      make_frame(producer, sequence, payload_bytes));
}

TEST(Spool, GivesBackEveryFrameInAnyOrderOfArrival) {
  auto disk = MemoryDisk::make();
  auto store = disk->open();
  DiskBudget budget(1 << 20);
  const auto spool = Spool::open(*store, kRefit, 2, budget);
  ASSERT_TRUE(spool);
  for (const std::uint32_t sequence : {3U, 0U, 7U, 1U}) {
    ASSERT_TRUE(append(**spool, 0, sequence, 100 + sequence));
    ASSERT_TRUE(append(**spool, 1, sequence, 50));
  }
  for (const std::uint32_t sequence : {0U, 1U, 3U, 7U}) {
    EXPECT_EQ(read_frame(**spool, 0, sequence), make_frame(0, sequence, 100 + sequence));
    EXPECT_EQ(read_frame(**spool, 1, sequence), make_frame(1, sequence, 50));
  }
  EXPECT_EQ((*spool)->sequences(ProducerIndex{0}).size(), 4U);
  EXPECT_FALSE((*spool)->frame_bytes(ProducerIndex{0}, FrameSequence{2}));
  EXPECT_FALSE((*spool)->frame_bytes(ProducerIndex{2}, FrameSequence{0}));
}

TEST(Spool, SecondAppendOfAFrameHasNoEffect) {
  auto disk = MemoryDisk::make();
  auto store = disk->open();
  DiskBudget budget(1 << 20);
  const auto spool = Spool::open(*store, kRefit, 1, budget);
  ASSERT_TRUE(append(**spool, 0, 0));
  const std::uint64_t bytes = (*spool)->bytes();
  ASSERT_TRUE(append(**spool, 0, 0));
  EXPECT_EQ((*spool)->bytes(), bytes);
}

TEST(Spool, KeepsSyncedFramesOverAPowerCutAndCutsOffTheRest) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    auto disk = MemoryDisk::make();
    DiskBudget budget(1 << 20);
    {
      auto store = disk->open();
      const auto spool = Spool::open(*store, kRefit, 1, budget);
      for (std::uint32_t i = 0; i < 5; ++i) ASSERT_TRUE(append(**spool, 0, i, 3000));
      ASSERT_TRUE((*spool)->sync());
      for (std::uint32_t i = 5; i < 9; ++i) ASSERT_TRUE(append(**spool, 0, i, 3000));
    }
    auto after = disk->power_cut(Unsynced::kRandom, seed);
    auto store = after->open();
    const auto spool = Spool::open(*store, kRefit, 1, budget);
    ASSERT_TRUE(spool) << spool.error().message();
    const auto sequences = (*spool)->sequences(ProducerIndex{0});
    ASSERT_GE(sequences.size(), 5U);
    for (const FrameSequence sequence : sequences) {
      EXPECT_EQ(read_frame(**spool, 0, sequence.value), make_frame(0, sequence.value, 3000));
    }
    // What was cut off can come again.
    for (std::uint32_t i = 0; i < 9; ++i) ASSERT_TRUE(append(**spool, 0, i, 3000));
    EXPECT_EQ((*spool)->sequences(ProducerIndex{0}).size(), 9U);
  }
}

TEST(Spool, FramesOfAnotherAttemptAreNotTakenUp) {
  auto disk = MemoryDisk::make();
  auto store = disk->open();
  DiskBudget budget(1 << 20);
  {
    const auto spool = Spool::open(*store, kRefit, 1, budget);
    const auto foreign = make_frame(0, 0, 100, {{5, ProcessId{9}}, 1});
    ASSERT_TRUE((*spool)->append(ProducerIndex{0}, FrameSequence{0}, foreign));
  }
  const auto spool = Spool::open(*store, kRefit, 1, budget);
  EXPECT_TRUE((*spool)->sequences(ProducerIndex{0}).empty());
}

TEST(Spool, BudgetAndFullDiskAreNoSpaceAndLeaveEarlierFrames) {
  auto disk = MemoryDisk::make();
  auto store = disk->open();
  DiskBudget budget(2000);
  const auto spool = Spool::open(*store, kRefit, 1, budget);
  ASSERT_TRUE(append(**spool, 0, 0, 1000));
  const Status over = append(**spool, 0, 1, 1000);
  ASSERT_FALSE(over);
  EXPECT_EQ(over.error().code, ErrorCode::kNoSpace);
  disk->set_capacity(disk->used_bytes());
  auto roomy = DiskBudget(1 << 30);
  const auto second = Spool::open(*store, {{6, ProcessId{1}}, 1}, 1, roomy);
  const Status full = append(**second, 0, 0, 1000);
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().code, ErrorCode::kNoSpace);
  EXPECT_EQ(roomy.used_bytes(), 0U);
  EXPECT_EQ(read_frame(**spool, 0, 0), make_frame(0, 0, 1000));
}

TEST(Spool, RemoveTakesEverythingAndGivesTheBudgetBack) {
  auto disk = MemoryDisk::make();
  auto store = disk->open();
  DiskBudget budget(1 << 20);
  {
    const auto spool = Spool::open(*store, kRefit, 3, budget);
    ASSERT_TRUE(append(**spool, 2, 0));
    EXPECT_GT(budget.used_bytes(), 0U);
  }
  EXPECT_EQ(budget.used_bytes(), 0U);
  ASSERT_TRUE(Spool::remove(*store, kRefit));
  EXPECT_TRUE(store->list()->empty());
  EXPECT_TRUE(Spool::remove(*store, kRefit));
}

TEST(Spool, TakesFramesFromManyThreads) {
  auto disk = MemoryDisk::make();
  auto store = disk->open();
  DiskBudget budget(1 << 24);
  const auto spool = Spool::open(*store, kRefit, 2, budget);
  std::vector<std::thread> threads;
  for (std::uint32_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint32_t i = 0; i < 25; ++i) EXPECT_TRUE(append(**spool, t % 2, t * 25 + i, 200));
    });
  }
  for (auto& thread : threads) thread.join();
  for (std::uint32_t t = 0; t < 4; ++t) {
    for (std::uint32_t i = 0; i < 25; ++i) {
      EXPECT_EQ(read_frame(**spool, t % 2, t * 25 + i), make_frame(t % 2, t * 25 + i, 200));
    }
  }
}

TEST(Spool, AbsurdNumbersAreRefused) {
  auto disk = MemoryDisk::make();
  auto store = disk->open();
  DiskBudget budget(1 << 20);
  const auto spool = Spool::open(*store, kRefit, 1, budget);
  const auto frame = make_frame(0, 0, 10);
  EXPECT_EQ((*spool)->append(ProducerIndex{1}, FrameSequence{0}, frame).error().code,
            ErrorCode::kProtocol);
  EXPECT_EQ((*spool)->append(ProducerIndex{0}, FrameSequence{0xFFFF'FFFF}, frame).error().code,
            ErrorCode::kProtocol);
}

}  // namespace
}  // namespace weft::apply
