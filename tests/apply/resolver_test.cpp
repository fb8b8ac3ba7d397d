// SPDX-License-Identifier: Apache-2.0
#include "apply/journal/resolver.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <random>
#include <thread>

#include "apply/patch/patcher.hpp"
#include "support/fault_store.hpp"
#include "support/refit_builder.hpp"

namespace weft::apply {
namespace {

using namespace test_support;  // NOLINT(google-build-using-namespace)

// An agent at one point of its life, on a disk; a new one is a restart.
// Threads: as Resolver.
struct TestAgent {
  std::unique_ptr<Store> root;
  std::unique_ptr<Store> spools;
  std::unique_ptr<Store> journals;
  DiskBudget budget{std::uint64_t{1} << 40};
  std::optional<CheckpointDir> checkpoint;
  std::unique_ptr<Resolver> resolver;
  ResolveScratch scratch;

  Status open(const TestRefit& refit, std::unique_ptr<Store> disk, bool resume = false) {
    root = std::move(disk);
    WEFT_TRY(auto weights, root->open_directory("weights", false));
    WEFT_TRY(spools, root->open_directory("state/spool", true));
    WEFT_TRY(journals, root->open_directory("state/journal", true));
    WEFT_TRY(checkpoint, CheckpointDir::open(std::move(weights), Access::kRead));
    ResolverBase base;
    base.fleet = refit.manifest.fleet;
    base.refit = refit.manifest.refit;
    base.base = refit.manifest.base;
    base.lattice = &refit.lattice;
    base.checkpoint = &*checkpoint;
    base.table = &refit.table;
    WEFT_TRY(resolver, Resolver::open(base, {spools.get(), journals.get(), &budget}, resume));
    return ok();
  }
  Result<Accepted> accept(std::span<const std::byte> frame) {
    return resolver->accept(frame, scratch);
  }
  Status accept_all(const TestRefit& refit) {
    for (const auto& frame : refit.frames) {
      WEFT_TRY(const Accepted accepted, accept(frame));
      static_cast<void>(accepted);
    }
    return ok();
  }
  Status apply(const TestRefit& refit) {
    WEFT_TRY(const auto journal,
             JournalReader::open(*journals, refit.manifest.refit, checkpoint->schema()));
    WEFT_TRY(const auto stats, apply_journal(*journal, *checkpoint, {}));
    static_cast<void>(stats);
    return checkpoint->sync();
  }
};

void expect_weights(const MemoryDisk& disk, const TestCheckpoint& expected) {
  for (const auto& [name, tensors] : expected) {
    ASSERT_EQ(disk.content("weights/" + name), safetensors_bytes(tensors)) << name;
  }
}

void seal_frame(std::vector<std::byte>& frame) {
  wire::FrameHeader header;
  std::memcpy(&header, frame.data(), sizeof(header));
  const Digest checksum = wire::frame_checksum(header, std::span(frame).subspan(sizeof(header)));
  header.checksum_low = checksum.low;
  header.checksum_high = checksum.high;
  std::memcpy(frame.data(), &header, sizeof(header));
}

TestRefit usual_refit(std::uint32_t producer_count = 1) {
  const auto base = make_checkpoint(1'200'000, 1);
  return make_refit(base, change_elements(base, 0.03, 2), producer_count);
}

TEST(Resolver, ProvedRefitAppliesToTheTargetBitForBit) {
  for (const std::uint32_t producer_count : {1U, 3U}) {
    TestRefit refit = usual_refit(producer_count);
    ASSERT_GT(refit.frames.size(), 4U);
    std::shuffle(refit.frames.begin(), refit.frames.end(), std::mt19937_64(5));
    TestAgent agent;
    ASSERT_TRUE(agent.open(refit, refit.disk->open()));
    const Status accepted = agent.accept_all(refit);
    ASSERT_TRUE(accepted) << accepted.error().message();
    EXPECT_TRUE(agent.resolver->missing(refit.manifest, 100).empty());
    const Status proved = agent.resolver->prove(refit.manifest);
    ASSERT_TRUE(proved) << proved.error().message();
    expect_weights(*refit.disk, refit.base);  // nothing moves before the decision
    EXPECT_TRUE(agent.resolver->prove(refit.manifest));
    ASSERT_TRUE(agent.apply(refit));
    expect_weights(*refit.disk, refit.target);
  }
}

TEST(Resolver, EqualCheckpointsNeedNoFrameAndAreProved) {
  const auto base = make_checkpoint(100'000, 1);
  const TestRefit refit = make_refit(base, base);
  EXPECT_TRUE(refit.frames.empty());
  TestAgent agent;
  ASSERT_TRUE(agent.open(refit, refit.disk->open()));
  ASSERT_TRUE(agent.resolver->prove(refit.manifest));
  ASSERT_TRUE(agent.apply(refit));
  expect_weights(*refit.disk, refit.base);
}

TEST(Resolver, ManyThreadsWithDuplicatesGiveTheSame) {
  const TestRefit refit = usual_refit(2);
  TestAgent agent;
  ASSERT_TRUE(agent.open(refit, refit.disk->open()));
  std::atomic<std::uint64_t> fresh{0};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      ResolveScratch scratch;
      auto order = refit.frames;
      std::shuffle(order.begin(), order.end(), std::mt19937_64(t));
      for (const auto& frame : order) {
        const auto accepted = agent.resolver->accept(frame, scratch);
        ASSERT_TRUE(accepted) << accepted.error().message();
        if (*accepted == Accepted::kNew) ++fresh;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(fresh, refit.frames.size());
  const auto progress = agent.resolver->progress();
  EXPECT_EQ(progress.frames, refit.frames.size());
  EXPECT_EQ(progress.duplicate_frames, 3 * refit.frames.size());
  const Status proved = agent.resolver->prove(refit.manifest);
  ASSERT_TRUE(proved) << proved.error().message();
  ASSERT_TRUE(agent.apply(refit));
  expect_weights(*refit.disk, refit.target);
}

TEST(Resolver, AnotherFrameUnderTheSameNumberIsAConflict) {
  const auto base = make_checkpoint(1'200'000, 1);
  const TestRefit refit = make_refit(base, change_elements(base, 0.03, 2));
  const TestRefit other = make_refit(base, change_elements(base, 0.03, 3));
  TestAgent agent;
  ASSERT_TRUE(agent.open(refit, refit.disk->open()));
  ASSERT_TRUE(agent.accept(refit.frames[0]));
  const auto conflict = agent.accept(other.frames[0]);
  ASSERT_FALSE(conflict);
  EXPECT_EQ(conflict.error().code, ErrorCode::kPayloadConflict);
}

// B-060, B-031: the same chunk in two frames.
TEST(Resolver, ChunkInTwoFramesIsAConflict) {
  const TestRefit refit = usual_refit();
  TestAgent agent;
  ASSERT_TRUE(agent.open(refit, refit.disk->open()));
  ASSERT_TRUE(agent.accept(refit.frames[0]));
  auto again = refit.frames[0];
  wire::store_le(again.data() + offsetof(wire::FrameHeader, sequence), std::uint32_t{1});
  // With other new bytes claimed for the chunk.
  again[sizeof(wire::FrameHeader) + 12] ^= std::byte{1};
  seal_frame(again);
  const auto conflict = agent.accept(again);
  ASSERT_FALSE(conflict);
  EXPECT_EQ(conflict.error().code, ErrorCode::kPayloadConflict);
}

TEST(Resolver, FrameOfAnotherRefitFleetOrProducerIsRefused) {
  const TestRefit refit = usual_refit();
  TestAgent agent;
  ASSERT_TRUE(agent.open(refit, refit.disk->open()));
  for (const std::size_t offset :
       {offsetof(wire::FrameHeader, attempt), offsetof(wire::FrameHeader, fleet_low),
        offsetof(wire::FrameHeader, epoch_number), offsetof(wire::FrameHeader, lattice_low),
        offsetof(wire::FrameHeader, producer)}) {
    auto frame = refit.frames[0];
    frame[offset] ^= std::byte{2};
    seal_frame(frame);
    const auto refused = agent.accept(frame);
    ASSERT_FALSE(refused) << offset;
    EXPECT_EQ(refused.error().code, ErrorCode::kProtocol) << offset;
  }
  auto frame = refit.frames[0];
  wire::store_le(frame.data() + offsetof(wire::FrameHeader, sequence), std::uint32_t{0x7FFF'0000});
  seal_frame(frame);
  EXPECT_EQ(agent.accept(frame).error().code, ErrorCode::kProtocol);
  EXPECT_EQ(agent.resolver->progress().frames, 0U);
}

// Every bit of a frame counts; a damaged one leaves nothing behind and the good one is taken.
TEST(Resolver, DamagedFrameIsCorruptAndMayComeAgain) {
  const TestRefit refit = usual_refit();
  TestAgent agent;
  ASSERT_TRUE(agent.open(refit, refit.disk->open()));
  for (std::size_t at = 0; at < refit.frames[0].size(); at += 97) {
    auto frame = refit.frames[0];
    frame[at] ^= std::byte{1};
    const auto refused = agent.accept(frame);
    ASSERT_FALSE(refused) << at;
  }
  // The checksum holds, the content does not: what a broken producer or relay would send.
  auto frame = refit.frames[0];
  frame[frame.size() / 2] ^= std::byte{1};
  seal_frame(frame);
  const auto corrupt = agent.accept(frame);
  ASSERT_FALSE(corrupt);
  EXPECT_EQ(corrupt.error().code, ErrorCode::kCorruptPayload);
  ASSERT_TRUE(agent.accept_all(refit));
  EXPECT_TRUE(agent.resolver->prove(refit.manifest));
}

TEST(Resolver, WrongOldBytesAreABaseMismatchThatNamesTensorAndChunk) {
  const TestRefit refit = usual_refit();
  {
    // One bit of the base is not what the table says.
    auto file =
        *refit.disk->open()->open("weights/model-00001-of-00002.safetensors", Access::kReadWrite);
    std::byte byte{};
    ASSERT_TRUE(file->read(5000, {&byte, 1}));
    byte ^= std::byte{8};
    ASSERT_TRUE(file->write(5000, {&byte, 1}));
  }
  const auto before = refit.disk->content("weights/model-00001-of-00002.safetensors");
  TestAgent agent;
  ASSERT_TRUE(agent.open(refit, refit.disk->open()));
  const Status refused = agent.accept_all(refit);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kBaseMismatch);
  EXPECT_NE(refused.error().detail.find("embed"), std::string::npos) << refused.error().detail;
  EXPECT_NE(refused.error().detail.find("chunk"), std::string::npos);
  EXPECT_EQ(refit.disk->content("weights/model-00001-of-00002.safetensors"), before);
}

TEST(Resolver, MissingFramesAreListedAndKeepTheVote) {
  const TestRefit refit = usual_refit();
  TestAgent agent;
  ASSERT_TRUE(agent.open(refit, refit.disk->open()));
  for (std::size_t i = 0; i < refit.frames.size(); i += 2)
    ASSERT_TRUE(agent.accept(refit.frames[i]));
  const auto missing = agent.resolver->missing(refit.manifest, 100);
  EXPECT_EQ(missing.size(), refit.frames.size() / 2);
  for (const FrameId& frame : missing) EXPECT_EQ(frame.sequence.value % 2, 1U);
  EXPECT_EQ(agent.resolver->missing(refit.manifest, 1).size(), 1U);
  const Status refused = agent.resolver->prove(refit.manifest);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kProtocol);
  EXPECT_EQ(refused.error().stage, Stage::kPrepare);
}

TEST(Resolver, ManifestThatIsNotTheOneOfTheseFramesIsRefused) {
  const TestRefit refit = usual_refit();
  TestAgent agent;
  ASSERT_TRUE(agent.open(refit, refit.disk->open()));
  ASSERT_TRUE(agent.accept_all(refit));
  const auto refusal = [&](auto change) {
    wire::Manifest manifest = refit.manifest;
    change(manifest);
    const Status status = agent.resolver->prove(manifest);
    return status ? ErrorCode::kInternal : status.error().code;
  };
  EXPECT_EQ(refusal([](auto& m) { m.target.root.low ^= 1; }), ErrorCode::kCorruptPayload);
  EXPECT_EQ(refusal([](auto& m) { m.base.root.low ^= 1; }), ErrorCode::kBaseMismatch);
  EXPECT_EQ(refusal([](auto& m) { m.schema.low ^= 1; }), ErrorCode::kSchemaChanged);
  EXPECT_EQ(refusal([](auto& m) { m.refit.attempt ^= 1; }), ErrorCode::kProtocol);
  EXPECT_EQ(refusal([](auto& m) { m.producers[0].part.low ^= 1; }), ErrorCode::kCorruptPayload);
  EXPECT_EQ(refusal([](auto& m) { m.producers[0].frames.low ^= 1; }), ErrorCode::kPayloadConflict);
  EXPECT_EQ(refusal([](auto& m) { --m.producers[0].frame_count; }), ErrorCode::kPayloadConflict);
  EXPECT_EQ(refusal([](auto& m) { m.producers.push_back({}); }), ErrorCode::kProtocol);
  EXPECT_TRUE(agent.resolver->prove(refit.manifest));
}

// B-013, B-063: found before the vote, with nothing sealed.
TEST(Resolver, ChangedOrUnwritableWeightsAreANo) {
  const TestRefit refit = usual_refit();
  {
    TestAgent agent;
    ASSERT_TRUE(agent.open(refit, refit.disk->open()));
    ASSERT_TRUE(agent.accept_all(refit));
    auto file =
        *refit.disk->open()->open("weights/model-00002-of-00002.safetensors", Access::kReadWrite);
    const std::byte same = refit.disk->content("weights/model-00002-of-00002.safetensors")[0];
    ASSERT_TRUE(file->write(0, {&same, 1}));
    const Status refused = agent.resolver->prove(refit.manifest);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::kConcurrentModification);
  }
  auto plan = std::make_shared<FaultPlan>();
  TestAgent agent;
  ASSERT_TRUE(agent.open(refit, wrap_with_faults(refit.disk->open(), plan)));
  ASSERT_TRUE(agent.accept_all(refit));
  plan->add({.call = Call::kOpen, .name_part = ".safetensors", .native = EROFS});
  const Status refused = agent.resolver->prove(refit.manifest);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kDenied);
  EXPECT_EQ(JournalReader::open(*agent.journals, refit.manifest.refit, agent.checkpoint->schema())
                .error()
                .code,
            ErrorCode::kNeedsReseed);
}

TEST(Resolver, RestartedAgentKeepsItsSpooledFrames) {
  const TestRefit refit = usual_refit(2);
  const std::size_t half = refit.frames.size() / 2;
  {
    TestAgent agent;
    ASSERT_TRUE(agent.open(refit, refit.disk->open()));
    for (std::size_t i = 0; i < half; ++i) ASSERT_TRUE(agent.accept(refit.frames[i]));
  }
  TestAgent agent;
  ASSERT_TRUE(agent.open(refit, refit.disk->open(), true));
  EXPECT_EQ(agent.resolver->progress().frames, half);
  EXPECT_EQ(agent.resolver->missing(refit.manifest, 1000).size(), refit.frames.size() - half);
  ASSERT_TRUE(agent.accept_all(refit));
  ASSERT_TRUE(agent.resolver->prove(refit.manifest));
  ASSERT_TRUE(agent.apply(refit));
  expect_weights(*refit.disk, refit.target);
  TestAgent fresh;
  ASSERT_TRUE(fresh.open(refit, refit.disk->open(), false));
  EXPECT_EQ(fresh.resolver->progress().frames, 0U);
}

TEST(Resolver, FullDiskIsNoSpaceAndForgetLeavesNothing) {
  const TestRefit refit = usual_refit();
  for (const std::uint64_t room : {0U, 3'000U, 20'000U, 60'000U}) {
    refit.disk->set_capacity(refit.disk->used_bytes() + room);
    TestAgent agent;
    ASSERT_TRUE(agent.open(refit, refit.disk->open()));
    Status status = agent.accept_all(refit);
    if (status) status = agent.resolver->prove(refit.manifest);
    ASSERT_FALSE(status) << room;
    EXPECT_EQ(status.error().code, ErrorCode::kNoSpace);
    expect_weights(*refit.disk, refit.base);
    ASSERT_TRUE(agent.resolver->forget());
    EXPECT_TRUE(list_refits(*agent.spools)->empty());
    EXPECT_TRUE(list_refits(*agent.journals)->empty());
    EXPECT_EQ(agent.budget.used_bytes(), 0U);
    refit.disk->set_capacity(~std::uint64_t{0});
  }
}

// B-061, B-078: whatever the step, the weights are the base, and a proof that was answered holds.
TEST(Resolver, PowerCutAtAnyStepLeavesTheBaseAndEveryProofThatWasGiven) {
  const auto base = make_checkpoint(200'000, 1);
  const auto target = change_elements(base, 0.03, 2);
  bool completed = false;
  for (std::uint64_t step = 0; !completed; ++step) {
    const TestRefit refit = make_refit(base, target);
    auto plan = std::make_shared<FaultPlan>();
    plan->die_at(step);
    {
      TestAgent agent;
      Status status = agent.open(refit, wrap_with_faults(refit.disk->open(), plan));
      if (status) status = agent.accept_all(refit);
      if (status) status = agent.resolver->prove(refit.manifest);
      completed = static_cast<bool>(status);
    }
    for (const Unsynced unsynced : {Unsynced::kDropped, Unsynced::kRandom, Unsynced::kKept}) {
      auto after = refit.disk->power_cut(unsynced, step);
      expect_weights(*after, base);
      TestAgent agent;
      const Status opened = agent.open(refit, after->open(), true);
      ASSERT_TRUE(opened) << "step " << step << ": " << opened.error().message();
      if (!completed) {
        ASSERT_TRUE(agent.accept_all(refit));
        ASSERT_TRUE(agent.resolver->prove(refit.manifest));
      } else {
        // PREPARED: what counts is the sealed journal, not the resolver.
        agent.resolver.reset();
        after = refit.disk->power_cut(unsynced, step);
        agent.root = after->open();
        agent.journals = *agent.root->open_directory("state/journal", false);
        agent.checkpoint =
            *CheckpointDir::open(*agent.root->open_directory("weights", false), Access::kReadWrite);
      }
      ASSERT_TRUE(agent.apply(refit));
      expect_weights(*after, target);
    }
  }
}

}  // namespace
}  // namespace weft::apply
