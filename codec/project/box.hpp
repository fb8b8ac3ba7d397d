// SPDX-License-Identifier: Apache-2.0
// Boxes: which elements of a training shard are which elements of the checkpoint.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "codec/project/tile.hpp"
#include "codec/safetensors/schema.hpp"
#include "weft/base/ids.hpp"
#include "weft/base/limits.hpp"
#include "weft/base/result.hpp"

namespace weft::codec {

// Strides count elements, from one to the next along this axis, in the shard and in the checkpoint.
// A source stride of 0 repeats an element.
// Threads: a value; one at a time.
struct BoxAxis {
  std::uint64_t extent = 1;
  std::uint64_t source_stride = 0;
  std::uint64_t target_stride = 0;
  auto operator<=>(const BoxAxis&) const = default;
};

// Element (i0, i1, ..) of the box is source_offset + sum of i * source_stride in the source, and
// target_offset + sum of i * target_stride in the target, both flat.
// Threads: a value; one at a time.
struct Box {
  std::uint32_t source = 0;  // place in Projection::sources
  TensorIndex target;
  std::uint64_t source_offset = 0;
  std::uint64_t target_offset = 0;
  std::uint32_t rank = 0;
  std::array<BoxAxis, limits::kBoxRankMax> axes{};
  auto operator<=>(const Box&) const = default;

  std::span<const BoxAxis> used_axes() const { return std::span(axes).first(rank); }
  std::uint64_t element_count() const {
    std::uint64_t count = 1;
    for (const BoxAxis& axis : used_axes()) count *= axis.extent;
    return count;
  }
  // One behind the highest source element.
  std::uint64_t source_end() const {
    std::uint64_t last = source_offset;
    for (const BoxAxis& axis : used_axes()) last += (axis.extent - 1) * axis.source_stride;
    return last + 1;
  }
  // Monotone: the order of the elements is the same in the source. False costs more to gather.
  bool is_monotone() const;
};

// A tensor of a shard, as it lies in the trainer's memory: row-major, without gaps.
// Threads: a value; one at a time.
struct ShardTensor {
  std::string name;
  std::uint64_t element_count = 0;
  auto operator<=>(const ShardTensor&) const = default;
};

// All that one producer maps.
// Threads: a value; one at a time.
struct Projection {
  std::vector<ShardTensor> sources;
  std::vector<Box> boxes;
};

// Axes by descending target stride; those of extent 1 removed, those that continue each other in
// source and target joined.
Box shortest_form(const Box& box);

// Errors: kConfig (no such source, an extent of 0, a box that leaves source or target or whose
// elements overlap each other; names box and tensor), kUnsupported (more than kBoxRankMax axes).
Status check_box(const Schema& schema, const Projection& projection, const Box& box);

// The tiles that the boxes of one producer fill, in the fewest pieces that neighbouring boxes join
// to. Overlaps, here and with other producers, are found by Lattice::from_tiles. Errors: of
// check_box; kUnsupported (too scattered; names the tensor).
Result<std::vector<Tile>> tiles_of(const Schema& schema, const Projection& projection,
                                   ProducerIndex producer);

}  // namespace weft::codec
