// SPDX-License-Identifier: Apache-2.0
// From checkpoints to frames and back, on the real pairs.
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "codec/decode/decode_chunk.hpp"
#include "codec/flow/encode_batch.hpp"
#include "codec/flow/encode_flow.hpp"
#include "codec/frame/frame_view.hpp"
#include "support/memory_checkpoint.hpp"
#include "support/memory_slots.hpp"

namespace weft::codec {
namespace {

using weft::test_support::MemoryCheckpoint;
using weft::test_support::MemoryChunkSource;
using weft::test_support::MemorySlots;

// Applies each frame to a checkpoint and lets go of its slot.
// Threads: one at a time.
class ApplyingSink final : public FrameSink {
 public:
  ApplyingSink(const Lattice& lattice, MemoryCheckpoint& checkpoint)
      : lattice_(lattice), checkpoint_(checkpoint) {}
  Status take(SharedSlot slot, const wire::FrameHeader& header) override {
    EXPECT_EQ(header.sequence, frame_count_);
    ++frame_count_;
    frame_bytes_ += header.frame_bytes();
    WEFT_TRY(const FrameView view, FrameView::open(slot.frame(), {{}, {}, &lattice_, {}, true}));
    for (std::uint32_t i = 0; i < view.chunk_count(); ++i) {
      const ChunkPlace place = lattice_.place(view.entries()[i].chunk);
      const std::span<std::byte> live = checkpoint_.chunk(place);
      std::vector<std::byte> new_bytes(place.bytes());
      WEFT_TRY_STATUS(decode_chunk({view.entries()[i], view.payload(i), live, place.format,
                                    wire::digest64(live), true, nullptr},
                                   workspace_, new_bytes));
      std::copy(new_bytes.begin(), new_bytes.end(), live.begin());
    }
    return ok();
  }
  std::uint32_t frame_count() const { return frame_count_; }
  std::uint64_t frame_bytes() const { return frame_bytes_; }

