// SPDX-License-Identifier: Apache-2.0
// Boxes in a tensor's own dimensions: start and extent per dimension. Tiles are compared, merged
// and checked in this form.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "codec/project/tile.hpp"
#include "codec/safetensors/schema.hpp"
#include "weft/base/limits.hpp"

namespace weft::codec {

// A tensor's dimensions of more than one element, in storage words. A tensor of more than
// kBoxRankMax of them, or whose words do not follow its shape (sub-byte types), counts as flat.
// Threads: a value; one at a time.
struct TensorDims {
  std::uint32_t rank = 1;
  std::array<std::uint64_t, limits::kBoxRankMax> size{};
  std::array<std::uint64_t, limits::kBoxRankMax> stride{};

  static TensorDims of(const Tensor& tensor);
};

// Threads: a value; one at a time.
struct TensorBox {
  std::array<std::uint64_t, limits::kBoxRankMax> start{};
  std::array<std::uint64_t, limits::kBoxRankMax> extent{};
  auto operator<=>(const TensorBox&) const = default;
};

// Axes of extent 1 removed, axes that continue each other joined.
Tile shortest_form(const Tile& tile);

// The boxes that a tile consists of: one, or at most 2 * rank - 1 for a flat run. False: it is
// neither a box nor a run of this tensor, or it leaves the tensor.
bool boxes_of(const TensorDims& dims, const Tile& tile, std::vector<TensorBox>& out);

// Nothing when the box needs more than kTileAxesMax axes.
std::optional<Tile> tile_of(const TensorDims& dims, const TensorBox& box);

}  // namespace weft::codec
