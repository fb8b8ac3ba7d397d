// SPDX-License-Identifier: Apache-2.0
// What a refit costs a trainer: put() of every shard tensor of one rank (gather, compare, encode,
// hash, pending values, frames into slots), beside the bare two-stream compare of the same memory,
// in the same run. Nothing is sent: a frame's slot comes back at once.
//   bench_publisher_put OLD_DIR NEW_DIR [runs 5] [threads 1]
// Row-parallel: rank 0 of 4 has a quarter of the columns of every matrix that can be cut so.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "agent/lib/shard_baseline.hpp"
#include "agent/lib/shard_source.hpp"
#include "apply/store/checkpoint_dir.hpp"
#include "bench/timing.hpp"
#include "codec/flow/part_encoder.hpp"
#include "codec/kernels/kernel_set.hpp"
#include "codec/project/layouts.hpp"
#include "transport/buffer/slab_pool.hpp"
#include "weft/base/assert.hpp"
#include "weft/base/event_sink.hpp"

namespace {

using weft::bench::median;
using weft::bench::seconds_of;
using namespace weft;  // NOLINT(google-build-using-namespace)

// Threads: one at a time.
class Nowhere final : public codec::FrameSink {
 public:
  Status take(SharedSlot, const wire::FrameHeader& header) override {
    bytes += header.frame_bytes();
    return ok();
  }
  std::uint64_t bytes = 0;
};

// One rank's part of a checkpoint, with the new values as its shard.
// Threads: one at a time.
struct Rank {
  codec::Lattice lattice;
  codec::Projection projection;
  codec::Gather gather;
  std::unique_ptr<agent::ShardBaseline> baseline;
  std::vector<std::vector<std::byte>> shards;  // by source
  std::uint64_t bytes = 0;
};

using Layout = std::function<bool(codec::ProjectionBuilder&, const codec::Tensor&)>;

// The projections of all ranks; a tensor that the layout leaves out is in none.
codec::Lattice lattice_of(const codec::Schema& schema, std::uint32_t ranks, const Layout& layout,
                          codec::Projection& own) {
  std::vector<codec::Tile> tiles;
  for (std::uint32_t r = 0; r < ranks; ++r) {
    codec::ProjectionBuilder builder(schema, {{r, ranks}, {}, {}});
    for (const codec::Tensor& tensor : schema.tensors()) {
      if (!layout(builder, tensor)) WEFT_ASSERT(builder.replicated(tensor.name, tensor.name));
    }
    const auto part = codec::tiles_of(schema, builder.projection(), ProducerIndex{r});
    WEFT_ASSERT(part);
    tiles.insert(tiles.end(), part->begin(), part->end());
    if (r == 0) own = std::move(builder).take();
  }
  auto lattice = codec::Lattice::from_tiles(schema, std::move(tiles), ranks);
  WEFT_ASSERT(lattice);
  return *std::move(lattice);
}

std::vector<std::byte> read_tensor(const apply::CheckpointDir& dir, const codec::Lattice& whole,
                                   TensorIndex tensor) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(dir.schema().tensor(tensor).bytes));
  for (std::uint32_t i = 0; i < whole.chunk_count(); ++i) {
    const codec::ChunkPlace place = whole.place({i});
    if (place.tensor != tensor) continue;
    WEFT_ASSERT(
        dir.read(place, std::span(bytes).subspan(static_cast<std::size_t>(place.first_element) * 2,
                                                 place.bytes())));
  }
  return bytes;
}

// The shard as the trainer has it: runs of the checkpoint's tensors, or a column cut of them.
void fill_shards(Rank& rank, const apply::CheckpointDir& target) {
  const auto whole = codec::Lattice::default_for(target.schema());
  WEFT_ASSERT(whole);
  for (const codec::Box& box : rank.projection.boxes) {
    WEFT_ASSERT(box.rank <= 2);
    const std::vector<std::byte> values = read_tensor(target, *whole, box.target);
    const codec::BoxAxis rows = box.rank == 2 ? box.axes[0] : codec::BoxAxis{};
    const codec::BoxAxis run = box.rank == 0 ? codec::BoxAxis{1, 1, 1} : box.axes[box.rank - 1];
    WEFT_ASSERT(run.source_stride == 1 && run.target_stride == 1);
    for (std::uint64_t i = 0; i < rows.extent; ++i) {
      std::memcpy(rank.shards[box.source].data() + 2 * (box.source_offset + i * rows.source_stride),
                  values.data() + 2 * (box.target_offset + i * rows.target_stride), 2 * run.extent);
    }
  }
}

Rank open_rank(const apply::CheckpointDir& base, const apply::CheckpointDir& target,
               std::uint32_t ranks, const Layout& layout) {
  Rank rank;
  rank.lattice = lattice_of(base.schema(), ranks, layout, rank.projection);
  auto gather = codec::Gather::open(base.schema(), rank.lattice, ProducerIndex{0}, rank.projection);
  WEFT_ASSERT(gather);
  rank.gather = *std::move(gather);
  auto baseline = agent::ShardBaseline::open(rank.lattice, ProducerIndex{0}, {&base, nullptr, 2});
  WEFT_ASSERT(baseline);
  rank.baseline = *std::move(baseline);
  for (const codec::ShardTensor& source : rank.projection.sources) {
    rank.shards.emplace_back(static_cast<std::size_t>(source.element_count) * 2);
    rank.bytes += rank.shards.back().size();
  }
  fill_shards(rank, target);
  return rank;
}

