// SPDX-License-Identifier: Apache-2.0
// A refit as an agent meets it: a base on a disk, the frames that lead to the target, the manifest.
#pragma once

#include <memory>
#include <vector>

#include "apply/store/checkpoint_dir.hpp"
#include "apply/store/checkpoint_source.hpp"
#include "codec/flow/encode_flow.hpp"
#include "support/checkpoint_files.hpp"
#include "support/memory_slots.hpp"
#include "support/memory_store.hpp"
#include "weft/base/assert.hpp"
#include "weft/wire/manifest.hpp"

namespace weft::test_support {

// Threads: as FrameSink.
class FrameCollector final : public codec::FrameSink {
 public:
  explicit FrameCollector(std::vector<std::vector<std::byte>>& frames) : frames_(frames) {}
  Status take(SharedSlot slot, const wire::FrameHeader&) override {
    const auto frame = slot.frame();
    frames_.emplace_back(frame.begin(), frame.end());
    return ok();
  }

 private:
  std::vector<std::vector<std::byte>>& frames_;
};

inline apply::CheckpointDir open_checkpoint(MemoryDisk& disk, const std::string& name) {
  auto opened =
      apply::CheckpointDir::open(*disk.open()->open_directory(name, false), apply::Access::kRead);
  WEFT_ASSERT(opened);
  return *std::move(opened);
}

// Every tensor has one producer; they take turns.
inline codec::Lattice lattice_of(const codec::Schema& schema, std::uint32_t producer_count) {
  if (producer_count == 1) return *codec::Lattice::default_for(schema);
  std::vector<codec::Tile> tiles;
  for (std::uint32_t i = 0; i < schema.tensors().size(); ++i) {
    const auto& tensor = schema.tensors()[i];
    if (tensor.element_count == 0) continue;
    tiles.push_back({TensorIndex{i}, ProducerIndex{i % producer_count}, 0, tensor.element_count});
  }
  auto lattice = codec::Lattice::from_tiles(schema, std::move(tiles), producer_count);
  WEFT_ASSERT(lattice);
  return *std::move(lattice);
}

// Matrices are cut into columns, one part per producer; the rest is given out as by lattice_of.
inline codec::Lattice column_cut_of(const codec::Schema& schema, std::uint32_t producer_count) {
  std::vector<codec::Tile> tiles;
  for (std::uint32_t i = 0; i < schema.tensors().size(); ++i) {
    const auto& tensor = schema.tensors()[i];
    if (tensor.element_count == 0) continue;
    if (tensor.shape.size() != 2) {
      tiles.push_back({TensorIndex{i}, ProducerIndex{i % producer_count}, 0, tensor.element_count});
      continue;
    }
    const std::uint64_t rows = tensor.shape[0];
    const std::uint64_t width = tensor.shape[1];
    for (std::uint32_t p = 0; p < producer_count; ++p) {
      const std::uint64_t begin = width * p / producer_count;
      const std::uint64_t end = width * (p + 1) / producer_count;
      tiles.push_back(
          {TensorIndex{i}, ProducerIndex{p}, begin, rows * (end - begin), {{{rows, width}}}});
    }
  }
  auto lattice = codec::Lattice::from_tiles(schema, std::move(tiles), producer_count);
  WEFT_ASSERT(lattice);
  return *std::move(lattice);
}

struct TestRefit {
  TestCheckpoint base;
  TestCheckpoint target;
  std::shared_ptr<MemoryDisk> disk = MemoryDisk::make();  // weights/ at base, target/, state/
  codec::Lattice lattice;
  codec::DigestTable table;  // of the base
  wire::Manifest manifest;
  std::vector<std::vector<std::byte>> frames;  // of all producers, in sequence order each
};

inline TestRefit make_refit(const TestCheckpoint& base, const TestCheckpoint& target,
                            std::uint32_t producer_count = 1,
                            codec::Profile profile = codec::Profile::kCompact,
                            codec::Lattice (*cut)(const codec::Schema&,
                                                  std::uint32_t) = lattice_of) {
  TestRefit refit;
  refit.base = base;
  refit.target = target;
  auto root = refit.disk->open();
  write_checkpoint(**root->open_directory("weights", true), base, true);
  write_checkpoint(**root->open_directory("target", true), target, true);
  auto state = *root->open_directory("state", true);
  WEFT_ASSERT(state->open_directory("spool", true) && state->open_directory("journal", true));
  WEFT_ASSERT(state->sync_directory() && root->sync_directory());

  const auto old_dir = open_checkpoint(*refit.disk, "weights");
  const auto new_dir = open_checkpoint(*refit.disk, "target");
  refit.lattice = cut(old_dir.schema(), producer_count);
  apply::CheckpointSource old_source(refit.lattice, old_dir);
  refit.table = *codec::digest_flow(refit.lattice, old_source, 1);

  codec::EncodeFlowOptions options;
  options.ids.fleet = FleetId{{7, 8}};
  options.ids.refit = {{3, ProcessId{0xABC}}, 1};
  options.choice.profile = profile;
  options.frame_bytes = 4096;  // about a chunk a frame
  options.threads = 1;
  MemorySlots slots(4);
  FrameCollector collector(refit.frames);
  apply::CheckpointSource source(refit.lattice, old_dir, new_dir);
  codec::DigestTable target_table(refit.lattice.chunk_count());
  for (std::uint32_t i = 0; i < producer_count; ++i) {
    const ProducerIndex producer{i};
    const auto summary =
        codec::encode_flow(refit.lattice, producer, source, slots, collector, options);
    WEFT_ASSERT(summary);
    refit.manifest.producers.push_back(summary->seal);
    const auto range = refit.lattice.chunks_of(producer);
    for (std::uint32_t c = 0; c < range.count; ++c) {
      const ChunkIndex chunk{range.first.value + c};
      target_table.set(chunk, summary->table.at(chunk));
    }
  }
  refit.manifest.refit = options.ids.refit;
  refit.manifest.fleet = options.ids.fleet;
  refit.manifest.schema = old_dir.schema().digest();
  refit.manifest.base = {Version{4}, refit.lattice.digest(), refit.table.root(refit.lattice)};
  refit.manifest.target = {Version{5}, refit.lattice.digest(), target_table.root(refit.lattice)};
  return refit;
}

}  // namespace weft::test_support
