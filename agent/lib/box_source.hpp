// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "agent/lib/shard_source.hpp"
#include "codec/flow/encode_flow.hpp"
#include "codec/project/gather.hpp"
#include "weft/publisher.hpp"
#include "weft/shard_box.hpp"

namespace weft::agent {

// BoxSource is what one refit has been given by put_shard: which elements, and the values of chunks
// that are not whole yet. A chunk that one view holds whole is read where it lies.
// Invariant: no element is given twice, and all of them are this producer's.
// Owns:      a chunk's bytes from its first element to its last, where they come in several views.
// Threads:   ChunkSource's: any; the others: one at a time, with nobody at work.
class BoxSource final : public codec::ChunkSource {
 public:
  // All must outlive this. `note` is told what has been encoded.
  BoxSource(const codec::Schema& schema, const codec::Lattice& lattice, ProducerIndex producer,
            const ShardBaseline& baseline, codec::ChunkSource& note);

  // What a view gives: checked, nothing is taken yet. Errors: kConfig (names tensor and range where
  // an element is another producer's or was given before), kUnsupported (boxes too scattered).
  Status open(std::span<const ShardBox> boxes, const ShardView& view);
  // Chunks that have an element in the opened view, ascending.
  const std::vector<codec::Gather::ChunkShare>& shares() const { return shares_; }
  // Takes the view, and gives the chunks that are whole now, for one encode().
  Result<std::vector<ChunkIndex>> take();
  // Behind encode(): the view is the caller's again.
  void release(std::span<const ChunkIndex> encoded);

  bool is_used() const { return !given_.empty(); }
  bool has(ChunkIndex chunk) const { return given_chunks_[chunk.value - own_.first.value]; }
  // Chunks that lack elements still, ascending: encoded now, these count as unchanged.
  std::vector<ChunkIndex> unfinished() const;
  // Names a gap. `put`: what was given by name.
  Status check_complete(const codec::Projection& put) const;

  std::optional<codec::ChunkValues> in_place(ChunkIndex chunk) override;
  Status read(ChunkIndex chunk, std::span<std::byte> old_bytes,
              std::span<std::byte> new_bytes) override;
  void encoded(ChunkIndex chunk, const codec::ChunkValues& values,
               std::uint32_t changed_count) override {
    note_.encoded(chunk, values, changed_count);
  }
  std::optional<std::uint32_t> numa_node(ChunkIndex chunk) const override {
    return note_.numa_node(chunk);
  }

 private:
  // A chunk that comes in parts, over its old values.
  // Threads: a value; one at a time.
  struct Parts {
    std::vector<std::byte> bytes;
    std::uint32_t element_count = 0;
  };
  Status set_view(const ShardView& view);
  Status check_once(const std::vector<codec::Tile>& fresh) const;
  Status check_disjoint(std::vector<codec::Tile> tiles, const std::string& what) const;

  const codec::Schema& schema_;
  const codec::Lattice& lattice_;
  const ProducerIndex producer_;
  const codec::ChunkRange own_;
  const ShardBaseline& baseline_;
  codec::ChunkSource& note_;
  std::vector<codec::Tile> given_;
  std::vector<bool> given_chunks_;
  std::map<ChunkIndex, Parts> parts_;
  // The opened view:
  codec::Projection projection_;
  codec::Gather gather_;
  std::vector<codec::Gather::ChunkShare> shares_;
  std::vector<codec::Tile> fresh_;
  std::vector<std::byte> cast_;
  std::span<const std::byte> view_;
};

}  // namespace weft::agent