// Everything that put() and commit() do but for the network.
std::uint64_t put_all(const codec::Schema& schema, Rank& rank, SlotSource& slots,
                      std::uint32_t threads) {
  agent::PutTensors put(rank.shards.size());
  agent::ShardSource source(schema, rank.lattice, rank.gather, *rank.baseline, put);
  Nowhere sink;
  codec::EncodeFlowOptions options;
  options.threads = threads;
  codec::PartEncoder encoder(rank.lattice, ProducerIndex{0}, slots, sink, options);
  const codec::ChunkRange own = rank.lattice.chunks_of(ProducerIndex{0});
  std::vector<std::vector<ChunkIndex>> chunks(rank.shards.size());
  for (std::uint32_t i = 0; i < own.count; ++i) {
    const ChunkIndex chunk{own.first.value + i};
    chunks[rank.gather.sources_of(chunk).front()].push_back(chunk);
  }
  for (std::size_t s = 0; s < rank.shards.size(); ++s) {
    put.tensors[s].put = true;
    put.views[s] = rank.shards[s];
    WEFT_ASSERT(encoder.encode(chunks[s], source));
  }
  const auto summary = encoder.finish(rank.baseline->table());
  WEFT_ASSERT(summary);
  rank.baseline->drop();
  return summary->seal.changed_elements;
}

void compare_all(const Rank& rank, std::vector<std::uint32_t>& positions) {
  const codec::ChunkRange own = rank.lattice.chunks_of(ProducerIndex{0});
  std::size_t s = 0;
  std::size_t at = 0;
  for (std::uint32_t i = 0; i < own.count; ++i) {
    const auto old_bytes = rank.baseline->old_bytes({own.first.value + i});
    while (rank.shards[s].size() - at < old_bytes.size()) {
      ++s;
      at = 0;
    }
    const auto elements = static_cast<std::uint32_t>(old_bytes.size() / 2);
    codec::kernels().scan(old_bytes.data(), rank.shards[s].data() + at, elements, 2,
                          positions.data());
    at += old_bytes.size();
  }
}

// Threads: a value; one at a time.
struct Pair {
  const apply::CheckpointDir& base;
  const apply::CheckpointDir& target;
  int runs;
  std::uint32_t threads;
};

void measure(const std::string& name, const Pair& pair, std::uint32_t ranks, const Layout& layout) {
  const apply::CheckpointDir& base = pair.base;
  Rank rank = open_rank(base, pair.target, ranks, layout);
  NullEventSink events;
  auto pool = transport::SlabPool::open({.slot_count = 16}, events);
  WEFT_ASSERT(pool);
  std::vector<std::uint32_t> positions(limits::kChunkElementsMax + 64);
  std::vector<double> puts;
  std::vector<double> compares;
  std::uint64_t changed = 0;
  for (int run = 0; run < pair.runs; ++run) {
    puts.push_back(
        seconds_of([&] { changed = put_all(base.schema(), rank, **pool, pair.threads); }));
    compares.push_back(seconds_of([&] { compare_all(rank, positions); }));
  }
  const double bytes = static_cast<double>(rank.bytes);
  std::printf("%-28s %5.0f MiB %5.2f %%  put %6.2f GB/s  compare %6.2f GB/s  ratio %.2f\n",
              name.c_str(), bytes / 1048576, 200.0 * static_cast<double>(changed) / bytes,
              bytes / median(puts) * 1e-9, bytes / median(compares) * 1e-9,
              median(compares) / median(puts));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: %s OLD_DIR NEW_DIR [runs 5] [threads 1]\n", argv[0]);
    return 2;
  }
  const int runs = argc > 3 ? std::atoi(argv[3]) : 5;
  const auto threads = static_cast<std::uint32_t>(argc > 4 ? std::atoi(argv[4]) : 1);
  NullEventSink events;
  const auto base = apply::CheckpointDir::open_path(argv[1], apply::Access::kRead, {}, events);
  const auto target = apply::CheckpointDir::open_path(argv[2], apply::Access::kRead, {}, events);
  if (!base || !target) {
    std::fprintf(stderr, "%s\n", (!base ? base.error() : target.error()).message().c_str());
    return 1;
  }
  const Pair pair{*base, *target, runs, threads};
  measure("contiguous", pair, 1,
          [](codec::ProjectionBuilder&, const codec::Tensor&) { return false; });
  measure("row-parallel, rank 0 of 4", pair, 4,
          [](codec::ProjectionBuilder& builder, const codec::Tensor& tensor) {
            if (tensor.shape.size() != 2 || tensor.shape[1] % 4 != 0) return false;
            WEFT_ASSERT(builder.row_parallel(tensor.name, tensor.name));
            return true;
          });
  return 0;
}
