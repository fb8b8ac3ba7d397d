// SPDX-License-Identifier: Apache-2.0
#include "agent/lib/shard_baseline.hpp"

#include <gtest/gtest.h>

#include "agent/lib/lattice_store.hpp"
#include "agent/lib/shard_source.hpp"
#include "support/refit_builder.hpp"
#include "weft/wire/digest.hpp"

namespace weft::agent {
namespace {

using namespace test_support;  // NOLINT(google-build-using-namespace)

constexpr ProducerIndex kSecond{1};

// A matrix whose columns two producers share, and a tensor of one of them, in memory.
struct Sample {
  std::shared_ptr<MemoryDisk> disk = MemoryDisk::make();
  std::optional<apply::CheckpointDir> base;
  codec::Lattice lattice;
  std::unique_ptr<ShardBaseline> baseline;
  codec::DecodeWorkspace workspace;

  Sample() {
    TestCheckpoint checkpoint;
    auto& tensors = checkpoint["m.safetensors"];
    tensors.push_back({"a", "BF16", {700, 1000}, std::vector<std::byte>(1'400'000)});
    tensors.push_back({"b", "F32", {1000}, std::vector<std::byte>(4'000)});
    for (auto& tensor : tensors) {
      for (std::size_t i = 0; i < tensor.bytes.size(); ++i) {
        tensor.bytes[i] = static_cast<std::byte>(i * 7 + i / 300);
      }
    }
    auto root = disk->open();
    write_checkpoint(**root->open_directory("weights", true), checkpoint, false);
    base = open_checkpoint(*disk, "weights");
    lattice = column_cut_of(base->schema(), 2);
    baseline = *ShardBaseline::open(lattice, kSecond, {&*base, nullptr, 2});
  }
  std::vector<ChunkIndex> chunks() const {
    const auto range = lattice.chunks_of(kSecond);
    std::vector<ChunkIndex> all;
    for (std::uint32_t i = 0; i < range.count; ++i) all.push_back({range.first.value + i});
    return all;
  }
  std::vector<std::byte> on_disk(ChunkIndex chunk) const {
    std::vector<std::byte> bytes(lattice.place(chunk).bytes());
    EXPECT_TRUE(base->read(lattice.place(chunk), bytes));
    return bytes;
  }
  std::vector<std::byte> old_bytes(ChunkIndex chunk) const {
    const auto bytes = baseline->old_bytes(chunk);
    return {bytes.begin(), bytes.end()};
  }
};

TEST(ShardBaseline, HoldsTheProducersChunksAndTheirDigests) {
  const Sample sample;
  ASSERT_GT(sample.chunks().size(), 2U);
  std::uint64_t bytes = 0;
  for (const ChunkIndex chunk : sample.chunks()) {
    EXPECT_EQ(sample.old_bytes(chunk), sample.on_disk(chunk));
    EXPECT_EQ(sample.baseline->table().at(chunk), wire::digest64(sample.on_disk(chunk)));
    bytes += sample.on_disk(chunk).size();
  }
  EXPECT_EQ(sample.baseline->baseline_bytes(), bytes);
}

// On a machine that does not exist: what lies behind the middle of the baseline is node 1's.
TEST(ShardSource, NamesTheNodeWhereTheBaselinesChunkLies) {
  const Sample sample;
  const codec::Gather gather;
  const PutTensors put(0);
  const auto chunks = sample.chunks();
  const std::byte* const middle = sample.baseline->old_bytes(chunks[chunks.size() / 2]).data();
  const ShardSource source(sample.base->schema(), sample.lattice, gather, *sample.baseline, put,
                           [middle](const void* at) -> std::optional<std::uint32_t> {
                             return static_cast<const std::byte*>(at) < middle ? 0U : 1U;
                           });
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    EXPECT_EQ(source.numa_node(chunks[i]), i < chunks.size() / 2 ? 0U : 1U) << i;
  }
}

TEST(ShardBaseline, ChangesOnlyWhenPendingValuesAreMoved) {
  Sample sample;
  for (const bool committed : {false, true}) {
    codec::DigestTable table(sample.lattice.chunk_count());
    std::vector<std::vector<std::byte>> fresh;
    for (const ChunkIndex chunk : sample.chunks()) {
      auto bytes = sample.on_disk(chunk);
      for (std::size_t i = chunk.value; i < bytes.size(); i += 130) bytes[i] ^= std::byte{1};
      if (chunk == sample.chunks().back()) bytes = sample.on_disk(chunk);
      sample.baseline->note(chunk, bytes, sample.workspace);
      table.set(chunk, wire::digest64(bytes));
      fresh.push_back(bytes);
      EXPECT_EQ(sample.old_bytes(chunk), sample.on_disk(chunk));
    }
    // 1.5 % of the elements: the goal is a tenth of the baseline at 3 %.
    EXPECT_GT(sample.baseline->pending_bytes(), 0U);
    EXPECT_LT(sample.baseline->pending_bytes(), sample.baseline->baseline_bytes() / 20);
    sample.baseline->set_pending_table(table);
    if (committed) {
      ASSERT_TRUE(sample.baseline->move());
    } else {
      sample.baseline->drop();
    }
    EXPECT_EQ(sample.baseline->pending_bytes(), 0U);
    for (std::size_t i = 0; i < fresh.size(); ++i) {
      const ChunkIndex chunk = sample.chunks()[i];
      EXPECT_EQ(sample.old_bytes(chunk), committed ? fresh[i] : sample.on_disk(chunk));
      EXPECT_EQ(sample.baseline->table().at(chunk), wire::digest64(sample.old_bytes(chunk)));
    }
  }
}

TEST(ShardBaseline, MovingTwiceIsMovingOnce) {
  Sample sample;
  const ChunkIndex chunk = sample.chunks().front();
  auto bytes = sample.on_disk(chunk);
  bytes[100] ^= std::byte{8};
  sample.baseline->note(chunk, bytes, sample.workspace);
  ASSERT_TRUE(sample.baseline->move());
  ASSERT_TRUE(sample.baseline->move());
  EXPECT_EQ(sample.old_bytes(chunk), bytes);
}

TEST(LatticeStore, KeepsLatticesFromStartToStart) {
  const Sample sample;
  const auto body = sample.lattice.encode();
  auto state = *sample.disk->open()->open_directory("state", true);
  {
    const auto store = LatticeStore::open(*state, sample.base->schema());
    ASSERT_TRUE(store);
    EXPECT_EQ((*store)->current().producer_count(), 1U);
    const auto absent = (*store)->find(sample.lattice.digest());
    ASSERT_FALSE(absent);
    EXPECT_EQ(absent.error().code, ErrorCode::kUnsupported);
    EXPECT_FALSE((*store)->add(Digest{}, body));
    const auto added = (*store)->add(sample.lattice.digest(), body);
    ASSERT_TRUE(added) << added.error().message();
    (*store)->use(**added);
    EXPECT_EQ((*store)->current().digest(), sample.lattice.digest());
  }
  const auto again = LatticeStore::open(*state, sample.base->schema());
  ASSERT_TRUE(again);
  EXPECT_EQ((*again)->current().producer_count(), 1U);
  const auto found = (*again)->find(sample.lattice.digest());
  ASSERT_TRUE(found) << found.error().message();
  EXPECT_EQ((*found)->producer_count(), 2U);
}

}  // namespace
}  // namespace weft::agent
