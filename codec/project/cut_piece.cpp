// SPDX-License-Identifier: Apache-2.0
#include "codec/project/cut_piece.hpp"

#include <algorithm>
#include <optional>
#include <string>

namespace weft::codec {

namespace {

constexpr std::size_t kPiecesMax = std::size_t{1} << 22;
constexpr std::size_t kDigitsMax = limits::kTileAxesMax + 1;

// A distance inside a tile, as steps along its axes; the run is the last one.
// Threads: a value; one at a time.
using Digits = std::array<std::uint64_t, kDigitsMax>;

// The axes of a tile and of its own order.
// Threads: a value; one at a time.
struct TileGrid {
  std::uint32_t count = 1;
  std::array<TileAxis, kDigitsMax> axes{};          // in the tensor; the run is the last one
  std::array<std::uint64_t, kDigitsMax> weights{};  // elements of the tile per step

  explicit TileGrid(const Tile& tile) {
    count = tile.axis_count() + 1;
    for (std::uint32_t i = 0; i + 1 < count; ++i) axes[i] = tile.outer[i];
    axes[count - 1] = {tile.run_elements(), 1};
    std::uint64_t weight = 1;
    for (std::uint32_t i = count; i-- > 0;) {
      weights[i] = weight;
      weight *= axes[i].extent;
    }
  }

  // Nothing when the distance leads beside the grid.
  std::optional<Digits> digits(std::uint64_t distance) const {
    Digits found{};
    for (std::uint32_t i = 0; i < count; ++i) {
      found[i] = distance / axes[i].stride;
      distance %= axes[i].stride;
      if (found[i] >= axes[i].extent) return std::nullopt;
    }
    return distance == 0 ? std::optional(found) : std::nullopt;
  }
};

// Threads: one at a time.
class BoxCutter {
 public:
  BoxCutter(std::span<const Tile> tiles, std::span<std::vector<TilePiece>> out)
      : tiles_(tiles), out_(out) {
    for (const Tile& tile : tiles) grids_.emplace_back(tile);
  }

  // `box` in shortest form. False: an element lies in no tile, or there are too many pieces.
  bool cut(const Box& box) {
    open_.assign(1, box);
    while (!open_.empty()) {
      const Box next = open_.back();
      open_.pop_back();
      if (!cut_one(next)) return false;
    }
    return true;
  }

 private:
  bool cut_one(const Box& box) {
    for (std::size_t t = 0; t < tiles_.size(); ++t) {
      if (box.target_offset < tiles_[t].first_element) continue;
      const auto first = grids_[t].digits(box.target_offset - tiles_[t].first_element);
      if (first) return cut_in(t, *first, box);
    }
    return false;
  }

  // Axes are taken innermost first, each as far as the tile goes on; what is left is cut alone.
  bool cut_in(std::size_t number, const Digits& first, const Box& box) {
    const TileGrid& grid = grids_[number];
    TilePiece piece;
    piece.source = box.source;
    piece.source_offset = box.source_offset;
    piece.rank = box.rank;
    for (std::uint32_t i = 0; i < grid.count; ++i) piece.tile_offset += first[i] * grid.weights[i];
    Digits highest = first;
    Box rest = box;
    for (std::uint32_t a = box.rank; a-- > 0;) {
      const BoxAxis& axis = box.axes[a];
      const auto step = grid.digits(axis.target_stride);
      std::uint64_t fits = 1;
      std::uint64_t tile_stride = 0;
      if (step) {
        fits = axis.extent;
        for (std::uint32_t i = 0; i < grid.count; ++i) {
          tile_stride += (*step)[i] * grid.weights[i];
          if ((*step)[i] == 0) continue;
          fits = std::min(fits, (grid.axes[i].extent - 1 - highest[i]) / (*step)[i] + 1);
        }
        for (std::uint32_t i = 0; i < grid.count; ++i) highest[i] += (fits - 1) * (*step)[i];
      }
      piece.axes[a] = {fits, axis.source_stride, tile_stride};
      if (fits < axis.extent) {
        rest.axes[a].extent = fits;
        leave(box, rest, a, fits);
      }
    }
    return put(number, std::move(piece));
  }

