// SPDX-License-Identifier: Apache-2.0
// Boxes into pieces that lie in one tile each and keep constant steps there. Internal to project/.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "codec/project/gather.hpp"

namespace weft::codec {

// Whether the boxes fill the tiles, each element once, or may leave any of them out.
enum class Fill : std::uint8_t { kWhole, kPart };

// One list per tile, ascending by tile_offset. `tiles`: those of the projection, or with kPart
// others that hold it, ascending by tensor and first element. Errors: kUnsupported (too many
// pieces), kConfig (a box beside all tiles).
Result<std::vector<std::vector<TilePiece>>> cut_pieces(const Schema& schema,
                                                       const Projection& projection,
                                                       std::span<const Tile> tiles,
                                                       Fill fill = Fill::kWhole);

}  // namespace weft::codec