 private:
  const Lattice& lattice_;
  MemoryCheckpoint& checkpoint_;
  DecodeWorkspace workspace_;
  std::uint32_t frame_count_ = 0;
  std::uint64_t frame_bytes_ = 0;
};

struct Pair {
  const char* folder;
  const char* base;
  const char* target;
};
std::string text(const ::testing::TestParamInfo<Pair>& pair) {
  std::string name =
      std::string(pair.param.folder) + "_" + pair.param.base + "_" + pair.param.target;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}

class RealPairs : public ::testing::TestWithParam<Pair> {
 protected:
  MemoryCheckpoint load(const char* step) const {
    return MemoryCheckpoint::load(weft::test_support::shared_folder() / "data" / GetParam().folder /
                                  step);
  }
};

TEST_P(RealPairs, ArriveBitForBit) {
  const MemoryCheckpoint base = load(GetParam().base);
  const MemoryCheckpoint target = load(GetParam().target);
  ASSERT_TRUE(schema_difference(base.schema, target.schema));
  const Lattice lattice = *Lattice::default_for(base.schema);
  MemoryChunkSource source(lattice, base, target);
  for (const Profile profile : {Profile::kCompact, Profile::kFast}) {
    MemoryCheckpoint arrived = base;
    ApplyingSink sink(lattice, arrived);
    MemorySlots slots(2);
    EncodeFlowOptions options;
    options.choice.profile = profile;
    const auto summary = encode_flow(lattice, {0}, source, slots, sink, options);
    ASSERT_TRUE(summary) << summary.error().message();
    EXPECT_EQ(arrived.files, target.files);
    EXPECT_EQ(summary->seal.frame_count, sink.frame_count());
    EXPECT_EQ(summary->seal.wire_bytes, sink.frame_bytes());
    MemoryChunkSource check(lattice, base, target);
    const auto table = digest_flow(lattice, check, 2);
    ASSERT_TRUE(table);
    EXPECT_EQ(*table, summary->table);
    EXPECT_EQ(table->part(lattice, {0}), summary->seal.part);
    const double per_change = static_cast<double>(summary->seal.wire_bytes) /
                              static_cast<double>(summary->seal.changed_elements);
    RecordProperty("bytes_per_changed", std::to_string(per_change));
    EXPECT_LT(per_change, profile == Profile::kCompact ? 0.96 : 1.6) << text({GetParam(), 0});
  }
}

INSTANTIATE_TEST_SUITE_P(All, RealPairs,
                         ::testing::Values(Pair{"policy-gradient-lr1e-6", "step-10", "step-11"},
                                           Pair{"policy-gradient-lr3e-6", "step-10", "step-11"},
                                           Pair{"policy-gradient-lr3e-6", "step-11", "step-12"},
                                           Pair{"policy-gradient-lr3e-6", "step-10", "step-12"},
                                           Pair{"fine-tuning-lr1e-5", "step-10", "step-11"}),
                         text);

// A checkpoint of many small tensors and one large one, and a target with few changes.
struct Made {
  MemoryCheckpoint base;
  MemoryCheckpoint target;
};
Made make_checkpoint(std::uint32_t small_count, std::uint64_t large_bytes) {
  Made made;
  std::vector<HeaderTensor> tensors;
  std::uint64_t at = 0;
  for (std::uint32_t i = 0; i < small_count; ++i, at += 600) {
    tensors.push_back({"s" + std::to_string(i), DType::kBF16, {300}, at, at + 600});
  }
  tensors.push_back({"z", DType::kF8E4M3, {large_bytes}, at, at + large_bytes});
  at += large_bytes;
  std::vector<FileInput> files(1);
  files[0] = {"f", at + 8, {8, tensors}};
  made.base.schema = *build_schema(std::move(files), std::nullopt);
  made.base.files.assign(1, std::vector<std::byte>(at + 8));
  for (std::size_t i = 0; i < at; ++i) {
    made.base.files[0][i] = static_cast<std::byte>(i * 2'654'435'761U >> 13);
  }
  made.target = made.base;
  for (std::size_t i = 8; i < at; i += 97) made.target.files[0][i] ^= std::byte{1};
  return made;
}

TEST(EncodeFlow, SendsNothingWhenNothingChanged) {
  const Made made = make_checkpoint(10, 10'000);
  const Lattice lattice = *Lattice::default_for(made.base.schema);
  MemoryCheckpoint arrived = made.base;
  ApplyingSink sink(lattice, arrived);
  MemorySlots slots(1);
  MemoryChunkSource source(lattice, made.base, made.base);
  const auto summary = encode_flow(lattice, {0}, source, slots, sink, {});
  ASSERT_TRUE(summary);
  EXPECT_EQ(summary->seal.frame_count, 0U);
  EXPECT_EQ(summary->seal.changed_elements, 0U);
}

TEST(EncodeFlow, GivesTheSameFramesForAnyThreadCount) {
  const Made made = make_checkpoint(2000, 3'000'000);
  const Lattice lattice = *Lattice::default_for(made.base.schema);
  MemoryChunkSource source(lattice, made.base, made.target);
  std::vector<wire::ProducerSeal> seals;
  for (const std::uint32_t threads : {1U, 2U, 4U, 7U}) {
    MemoryCheckpoint arrived = made.base;
    ApplyingSink sink(lattice, arrived);
    MemorySlots slots(1);
    EncodeFlowOptions options;
    options.threads = threads;
    const auto summary = encode_flow(lattice, {0}, source, slots, sink, options);
    ASSERT_TRUE(summary);
    EXPECT_EQ(arrived.files, made.target.files);
    seals.push_back(summary->seal);
  }
  for (const auto& seal : seals) EXPECT_EQ(seal, seals.front());
}

TEST(EncodeFlow, FullSendsEveryChunkWithoutABase) {
  const Made made = make_checkpoint(20, 1'000'000);
  const Lattice lattice = *Lattice::default_for(made.base.schema);
  MemoryChunkSource source(lattice, made.base, made.target);
  MemoryCheckpoint arrived = made.base;
  for (auto& byte : arrived.files[0]) byte = std::byte{0};
  std::copy_n(made.target.files[0].begin(), 8, arrived.files[0].begin());
  ApplyingSink sink(lattice, arrived);
  MemorySlots slots(1);
  EncodeFlowOptions options;
  options.choice.full = true;
  ASSERT_TRUE(encode_flow(lattice, {0}, source, slots, sink, options));
  EXPECT_EQ(arrived.files, made.target.files);
}

TEST(EncodeFlow, ClosesFramesEarlyEnoughToFillATree) {
  const Made made = make_checkpoint(0, 40'000'000);
  const Lattice lattice = *Lattice::default_for(made.base.schema);
  MemoryChunkSource source(lattice, made.base, made.target);
  MemoryCheckpoint arrived = made.base;
  ApplyingSink sink(lattice, arrived);
  MemorySlots slots(1);
  EncodeFlowOptions options;
  options.frames_target = 5;
  const auto summary = encode_flow(lattice, {0}, source, slots, sink, options);
  ASSERT_TRUE(summary);
  EXPECT_GE(summary->seal.frame_count, 4U);
  EXPECT_LE(summary->seal.frame_count, 7U);
}

// Threads: any.
class FailingSource final : public ChunkSource {
 public:
  Status read(ChunkIndex chunk, std::span<std::byte>, std::span<std::byte>) override {
    if (chunk.value == 7) return failure(ErrorCode::kIoFailed, Stage::kScan, "chunk 7");
    return ok();
  }
};

TEST(EncodeFlow, EndsWithTheSourcesError) {
  const Made made = make_checkpoint(0, 4'000'000);
  const Lattice lattice = *Lattice::default_for(made.base.schema);
  MemoryCheckpoint arrived = made.base;
  ApplyingSink sink(lattice, arrived);
  MemorySlots slots(1);
  FailingSource source;
  const auto summary = encode_flow(lattice, {0}, source, slots, sink, {});
  ASSERT_FALSE(summary);
  EXPECT_EQ(summary.error().code, ErrorCode::kIoFailed);
  EXPECT_EQ(slots.free_count(), 1U);
  EXPECT_FALSE(digest_flow(lattice, source, 2));
}

// Threads: one at a time.
class KeepingSink final : public FrameSink {
 public:
  Status take(SharedSlot slot, const wire::FrameHeader&) override {
    kept.push_back(std::move(slot));
    return ok();
  }
  std::vector<SharedSlot> kept;
};

TEST(EncodeFlow, EndsWithTimeoutWhenNoSlotComesBack) {
  const Made made = make_checkpoint(0, 40'000'000);
  const Lattice lattice = *Lattice::default_for(made.base.schema);
  MemoryChunkSource source(lattice, made.base, made.target);
  MemorySlots slots(1);
  KeepingSink sink;
  EncodeFlowOptions options;
  options.slot_timeout = std::chrono::milliseconds(1);
  const auto summary = encode_flow(lattice, {0}, source, slots, sink, options);
  ASSERT_FALSE(summary);
  EXPECT_EQ(summary.error().code, ErrorCode::kTimeout);
  EXPECT_EQ(sink.kept.size(), 1U);
}

TEST(EncodeFlow, RefusesSlotsThatCannotHoldAChunk) {
  const Made made = make_checkpoint(0, 1'000'000);
  const Lattice lattice = *Lattice::default_for(made.base.schema);
  MemoryChunkSource source(lattice, made.base, made.target);
  MemorySlots slots(1, 64 * 1024);
  KeepingSink sink;
  EncodeFlowOptions options;
  options.choice.full = true;
  const auto summary = encode_flow(lattice, {0}, source, slots, sink, options);
  ASSERT_FALSE(summary);
  EXPECT_EQ(summary.error().code, ErrorCode::kConfig);
}

// The bodies without oneTBB, so that a race detector sees all of them.
TEST(EncodeBatch, RunsOnPlainThreads) {
  const Made made = make_checkpoint(500, 2'000'000);
  const Lattice lattice = *Lattice::default_for(made.base.schema);
  MemoryChunkSource source(lattice, made.base, made.target);
  std::vector<BatchRange> ranges;
  for (ChunkIndex next; next.value < lattice.chunk_count();) {
    ranges.push_back(next_batch(lattice, ranges.size(), next, {lattice.chunk_count()}));
    next.value += ranges.back().count;
  }
  std::vector<EncodedBatch> batches(ranges.size());
  DigestTable table(lattice.chunk_count());
  std::atomic<std::size_t> claimed{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      BatchWorker worker;
      for (std::size_t i = claimed++; i < ranges.size(); i = claimed++) {
        EXPECT_TRUE(encode_batch(lattice, source, {}, ranges[i], worker, batches[i]));
        EXPECT_TRUE(digest_batch(lattice, source, ranges[i], worker, table));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  MemoryCheckpoint arrived = made.base;
  ApplyingSink sink(lattice, arrived);
  MemorySlots slots(1);
  const EncodeFlowOptions options;
  FramePacker packer(lattice, {0}, slots, sink, options);
  for (const EncodedBatch& batch : batches) ASSERT_TRUE(packer.pack(batch));
  const auto summary = packer.finish();
  ASSERT_TRUE(summary);
  EXPECT_EQ(arrived.files, made.target.files);
  EXPECT_EQ(summary->table, table);
}

}  // namespace
}  // namespace weft::codec
