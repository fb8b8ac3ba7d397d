// SPDX-License-Identifier: Apache-2.0
// Flows on the NUMA nodes of a topology that is made up from this machine's processors.
#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <map>
#include <vector>

#include "codec/flow/encode_flow.hpp"
#include "codec/flow/part_encoder.hpp"
#include "support/memory_checkpoint.hpp"
#include "support/memory_slots.hpp"
#include "weft/base/guarded.hpp"

namespace weft::codec {
namespace {

using weft::test_support::MemoryCheckpoint;
using weft::test_support::MemoryChunkSource;
using weft::test_support::MemorySlots;

using Cpus = std::vector<std::uint32_t>;

// Where the calling thread may run.
Cpus binding() {
  cpu_set_t set;
  Cpus cpus;
  if (pthread_getaffinity_np(pthread_self(), sizeof(set), &set) != 0) return cpus;
  for (std::uint32_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

// Notes for every chunk where the thread that reads it may run.
// Threads: any.
class WatchedSource final : public ChunkSource {
 public:
  WatchedSource(ChunkSource& source, std::uint32_t node_count)
      : source_(source), node_count_(node_count) {}
  Status read(ChunkIndex chunk, std::span<std::byte> old_bytes,
              std::span<std::byte> new_bytes) override {
    seen_.with([&](auto& seen) { seen[chunk.value] = binding(); });
    return source_.read(chunk, old_bytes, new_bytes);
  }
  // Chunks in turn; 0 nodes: it is not known.
  std::optional<std::uint32_t> numa_node(ChunkIndex chunk) const override {
    ++asked;
    if (node_count_ == 0) return std::nullopt;
    return chunk.value % node_count_;
  }
  std::map<std::uint32_t, Cpus> seen() const {
    return seen_.with([](const auto& seen) { return seen; });
  }

  mutable std::atomic<std::uint32_t> asked{0};

 private:
  ChunkSource& source_;
  std::uint32_t node_count_;
  Guarded<std::map<std::uint32_t, Cpus>> seen_;
};

// Keeps the checksums of the frames.
// Threads: one at a time.
class ChecksumSink final : public FrameSink {
 public:
  Status take(SharedSlot, const wire::FrameHeader& header) override {
    checksums.push_back(header.checksum_low);
    return ok();
  }
  std::vector<std::uint64_t> checksums;
};

// Ten chunks of BF16, each of one batch.
class NumaFlow : public ::testing::Test {
 protected:
  static constexpr std::uint32_t kChunks = 10;
  NumaFlow() {
    const std::uint64_t bytes = std::uint64_t{kChunks} * limits::kChunkBytesMax;
    std::vector<FileInput> files(1);
    files[0] = {"f", bytes + 8, {8, {{"t", DType::kBF16, {bytes / 2}, 0, bytes}}}};
    base.schema = *build_schema(std::move(files), std::nullopt);
    base.files.assign(1, std::vector<std::byte>(bytes + 8));
    for (std::size_t i = 8; i < bytes; ++i) {
      base.files[0][i] = static_cast<std::byte>(i * 2'654'435'761U >> 13);
    }
    target = base;
    for (std::size_t i = 8; i < bytes; i += 46) target.files[0][i] ^= std::byte{1};
    lattice = *Lattice::default_for(base.schema);
  }

  std::vector<std::uint64_t> encode(WatchedSource& source, const NumaTopology& topology,
                                    std::uint32_t threads) const {
    MemorySlots slots(1);
    ChecksumSink sink;
    EncodeFlowOptions options;
    options.threads = threads;
    options.topology = &topology;
    const auto summary = encode_flow(lattice, {0}, source, slots, sink, options);
    EXPECT_TRUE(summary) << summary.error().message();
    return sink.checksums;
  }

  // This machine's processors, one to a node.
  static NumaTopology one_per_node(const Cpus& cpus) {
    NumaTopology topology;
    for (std::uint32_t n = 0; n < cpus.size(); ++n) topology.nodes.push_back({n, {cpus[n]}});
    return topology;
  }

  MemoryCheckpoint base;
  MemoryCheckpoint target;
  Lattice lattice;
};

TEST_F(NumaFlow, BindsEveryThreadToTheProcessorsOfItsNode) {
  const Cpus all = binding();
  const NumaTopology one = one_per_node({all.back()});
  MemoryChunkSource memory(lattice, base, target);
  WatchedSource source(memory, 0);
  encode(source, one, 4);
  ASSERT_EQ(source.seen().size(), kChunks);
  for (const auto& [chunk, cpus] : source.seen()) EXPECT_EQ(cpus, Cpus{all.back()}) << chunk;
  EXPECT_EQ(binding(), all);  // and lets go of the calling thread
  WatchedSource again(memory, 0);
  ASSERT_TRUE(digest_flow(lattice, again, 4, one));
  for (const auto& [chunk, cpus] : again.seen()) EXPECT_EQ(cpus, Cpus{all.back()}) << chunk;
  EXPECT_EQ(binding(), all);
}

TEST_F(NumaFlow, ReadsEveryChunkOnTheNodeThatHoldsIt) {
  Cpus cpus = binding();
  cpus.resize(2, cpus.front());
  MemoryChunkSource memory(lattice, base, target);
  WatchedSource source(memory, 2);
  encode(source, one_per_node(cpus), 2);
  ASSERT_EQ(source.seen().size(), kChunks);
  for (const auto& [chunk, seen] : source.seen()) EXPECT_EQ(seen, Cpus{cpus[chunk % 2]}) << chunk;
}

// What a trainer's put() does: parts of the chunks, in windows.
TEST_F(NumaFlow, EncodesPartsOnTheNodesThatHoldThemAndToTheSameFrames) {
  Cpus cpus = binding();
  const Cpus before = cpus;
  cpus.resize(2, cpus.front());
  MemoryChunkSource memory(lattice, base, target);
  WatchedSource source(memory, 2);
  std::vector<ChunkIndex> chunks;
  for (std::uint32_t i = 0; i < kChunks; ++i) chunks.push_back({i});
  const auto frames_of = [&](const NumaTopology& topology, std::uint32_t threads) {
    MemorySlots slots(1);
    ChecksumSink sink;
    EncodeFlowOptions options;
    options.threads = threads;
    options.topology = &topology;
    PartEncoder parts(lattice, {0}, slots, sink, options);
    EXPECT_TRUE(parts.encode(std::span(chunks).first(3), source));
    EXPECT_TRUE(parts.encode(std::span(chunks).subspan(3), source));
    EXPECT_TRUE(parts.finish(DigestTable(lattice.chunk_count())));
    return sink.checksums;
  };
  const auto frames = frames_of(one_per_node({cpus.front()}), 1);
  EXPECT_FALSE(frames.empty());
  EXPECT_EQ(source.asked, 0U);  // one node: there is nothing to choose
  for (std::uint32_t i = 0; i < 5; ++i) EXPECT_EQ(frames_of(one_per_node(cpus), 2), frames);
  EXPECT_EQ(binding(), before);
  EXPECT_EQ(source.asked, 5 * kChunks);
  // Its own node's, unless that one's thread came late: then the other's.
  for (const auto& [chunk, seen] : source.seen()) EXPECT_EQ(seen.size(), 1U) << chunk;
}

TEST_F(NumaFlow, GivesTheSameFramesAndDigestsOnAnyNumberOfNodes) {
  Cpus cpus = binding();
  MemoryChunkSource memory(lattice, base, target);
  WatchedSource source(memory, 0);
  const NumaTopology one = one_per_node({cpus.front()});
  const NumaTopology all = one_per_node(cpus);
  const auto frames = encode(source, one, 1);
  EXPECT_FALSE(frames.empty());
  for (std::uint32_t i = 0; i < 5; ++i) EXPECT_EQ(encode(source, all, 16), frames);
  const auto table = digest_flow(lattice, source, 1, one);
  const auto other = digest_flow(lattice, source, 16, all);
  ASSERT_TRUE(table && other);
  EXPECT_EQ(*table, *other);
}

TEST_F(NumaFlow, EndsWithTheSourcesErrorOnSeveralNodes) {
  class Failing final : public ChunkSource {
   public:
    Status read(ChunkIndex chunk, std::span<std::byte>, std::span<std::byte>) override {
      if (chunk.value != 3) return ok();
      return failure(ErrorCode::kIoFailed, Stage::kScan, "chunk 3");
    }
  } source;
  const NumaTopology all = one_per_node(binding());
  MemorySlots slots(1);
  ChecksumSink sink;
  EncodeFlowOptions options;
  options.threads = 16;
  options.topology = &all;
  const auto summary = encode_flow(lattice, {0}, source, slots, sink, options);
  ASSERT_FALSE(summary);
  EXPECT_EQ(summary.error().code, ErrorCode::kIoFailed);
  const auto table = digest_flow(lattice, source, 16, all);
  ASSERT_FALSE(table);
  EXPECT_EQ(table.error().code, ErrorCode::kIoFailed);
}

}  // namespace
}  // namespace weft::codec