  // The steps of axis `a` from `fits` on, with the axes inside it cut down already.
  void leave(const Box& box, const Box& rest, std::uint32_t a, std::uint64_t fits) {
    Box behind = rest;
    behind.axes[a].extent = box.axes[a].extent - fits;
    behind.source_offset += fits * box.axes[a].source_stride;
    behind.target_offset += fits * box.axes[a].target_stride;
    // Outer axes repeat it; they are whole in `rest` still.
    open_.push_back(behind);
  }

  bool put(std::size_t number, TilePiece piece) {
    if (++piece_count_ > kPiecesMax) return false;
    TilePiece shortest = piece;
    shortest.rank = 0;
    std::uint64_t last = piece.tile_offset;
    for (std::uint32_t a = 0; a < piece.rank; ++a) {
      const BoxAxis& axis = piece.axes[a];
      last += (axis.extent - 1) * axis.target_stride;
      if (axis.extent == 1) continue;
      BoxAxis* const outer = shortest.rank > 0 ? &shortest.axes[shortest.rank - 1] : nullptr;
      if (outer != nullptr && outer->target_stride == axis.extent * axis.target_stride &&
          outer->source_stride == axis.extent * axis.source_stride) {
        *outer = {outer->extent * axis.extent, axis.source_stride, axis.target_stride};
      } else {
        shortest.axes[shortest.rank++] = axis;
      }
    }
    shortest.tile_end = last + 1;
    out_[number].push_back(shortest);
    return true;
  }

  std::span<const Tile> tiles_;
  std::span<std::vector<TilePiece>> out_;
  std::vector<TileGrid> grids_;
  std::vector<Box> open_;  // still to be cut
  std::size_t piece_count_ = 0;
};

}  // namespace

Result<std::vector<std::vector<TilePiece>>> cut_pieces(const Schema& schema,
                                                       const Projection& projection,
                                                       std::span<const Tile> tiles, Fill fill) {
  std::vector<std::vector<TilePiece>> by_tile(tiles.size());
  std::vector<const Box*> order;
  for (const Box& box : projection.boxes) order.push_back(&box);
  std::stable_sort(order.begin(), order.end(),
                   [](const Box* a, const Box* b) { return a->target < b->target; });
  std::size_t first = 0;
  for (auto box = order.begin(); box != order.end();) {
    const TensorIndex target = (*box)->target;
    while (first < tiles.size() && tiles[first].tensor < target) ++first;
    std::size_t last = first;
    while (last < tiles.size() && tiles[last].tensor == target) ++last;
    BoxCutter cutter(tiles.subspan(first, last - first),
                     std::span(by_tile).subspan(first, last - first));
    for (; box != order.end() && (*box)->target == target; ++box) {
      if (!cutter.cut(shortest_form(**box))) {
        return failure(ErrorCode::kUnsupported, Stage::kOpen,
                       "projection: a box of tensor " + schema.tensor(target).name +
                           " falls into too many pieces: hand it over as a residual");
      }
    }
  }
  for (std::size_t t = 0; t < tiles.size(); ++t) {
    auto& pieces = by_tile[t];
    std::sort(pieces.begin(), pieces.end(),
              [](const TilePiece& a, const TilePiece& b) { return a.tile_offset < b.tile_offset; });
    std::uint64_t count = 0;
    for (const TilePiece& piece : pieces) {
      std::uint64_t elements = 1;
      for (std::uint32_t a = 0; a < piece.rank; ++a) elements *= piece.axes[a].extent;
      count += elements;
    }
    if (fill == Fill::kWhole && count != tiles[t].element_count) {
      return failure(ErrorCode::kConfig, Stage::kOpen,
                     "projection: boxes of tensor " + schema.tensor(tiles[t].tensor).name +
                         " name an element twice");
    }
  }
  return by_tile;
}

}  // namespace weft::codec
