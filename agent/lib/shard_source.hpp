// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "agent/lib/shard_baseline.hpp"
#include "codec/flow/encode_flow.hpp"
#include "codec/flow/numa_plan.hpp"
#include "codec/project/gather.hpp"
#include "weft/base/guarded.hpp"
#include "weft/publisher.hpp"

namespace weft::agent {

// What a trainer has put for one shard tensor.
// Threads: a value; one at a time.
struct PutTensor {
  bool put = false;
  ShardType type = ShardType::kSame;
  const ResidualConverter* converter = nullptr;  // in place of a view
  std::vector<std::byte> kept;                   // the view's bytes, if they are needed for longer
};

// Both in the order of the projection's sources.
// Threads: a value; one at a time.
struct PutTensors {
  explicit PutTensors(std::size_t count) : tensors(count), views(count) {}
  std::vector<PutTensor> tensors;
  std::vector<std::span<const std::byte>> views;  // empty where nothing is at hand
};

// Old values from the baseline, new ones from what has been put: gathered, cast or converted. What
// differs is noted in the baseline as pending.
// Threads: any for read(); what was put changes with nobody at work.
class ShardSource final : public codec::ChunkSource {
 public:
  // All of them must outlive this. `node_of` says where old values lie.
  ShardSource(const codec::Schema& schema, const codec::Lattice& lattice,
              const codec::Gather& gather, ShardBaseline& baseline, const PutTensors& put,
              codec::NodeOfMemory node_of = codec::node_of_memory);
  ~ShardSource() override;

  // A run of a shard tensor in the checkpoint's type is encoded from the trainer's own memory.
  std::optional<codec::ChunkValues> in_place(ChunkIndex chunk) override;
  Status read(ChunkIndex chunk, std::span<std::byte> old_bytes,
              std::span<std::byte> new_bytes) override;
  void encoded(ChunkIndex chunk, const codec::ChunkValues& values,
               std::uint32_t changed_count) override;
  // Where the baseline's bytes lie; the new ones may be the trainer's, or a converter's.
  std::optional<std::uint32_t> numa_node(ChunkIndex chunk) const override;

 private:
  struct Scratch;
  std::unique_ptr<Scratch> take_scratch();
  Status fill(ChunkIndex chunk, const codec::ChunkPlace& place, Scratch& scratch,
              std::span<std::byte> new_bytes) const;
  Status fill_in_type(ChunkIndex chunk, const codec::ChunkPlace& place, ShardType type,
                      Scratch& scratch, std::span<std::byte> new_bytes) const;

  const codec::Schema& schema_;
  const codec::Lattice& lattice_;
  const codec::Gather& gather_;
  ShardBaseline& baseline_;
  const PutTensors& put_;
  const codec::NodeOfMemory node_of_;
  Guarded<std::vector<std::unique_ptr<Scratch>>> scratches_;
};

}  // namespace weft::agent
