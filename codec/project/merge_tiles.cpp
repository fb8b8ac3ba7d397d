// SPDX-License-Identifier: Apache-2.0
// The tiles of one producer: its boxes cut along the tensor's dimensions, then joined.
#include <algorithm>
#include <tuple>

#include "codec/project/box.hpp"
#include "codec/project/tensor_box.hpp"

namespace weft::codec {

namespace {

// Pieces of one tensor before they are joined: a row of every row of a column cut fits easily.
constexpr std::size_t kPiecesMax = std::size_t{1} << 20;

Error scattered(const Tensor& tensor, const std::string& what) {
  return failure(ErrorCode::kUnsupported, Stage::kOpen,
                 "projection: " + what + " of tensor " + tensor.name +
                     " for one producer: hand it over as a residual");
}

// Target elements alone, nested axes, outermost first.
// Threads: a value; one at a time.
struct Pattern {
  std::uint64_t first = 0;
  std::vector<TileAxis> axes;
};

Pattern pattern_of(const Box& box) {
  Pattern pattern;
  pattern.first = box.target_offset;
  const Box shortest = shortest_form(box);
  for (const BoxAxis& axis : shortest.used_axes()) {
    TileAxis* const outer = pattern.axes.empty() ? nullptr : &pattern.axes.back();
    if (outer != nullptr && outer->stride == axis.extent * axis.target_stride) {
      *outer = {outer->extent * axis.extent, axis.target_stride};
    } else {
      pattern.axes.push_back({axis.extent, axis.target_stride});
    }
  }
  return pattern;
}

// The pattern as a tile, if it has few enough axes.
std::optional<Tile> as_tile(const Pattern& pattern) {
  Tile tile;
  tile.first_element = pattern.first;
  tile.element_count = 1;
  std::size_t outer_count = pattern.axes.size();
  if (outer_count > 0 && pattern.axes.back().stride == 1) --outer_count;
  if (outer_count > tile.outer.size()) return std::nullopt;
  for (std::size_t i = 0; i < pattern.axes.size(); ++i) {
    tile.element_count *= pattern.axes[i].extent;
    if (i < outer_count) tile.outer[i] = pattern.axes[i];
  }
  return tile;
}

// The axis to take apart when the pattern is no box: one that steps along no dimension, else the
// outermost one.
std::size_t axis_at_fault(const TensorDims& dims, const Pattern& pattern) {
  for (std::size_t i = 0; i < pattern.axes.size(); ++i) {
    const auto begin = dims.stride.begin();
    const auto end = begin + dims.rank;
    if (std::find(begin, end, pattern.axes[i].stride) == end) return i;
  }
  return 0;
}

bool cut_pattern(const TensorDims& dims, Pattern pattern, std::vector<TensorBox>& pieces) {
  if (pieces.size() > kPiecesMax) return false;
  const auto tile = as_tile(pattern);
  if (tile && boxes_of(dims, *tile, pieces)) return true;
  if (pattern.axes.empty()) return false;
  const std::size_t fault = axis_at_fault(dims, pattern);
  const TileAxis axis = pattern.axes[fault];
  if (axis.extent > kPiecesMax) return false;
  pattern.axes.erase(pattern.axes.begin() + static_cast<std::ptrdiff_t>(fault));
  for (std::uint64_t i = 0; i < axis.extent; ++i) {
    if (!cut_pattern(dims, pattern, pieces)) return false;
    pattern.first += axis.stride;
  }
  return true;
}

// Joins boxes that are neighbours along `dim` and equal in all others. True: some were.
bool join_along(std::uint32_t dim, std::vector<TensorBox>& boxes) {
  const auto key = [dim](TensorBox box) {
    const std::uint64_t start = std::exchange(box.start[dim], 0);
    box.extent[dim] = 0;
    return std::tuple(box, start);
  };
  std::sort(boxes.begin(), boxes.end(),
            [&](const TensorBox& a, const TensorBox& b) { return key(a) < key(b); });
  std::size_t kept = 0;
  for (std::size_t i = 1; i < boxes.size(); ++i) {
    TensorBox& last = boxes[kept];
    const TensorBox& next = boxes[i];
    const bool joins = std::get<0>(key(last)) == std::get<0>(key(next)) &&
                       last.start[dim] + last.extent[dim] == next.start[dim];
    if (joins) {
      last.extent[dim] += next.extent[dim];
    } else {
      boxes[++kept] = next;
    }
  }
  const bool joined = kept + 1 < boxes.size();
  boxes.resize(kept + 1);
  return joined;
}

void join_boxes(const TensorDims& dims, std::vector<TensorBox>& boxes) {
  bool joined = true;
  while (joined && boxes.size() > 1) {
    joined = false;
    for (std::uint32_t d = dims.rank; d-- > 0;) joined = join_along(d, boxes) || joined;
  }
}

// Runs that follow each other are one run, whatever the dimensions say.
void join_runs(std::vector<Tile>& tiles) {
  std::sort(tiles.begin(), tiles.end(),
            [](const Tile& a, const Tile& b) { return a.first_element < b.first_element; });
  std::size_t kept = 0;
  for (std::size_t i = 1; i < tiles.size(); ++i) {
    Tile& last = tiles[kept];
    if (last.is_one_run() && tiles[i].is_one_run() &&
        last.first_element + last.element_count == tiles[i].first_element) {
      last.element_count += tiles[i].element_count;
    } else {
      tiles[++kept] = tiles[i];
    }
  }
  if (!tiles.empty()) tiles.resize(kept + 1);
}

}  // namespace

Result<std::vector<Tile>> tiles_of(const Schema& schema, const Projection& projection,
                                   ProducerIndex producer) {
  std::vector<const Box*> order;
  for (const Box& box : projection.boxes) {
    WEFT_TRY_STATUS(check_box(schema, projection, box));
    order.push_back(&box);
  }
  std::stable_sort(order.begin(), order.end(),
                   [](const Box* a, const Box* b) { return a->target < b->target; });
  std::vector<Tile> all;
  for (auto begin = order.begin(); begin != order.end();) {
    const TensorIndex target = (*begin)->target;
    const Tensor& tensor = schema.tensor(target);
    const TensorDims dims = TensorDims::of(tensor);
    std::vector<TensorBox> pieces;
    for (; begin != order.end() && (*begin)->target == target; ++begin) {
      if (!cut_pattern(dims, pattern_of(**begin), pieces)) {
        return scattered(tensor, "too many pieces");
      }
    }
    join_boxes(dims, pieces);
    std::vector<Tile> tiles;
    for (const TensorBox& piece : pieces) {
      auto tile = tile_of(dims, piece);
      if (!tile) return scattered(tensor, "a box cut along too many dimensions");
      tiles.push_back(*tile);
    }
    join_runs(tiles);
    if (tiles.size() > limits::kTilesPerTensorMax) {
      return scattered(tensor, std::to_string(tiles.size()) + " tiles, more than " +
                                   std::to_string(limits::kTilesPerTensorMax) + ",");
    }
    for (Tile& tile : tiles) {
      tile.tensor = target;
      tile.producer = producer;
      all.push_back(tile);
    }
  }
  return all;
}

}  // namespace weft::codec
