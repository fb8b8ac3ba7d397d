// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace weft {

// Threads: a value; one at a time.
struct ShardBoxAxis {
  std::uint64_t extent = 1;
  std::uint64_t source_stride = 0;  // elements from one to the next, in the view
  std::uint64_t target_stride = 0;  // and in the checkpoint's tensor
};

// Elements of a checkpoint tensor that lie in a view: (i0, i1, ..) is element source_offset + sum
// of i * source_stride of the view, and target_offset + sum of i * target_stride of the tensor,
// both flat and row-major. No axes: one element. The same boxes as in a box file
// (docs/formats/boxes.md).
// Threads: a value; one at a time.
struct ShardBox {
  std::string tensor;
  std::uint64_t source_offset = 0;
  std::uint64_t target_offset = 0;
  std::vector<ShardBoxAxis> axes;
};

}  // namespace weft
