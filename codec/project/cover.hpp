// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "codec/project/tile.hpp"
#include "codec/safetensors/schema.hpp"
#include "weft/base/result.hpp"

namespace weft::codec {

// kOnce: every element of every tensor in exactly one tile. kAtMostOnce: gaps are none of ours, and
// tensors without a tile are not looked at.
enum class Cover : std::uint8_t { kOnce, kAtMostOnce };

// Every element of every tensor in exactly one tile, or in one at most. `tiles` is sorted by tensor
// and first element, in shortest form. Linear in the tiles for runs; boxes of one tensor are swept
// dimension by dimension. Errors: kConfig (a gap, an overlap, a tile that leaves its tensor; names
// tensor and range), kUnsupported (a tile that is neither box nor run, or a patchwork too irregular
// to check).
Status check_cover(const Schema& schema, const std::vector<Tile>& tiles,
                   Cover cover = Cover::kOnce);

}  // namespace weft::codec
