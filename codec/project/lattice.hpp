// SPDX-License-Identifier: Apache-2.0
// The lattice: which producer owns which part of which tensor, and how the parts are cut into
// chunks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "codec/project/tile.hpp"
#include "codec/safetensors/schema.hpp"
#include "weft/base/ids.hpp"
#include "weft/base/limits.hpp"
#include "weft/base/result.hpp"

namespace weft::codec {

// Chunks of one producer: [first, first + count).
// Threads: a value; one at a time.
struct ChunkRange {
  ChunkIndex first;
  std::uint32_t count = 0;
  bool contains(ChunkIndex chunk) const { return chunk.value - first.value < count; }
};

// Most elements that a chunk of such words holds.
constexpr std::uint32_t chunk_elements_max(std::uint32_t element_bytes) {
  const std::uint32_t by_bytes = limits::kChunkBytesMax / element_bytes;
  return by_bytes < limits::kChunkElementsMax ? by_bytes : limits::kChunkElementsMax;
}

// Lattice is the fixed cut of a checkpoint into tiles and chunks, for one run.
// Invariant: the tiles cover every element of the schema exactly once; they are ordered by
//            producer, tensor, first element, so a producer's chunks are consecutive.
// Threads:   immutable.
class Lattice {
 public:
  Lattice() = default;

  // One producer; whole tensors in schema order. Errors: kResourceLimit.
  static Result<Lattice> default_for(const Schema& schema);
  // Any order of tiles, in any form. Errors: kConfig for an overlap, a gap or an element out of
  // range (names tensor and range), kUnsupported for too many tiles or one that is neither a box
  // nor a run (names the tensor), kResourceLimit for too many chunks.
  static Result<Lattice> from_tiles(const Schema& schema, std::vector<Tile> tiles,
                                    std::uint32_t producer_count);
  // Bytes of encode(), from anywhere. Errors: kProtocol, or as from_tiles.
  static Result<Lattice> decode(const Schema& schema, std::span<const std::byte> bytes);
  std::vector<std::byte> encode() const;

  const Digest& digest() const { return digest_; }
  const Digest& schema_digest() const { return schema_digest_; }
  std::uint32_t producer_count() const { return producer_count_; }
  std::uint32_t chunk_count() const { return chunk_count_; }
  const std::vector<Tile>& tiles() const { return tiles_; }
  ChunkRange chunks_of(ProducerIndex producer) const { return ranges_[producer.value]; }
  // Place in tiles() of the chunk's tile. chunk < chunk_count().
  std::size_t tile_of(ChunkIndex chunk) const;
  // chunk < chunk_count().
  ChunkPlace place(ChunkIndex chunk) const;

 private:
  Status settle(const Schema& schema);

  Digest digest_;
  Digest schema_digest_;
  std::uint32_t producer_count_ = 0;
  std::uint32_t chunk_count_ = 0;
  std::vector<Tile> tiles_;
  std::vector<ElementFormat> formats_;       // per tile
  std::vector<std::uint32_t> first_chunks_;  // per tile
  std::vector<ChunkRange> ranges_;           // per producer
};

}  // namespace weft::codec
