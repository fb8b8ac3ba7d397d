// SPDX-License-Identifier: Apache-2.0
// A tile: the part of one tensor that one producer owns, and how its elements lie in the tensor.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "codec/safetensors/dtype.hpp"
#include "weft/base/ids.hpp"
#include "weft/base/limits.hpp"

namespace weft::codec {

// `extent` repetitions, `stride` elements apart.
// Threads: a value; one at a time.
struct TileAxis {
  std::uint64_t extent = 0;
  std::uint64_t stride = 0;
  auto operator<=>(const TileAxis&) const = default;
};

// A box of one tensor (start and extent per dimension), or a flat run of it. Kept in its shortest
// form: runs of consecutive elements, repeated along at most kTileAxesMax axes. A box of whole rows
// is one run; a column cut of a matrix is one axis of rows.
// Order of its elements: outer[0] first, the run last, which is the tensor's own order.
// Threads: a value; one at a time.
struct Tile {
  TensorIndex tensor;
  ProducerIndex producer;
  std::uint64_t first_element = 0;                     // flat index of the first one
  std::uint64_t element_count = 0;                     // of all runs
  std::array<TileAxis, limits::kTileAxesMax> outer{};  // outermost first; unused: extent 0
  auto operator<=>(const Tile&) const = default;

  std::uint32_t axis_count() const {
    std::uint32_t count = 0;
    while (count < outer.size() && outer[count].extent != 0) ++count;
    return count;
  }
  std::uint64_t run_count() const {
    std::uint64_t count = 1;
    for (const TileAxis& axis : outer) count *= axis.extent == 0 ? 1 : axis.extent;
    return count;
  }
  std::uint64_t run_elements() const { return element_count / run_count(); }
  bool is_one_run() const { return outer[0].extent == 0; }
  // Flat index of an element; `number` counts the tile's elements in order.
  std::uint64_t element_at(std::uint64_t number) const {
    const std::uint64_t run = run_elements();
    std::uint64_t at = first_element + number % run;
    std::uint64_t rest = number / run;
    for (std::uint32_t i = axis_count(); i-- > 0;) {
      at += rest % outer[i].extent * outer[i].stride;
      rest /= outer[i].extent;
    }
    return at;
  }
};

// Consecutive elements of a tensor, as a part of a chunk.
// Threads: a value; one at a time.
struct ChunkRun {
  std::uint64_t first_element = 0;  // flat index in the tensor
  std::uint32_t element_count = 0;
  std::uint32_t offset = 0;  // of its first element in the chunk, in elements
};

// Where one chunk lies: consecutive elements of a tile, so one run of the tensor or several.
// Threads: a value; one at a time.
struct ChunkPlace {
  TensorIndex tensor;
  std::uint64_t first_element = 0;  // flat index of the first one
  std::uint32_t element_count = 0;
  ElementFormat format;
  ProducerIndex producer;
  Tile tile;
  std::uint64_t tile_offset = 0;  // of the chunk's first element in the tile

  std::uint32_t element_bytes() const { return format.element_bytes; }
  std::uint32_t bytes() const { return element_count * format.element_bytes; }
  bool is_one_run() const { return tile.is_one_run(); }
  // Flat index of the chunk's element `offset`.
  std::uint64_t element_at(std::uint32_t offset) const {
    return is_one_run() ? first_element + offset : tile.element_at(tile_offset + offset);
  }
};

// The runs of a chunk, ascending in the tensor and in the chunk.
// Threads: one at a time.
class ChunkRuns {
 public:
  explicit ChunkRuns(const ChunkPlace& place)
      : place_(place), axis_count_(place.tile.axis_count()), run_(place.tile.run_elements()) {
    std::uint64_t rest = place.tile_offset / run_;
    in_run_ = place.tile_offset % run_;
    begin_ = place.tile.first_element;
    for (std::uint32_t i = axis_count_; i-- > 0;) {
      const TileAxis& axis = place.tile.outer[i];
      at_[i] = rest % axis.extent;
      begin_ += at_[i] * axis.stride;
      rest /= axis.extent;
    }
  }

  // False: no more.
  bool next(ChunkRun& run) {
    if (offset_ == place_.element_count) return false;
    run.first_element = begin_ + in_run_;
    run.offset = offset_;
    run.element_count = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(run_ - in_run_, place_.element_count - offset_));
    offset_ += run.element_count;
    in_run_ = 0;
    step();
    return true;
  }

 private:
  void step() {
    for (std::uint32_t i = axis_count_; i-- > 0;) {
      const TileAxis& axis = place_.tile.outer[i];
      begin_ += axis.stride;
      if (++at_[i] < axis.extent) return;
      begin_ -= axis.extent * axis.stride;
      at_[i] = 0;
    }
  }

  const ChunkPlace& place_;
  std::uint32_t axis_count_;
  std::uint64_t run_;
  std::uint64_t in_run_ = 0;
  std::uint64_t begin_ = 0;  // of the current run, from its first element on
  std::uint32_t offset_ = 0;
  std::array<std::uint64_t, limits::kTileAxesMax> at_{};
};

}  // namespace weft::codec
