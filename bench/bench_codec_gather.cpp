// SPDX-License-Identifier: Apache-2.0
// What the map from a shard to chunks costs: every chunk of a shard gathered into a chunk's buffer,
// beside a bare copy of as many bytes into the same buffer, in the same run. Last, the time that a
// lattice of a million tiles takes.
//   bench_codec_gather [MiB 256] [runs 7]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "bench/timing.hpp"
#include "codec/project/gather.hpp"
#include "codec/project/layouts.hpp"
#include "weft/base/assert.hpp"

namespace {

using weft::bench::median;
using weft::bench::seconds_of;
using namespace weft;         // NOLINT(google-build-using-namespace)
using namespace weft::codec;  // NOLINT(google-build-using-namespace)

Schema schema_of(const std::vector<std::pair<std::string, std::vector<std::uint64_t>>>& tensors) {
  std::vector<FileInput> files(1);
  files[0].name = "f";
  std::uint64_t offset = 0;
  std::vector<HeaderTensor> rows;
  for (const auto& [name, shape] : tensors) {
    std::uint64_t bytes = 2;
    for (const std::uint64_t size : shape) bytes *= size;
    rows.push_back({name, DType::kBF16, shape, offset, offset + bytes});
    offset += bytes;
  }
  files[0].bytes = 8 + offset;
  files[0].header = {8, std::move(rows)};
  auto schema = build_schema(std::move(files), std::nullopt);
  WEFT_ASSERT(schema);
  return *std::move(schema);
}

// `build` is called for every rank.
template <typename F>
Lattice lattice_of(const Schema& schema, std::uint32_t ranks, F&& build) {
  std::vector<Tile> tiles;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    ProjectionBuilder builder(schema, {{rank, ranks}, {}, {}});
    const Status built = build(builder);
    WEFT_ASSERT(built);
    const auto own = tiles_of(schema, builder.projection(), ProducerIndex{rank});
    WEFT_ASSERT(own);
    tiles.insert(tiles.end(), own->begin(), own->end());
  }
  auto lattice = Lattice::from_tiles(schema, std::move(tiles), ranks);
  WEFT_ASSERT(lattice);
  return *std::move(lattice);
}

// All of it, through a buffer.
void copy_all(const std::vector<std::vector<std::byte>>& memory, std::span<std::byte> buffer) {
  for (const auto& source : memory) {
    for (std::size_t at = 0; at < source.size(); at += buffer.size()) {
      std::memcpy(buffer.data(), source.data() + at, std::min(buffer.size(), source.size() - at));
      __asm__ volatile("" : : "r"(buffer.data()) : "memory");
    }
  }
}

// Rank 0 is measured.
template <typename F>
void measure(const std::string& name, const Schema& schema, std::uint32_t ranks, int runs,
             F&& build) {
  const Lattice lattice = lattice_of(schema, ranks, build);
  ProjectionBuilder builder(schema, {{0, ranks}, {}, {}});
  WEFT_ASSERT(build(builder));
  const Projection& projection = builder.projection();
  const auto gather = Gather::open(schema, lattice, ProducerIndex{0}, projection);
  WEFT_ASSERT(gather);
  std::vector<std::vector<std::byte>> memory;
  std::vector<std::span<const std::byte>> sources;
  memory.reserve(projection.sources.size());
  for (const ShardTensor& source : projection.sources) {
    memory.emplace_back(static_cast<std::size_t>(source.element_count) * 2, std::byte{1});
  }
  sources.reserve(memory.size());
  for (const auto& bytes : memory) sources.emplace_back(bytes);
  const ChunkRange chunks = lattice.chunks_of(ProducerIndex{0});
  std::vector<std::byte> buffer(limits::kChunkBytesMax);
  std::uint64_t bytes = 0;
  for (std::uint32_t c = 0; c < chunks.count; ++c) {
    bytes += lattice.place({chunks.first.value + c}).bytes();
  }
  std::vector<double> gathers;
  std::vector<double> copies;
  for (int run = 0; run < runs; ++run) {
    gathers.push_back(seconds_of([&] {
      for (std::uint32_t c = 0; c < chunks.count; ++c) {
        const ChunkIndex chunk{chunks.first.value + c};
        const auto into = std::span(buffer).first(lattice.place(chunk).bytes());
        WEFT_ASSERT(gather->read(chunk, sources, into));
      }
    }));
    copies.push_back(seconds_of([&] { copy_all(memory, buffer); }));
  }
  const double gathered = static_cast<double>(bytes) / median(gathers) * 1e-9;
  const double copied = static_cast<double>(bytes) / median(copies) * 1e-9;
  std::printf("%-34s %6.2f GB/s  bare copy %6.2f GB/s  ratio %.2f\n", name.c_str(), gathered,
              copied, gathered / copied);
}

void measure_lattice() {
  std::vector<std::pair<std::string, std::vector<std::uint64_t>>> tensors;
  for (std::uint32_t i = 0; i < 200'000; ++i) {
    tensors.push_back({"t" + std::to_string(i), {4, 10}});
  }
  const Schema schema = schema_of(tensors);
  std::vector<Tile> tiles;
  for (std::uint32_t t = 0; t < tensors.size(); ++t) {
    for (std::uint32_t p = 0; p < 5; ++p) {
      tiles.push_back({{t}, {p}, p * 2, 8, {{{4, 10}}}});
    }
  }
  const double seconds = seconds_of([&] {
    const bool sound = static_cast<bool>(Lattice::from_tiles(schema, tiles, 5));
    WEFT_ASSERT(sound);
  });
  std::printf("lattice of 1,000,000 boxes of 200,000 tensors: %.2f s\n", seconds);
}

}  // namespace

int main(int argc, char** argv) {
  const std::uint64_t mebibytes = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 256;
  const int runs = argc > 2 ? std::atoi(argv[2]) : 7;
  const std::uint64_t rows = 4096;
  const std::uint64_t width = mebibytes * 1024 * 1024 / 2 / rows;
  const Schema matrix = schema_of({{"w", {rows, width}}});
  measure("contiguous (column-parallel)", matrix, 1, runs,
          [](ProjectionBuilder& b) { return b.column_parallel("s", "w"); });
  measure("row-parallel, 4 ranks", matrix, 4, runs,
          [](ProjectionBuilder& b) { return b.row_parallel("s", "w"); });
  const Schema attention =
      schema_of({{"k", {8 * 128, width}}, {"q", {16 * 128, width}}, {"v", {8 * 128, width}}});
  measure("fused attention, 8 groups", attention, 1, runs, [](ProjectionBuilder& b) {
    return b.attention("s", "q", "k", "v", {16, 8, 128});
  });
  const Schema stack = schema_of({{"w", {mebibytes / 8, 2048, 2048}}});
  measure("experts, transposed", stack, 1, runs, [](ProjectionBuilder& b) {
    return b.expert_stack("s", "w", {true, false});
  });
  const Schema pairs =
      schema_of({{"g0", {2048, mebibytes * 128}}, {"u0", {2048, mebibytes * 128}}});
  measure("gate and up rows alternate", pairs, 1, runs, [](ProjectionBuilder& b) {
    return b.expert_gate_up_stack("s", "g{}", "u{}", {false, true});
  });
  const Schema narrow = schema_of({{"g0", {2048, 2048}}, {"u0", {2048, 2048}}});
  measure("gate and up columns alternate", narrow, 1, runs, [](ProjectionBuilder& b) {
    return b.expert_gate_up_stack("s", "g{}", "u{}", {true, true});
  });
  measure_lattice();
  return 0;
}
