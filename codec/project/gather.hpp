// SPDX-License-Identifier: Apache-2.0
// From a shard's memory to chunks of the checkpoint, through boxes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "codec/project/box.hpp"
#include "codec/project/lattice.hpp"
#include "weft/base/limits.hpp"
#include "weft/base/result.hpp"

namespace weft::codec {

// A piece of a box inside one tile; places count in the tile's own order of elements.
// Threads: a value; one at a time.
struct TilePiece {
  std::uint32_t source = 0;
  std::uint64_t source_offset = 0;
  std::uint64_t tile_offset = 0;
  std::uint64_t tile_end = 0;  // one behind its last element
  std::uint32_t rank = 0;
  std::array<BoxAxis, limits::kBoxRankMax> axes{};  // target_stride: within the tile
};

// Gather copies chunks of one producer out of its shard. A column cut is copied like any other run,
// because a chunk has the shard's own order; transposes and interleaves are walked in the order of
// the chunk.
// Invariant: the pieces of a tile fill it exactly, but for one of open_part.
// Threads:   immutable.
class Gather {
 public:
  Gather() = default;

  // `lattice` holds the tiles that tiles_of gives for this projection; it must outlive this.
  // Errors: of tiles_of; kConfig (the lattice has other tiles for this producer).
  static Result<Gather> open(const Schema& schema, const Lattice& lattice, ProducerIndex producer,
                             const Projection& projection);

  // The same for boxes that lie in this producer's tiles and leave any elements of them out, but
  // name none twice. Errors: of check_box; kConfig or kUnsupported (a box beside the tiles; too
  // many pieces).
  static Result<Gather> open_part(const Schema& schema, const Lattice& lattice,
                                  ProducerIndex producer, const Projection& projection);
  // Of open_part: the chunks that have any of its elements, ascending, and how many.
  // Threads: a value; one at a time.
  struct ChunkShare {
    ChunkIndex chunk;
    std::uint32_t element_count = 0;
  };
  std::vector<ChunkShare> shares() const;

  // Where all elements of a chunk lie one behind the other in one source.
  // Threads: a value; one at a time.
  struct SourceRow {
    std::uint32_t source = 0;
    std::uint64_t first_element = 0;
  };
  // Nothing when they are scattered, or in several sources. Of open_part: ask for whole chunks
  // only.
  std::optional<SourceRow> row_of(ChunkIndex chunk) const;
  // Sources that the chunk's elements come from, each once, ascending.
  std::vector<std::uint32_t> sources_of(ChunkIndex chunk) const;
  // The chunk's bytes as one span of a source, where its elements lie there in a row; else empty.
  std::span<const std::byte> in_place(ChunkIndex chunk,
                                      std::span<const std::span<const std::byte>> sources) const;
  // `sources`: the bytes of every source, in the order of the projection; those that the chunk does
  // not need may be empty. `into` has the chunk's size. Errors: kConfig (a source is too short).
  Status read(ChunkIndex chunk, std::span<const std::span<const std::byte>> sources,
              std::span<std::byte> into) const;
  // The same where elements of the sources have another size than those of the checkpoint (they are
  // cast next): `into` holds as many elements as the chunk, of `source_bytes` each: 1, 2, 4 or 8.
  Status read_as(std::uint32_t source_bytes, ChunkIndex chunk,
                 std::span<const std::span<const std::byte>> sources,
                 std::span<std::byte> into) const;

 private:
  struct ChunkPieces {
    ChunkPlace place;
    std::span<const TilePiece> pieces;  // those of its tile that may reach into it
  };
  ChunkPieces pieces_of(ChunkIndex chunk) const;
  // Chunks that may have a piece of this tile of the producer.
  ChunkRange chunks_of_tile(std::size_t number) const;
  void take_pieces(std::vector<std::vector<TilePiece>> by_tile, const Projection& projection);

  const Lattice* lattice_ = nullptr;
  ProducerIndex producer_;
  std::size_t first_tile_ = 0;               // of the producer, in lattice order
  std::vector<TilePiece> pieces_;            // tile by tile, by tile_offset
  std::vector<std::uint32_t> first_pieces_;  // per tile of the producer, and one behind the last
  std::vector<std::uint64_t> highest_ends_;  // per piece: highest tile_end of its tile so far
  std::vector<std::uint64_t> source_ends_;   // per source: elements that are needed of it
};

}  // namespace weft::codec
