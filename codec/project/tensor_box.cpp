// SPDX-License-Identifier: Apache-2.0
#include "codec/project/tensor_box.hpp"

namespace weft::codec {

namespace {

// Dimensions [first, last] of a tensor, seen as one row of elements.
// Threads: a value; one at a time.
struct DimRange {
  std::uint32_t first = 0;
  std::uint32_t last = 0;
};

std::uint64_t stride_in(const TensorDims& dims, const DimRange& range, std::uint32_t dim) {
  return dims.stride[dim] / dims.stride[range.last];
}

// Boxes of the flat run [begin, end) of these dimensions, each put into a copy of `pattern`.
void cut_run(const TensorDims& dims, const DimRange& range, std::uint64_t begin, std::uint64_t end,
             const TensorBox& pattern, std::vector<TensorBox>& out) {
  const std::uint64_t row = stride_in(dims, range, range.first);
  const std::uint64_t first_row = begin / row;
  const std::uint64_t last_row = (end - 1) / row;
  const auto put = [&](std::uint64_t from, std::uint64_t to, bool whole) {
    TensorBox box = pattern;
    box.start[range.first] = from;
    box.extent[range.first] = to - from;
    if (!whole) return box;
    for (std::uint32_t d = range.first + 1; d <= range.last; ++d) {
      box.start[d] = 0;
      box.extent[d] = dims.size[d];
    }
    out.push_back(box);
    return box;
  };
  if (range.first == range.last) {
    put(begin, end, true);
    return;
  }
  const DimRange inner{range.first + 1, range.last};
  if (first_row == last_row && (begin % row != 0 || end % row != 0)) {
    cut_run(dims, inner, begin % row, begin % row + (end - begin),
            put(first_row, first_row + 1, false), out);
    return;
  }
  std::uint64_t whole_begin = first_row;
  if (begin % row != 0) {
    cut_run(dims, inner, begin % row, row, put(first_row, first_row + 1, false), out);
    ++whole_begin;
  }
  const std::uint64_t whole_end = end / row;
  if (whole_begin < whole_end) put(whole_begin, whole_end, true);
  if (end % row != 0) {
    cut_run(dims, inner, 0, end % row, put(whole_end, whole_end + 1, false), out);
  }
}

}  // namespace

TensorDims TensorDims::of(const Tensor& tensor) {
  TensorDims dims;
  dims.rank = 0;
  std::uint64_t product = 1;
  bool fits = true;
  for (const std::uint64_t size : tensor.shape) {
    if (size == 1) continue;
    if (dims.rank == limits::kBoxRankMax || size == 0 || product > tensor.element_count / size) {
      fits = false;
      break;
    }
    dims.size[dims.rank++] = size;
    product *= size;
  }
  if (!fits || product != tensor.element_count || dims.rank == 0) {
    dims = TensorDims();
    dims.size[0] = tensor.element_count;
  }
  std::uint64_t stride = 1;
  for (std::uint32_t d = dims.rank; d-- > 0;) {
    dims.stride[d] = stride;
    stride *= dims.size[d];
  }
  return dims;
}

Tile shortest_form(const Tile& tile) {
  Tile result = tile;
  result.outer = {};
  std::uint64_t run = tile.run_elements();
  std::array<TileAxis, limits::kTileAxesMax> reversed{};  // innermost first
  std::uint32_t count = 0;
  for (std::uint32_t i = tile.axis_count(); i-- > 0;) {
    const TileAxis& axis = tile.outer[i];
    if (axis.extent == 1) continue;
    if (count == 0 && axis.stride == run) {
      run *= axis.extent;
    } else if (count > 0 &&
               axis.stride == reversed[count - 1].stride * reversed[count - 1].extent) {
      reversed[count - 1].extent *= axis.extent;
    } else {
      reversed[count++] = axis;
    }
  }
  for (std::uint32_t i = 0; i < count; ++i) result.outer[i] = reversed[count - 1 - i];
  return result;
}

bool boxes_of(const TensorDims& dims, const Tile& tile, std::vector<TensorBox>& out) {
  // Each axis counts in the dimensions behind those of the axis outside it.
  std::vector<TensorBox> parts{TensorBox{}};
  std::uint32_t first_dim = 0;
  std::uint64_t rest = tile.first_element;
  if (rest / dims.stride[0] >= dims.size[0]) return false;
  const std::uint32_t axes = tile.axis_count();
  for (std::uint32_t i = 0; i <= axes; ++i) {
    const TileAxis axis = i < axes ? tile.outer[i] : TileAxis{tile.run_elements(), 1};
    std::uint32_t dim = first_dim;
    while (dim < dims.rank && dims.stride[dim] != axis.stride) ++dim;
    if (dim >= dims.rank) return false;
    const DimRange range{first_dim, dim};
    const std::uint64_t begin = rest / axis.stride;
    rest %= axis.stride;
    const std::uint64_t size = dims.size[first_dim] * stride_in(dims, range, first_dim);
    if (axis.extent == 0 || begin >= size || axis.extent > size - begin) return false;
    std::vector<TensorBox> next;
    for (const TensorBox& part : parts) {
      cut_run(dims, range, begin, begin + axis.extent, part, next);
    }
    parts = std::move(next);
    first_dim = dim + 1;
  }
  if (first_dim != dims.rank) return false;
  out.insert(out.end(), parts.begin(), parts.end());
  return true;
}

std::optional<Tile> tile_of(const TensorDims& dims, const TensorBox& box) {
  Tile tile;
  tile.element_count = 1;
  std::uint64_t run = 1;
  std::uint32_t count = 0;
  std::array<TileAxis, limits::kBoxRankMax> reversed{};
  for (std::uint32_t d = dims.rank; d-- > 0;) {
    tile.first_element += box.start[d] * dims.stride[d];
    tile.element_count *= box.extent[d];
    if (box.extent[d] == 1) continue;
    if (count == 0 && dims.stride[d] == run) {
      run *= box.extent[d];
    } else if (count > 0 &&
               dims.stride[d] == reversed[count - 1].stride * reversed[count - 1].extent) {
      reversed[count - 1].extent *= box.extent[d];
    } else {
      reversed[count++] = {box.extent[d], dims.stride[d]};
    }
  }
  if (count > limits::kTileAxesMax) return std::nullopt;
  for (std::uint32_t i = 0; i < count; ++i) tile.outer[i] = reversed[count - 1 - i];
  return tile;
}

}  // namespace weft::codec
