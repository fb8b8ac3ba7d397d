// SPDX-License-Identifier: Apache-2.0
#include "codec/project/cover.hpp"

#include <algorithm>
#include <span>
#include <string>

#include "codec/project/tensor_box.hpp"

namespace weft::codec {

namespace {

// A sweep looks at so many boxes per box of the tensor, and this many in any case.
constexpr std::uint64_t kLooksPerBox = 256;
constexpr std::uint64_t kLooksMin = 1'000'000;

Error wrong(const Tensor& tensor, const char* what, std::uint64_t first, std::uint64_t end) {
  return failure(ErrorCode::kConfig, Stage::kOpen,
                 std::string("lattice: ") + what + " in tensor " + tensor.name + " elements [" +
                     std::to_string(first) + ", " + std::to_string(end) + ")");
}

Status check_runs(const Tensor& tensor, std::span<const Tile> tiles, Cover cover) {
  const bool gaps = cover == Cover::kAtMostOnce;
  std::uint64_t next = 0;
  for (const Tile& tile : tiles) {
    if (tile.element_count == 0 || tile.first_element > tensor.element_count ||
        tile.element_count > tensor.element_count - tile.first_element) {
      return wrong(tensor, "a tile out of range", tile.first_element,
                   tile.first_element + tile.element_count);
    }
    if (tile.first_element > next && !gaps) {
      return wrong(tensor, "a gap", next, tile.first_element);
    }
    if (tile.first_element < next) return wrong(tensor, "an overlap", tile.first_element, next);
    next = tile.first_element + tile.element_count;
  }
  if (next != tensor.element_count && !gaps)
    return wrong(tensor, "a gap", next, tensor.element_count);
  return ok();
}

// Sweeps the boxes of one tensor along its dimensions, outermost first.
// Threads: one at a time.
class BoxSweep {
 public:
  BoxSweep(const Tensor& tensor, const TensorDims& dims, const std::vector<TensorBox>& boxes,
           Cover cover)
      : tensor_(tensor),
        dims_(dims),
        boxes_(boxes),
        gaps_(cover == Cover::kAtMostOnce),
        looks_left_(kLooksMin + kLooksPerBox * boxes.size()) {}

  Status run() {
    std::vector<std::uint32_t> all(boxes_.size());
    for (std::uint32_t i = 0; i < all.size(); ++i) all[i] = i;
    return sweep(0, 0, std::move(all));
  }

 private:
  // `among` covers [0, size) of dimension `dim` and of all behind it, at this place of those
  // before.
  Status sweep(std::uint32_t dim, std::uint64_t place, std::vector<std::uint32_t> among) {
    std::sort(among.begin(), among.end(), [&](std::uint32_t a, std::uint32_t b) {
      return boxes_[a].start[dim] < boxes_[b].start[dim];
    });
    if (!look(among.size())) return too_irregular();
    const std::uint64_t stride = dims_.stride[dim];
    const auto range_error = [&](const char* what, std::uint64_t from, std::uint64_t to) {
      return wrong(tensor_, what, place + from * stride, place + to * stride);
    };
    if (dim + 1 == dims_.rank) {
      std::uint64_t next = 0;
      for (const std::uint32_t i : among) {
        const std::uint64_t start = boxes_[i].start[dim];
        if (start > next && !gaps_) return range_error("a gap", next, start);
        if (start < next) return range_error("an overlap", start, next);
        next = start + boxes_[i].extent[dim];
      }
      return next == dims_.size[dim] || gaps_ ? ok()
                                              : Status(range_error("a gap", next, dims_.size[dim]));
    }
    return slabs(dim, place, among);
  }

  // Between two edges of boxes the same boxes are cut: each such slab is swept once.
  Status slabs(std::uint32_t dim, std::uint64_t place, const std::vector<std::uint32_t>& among) {
    std::vector<std::uint64_t> edges;
    for (const std::uint32_t i : among) {
      edges.push_back(boxes_[i].start[dim]);
      edges.push_back(boxes_[i].start[dim] + boxes_[i].extent[dim]);
    }
    edges.push_back(0);
    edges.push_back(dims_.size[dim]);
    std::sort(edges.begin(), edges.end());
    edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
    std::vector<std::uint32_t> active;
    auto next = among.begin();
    for (std::size_t e = 0; e + 1 < edges.size(); ++e) {
      const std::uint64_t begin = edges[e];
      if (!look(active.size())) return too_irregular();
      std::erase_if(active, [&](std::uint32_t i) {
        return boxes_[i].start[dim] + boxes_[i].extent[dim] <= begin;
      });
      for (; next != among.end() && boxes_[*next].start[dim] <= begin; ++next) {
        active.push_back(*next);
      }
      if (active.empty() && gaps_) continue;
      if (active.empty()) {
        return wrong(tensor_, "a gap", place + begin * dims_.stride[dim],
                     place + edges[e + 1] * dims_.stride[dim]);
      }
      WEFT_TRY_STATUS(sweep(dim + 1, place + begin * dims_.stride[dim], active));
    }
    return ok();
  }

  bool look(std::size_t count) {
    if (count > looks_left_) return false;
    looks_left_ -= count;
    return true;
  }
  Error too_irregular() const {
    return failure(ErrorCode::kUnsupported, Stage::kOpen,
                   "lattice: the tiles of tensor " + tensor_.name +
                       " are too irregular to check: hand it over as a residual");
  }

  const Tensor& tensor_;
  const TensorDims& dims_;
  const std::vector<TensorBox>& boxes_;
  const bool gaps_;
  std::uint64_t looks_left_;
};

Status check_boxes(const Tensor& tensor, std::span<const Tile> tiles, Cover cover) {
  const TensorDims dims = TensorDims::of(tensor);
  std::vector<TensorBox> boxes;
  for (const Tile& tile : tiles) {
    if (!boxes_of(dims, tile, boxes)) {
      return failure(ErrorCode::kUnsupported, Stage::kOpen,
                     "lattice: a tile of tensor " + tensor.name + " from element " +
                         std::to_string(tile.first_element) +
                         " is neither a box nor a run of it: hand it over as a residual");
    }
  }
  return BoxSweep(tensor, dims, boxes, cover).run();
}

}  // namespace

Status check_cover(const Schema& schema, const std::vector<Tile>& tiles, Cover cover) {
  auto begin = tiles.begin();
  for (std::uint32_t t = 0; t < schema.tensors().size(); ++t) {
    const Tensor& tensor = schema.tensor(TensorIndex{t});
    const auto end =
        std::find_if(begin, tiles.end(), [&](const Tile& tile) { return tile.tensor.value != t; });
    const std::span<const Tile> of_tensor(begin, end);
    if (of_tensor.empty() && cover == Cover::kAtMostOnce) continue;
    const bool runs = std::all_of(begin, end, [](const Tile& tile) { return tile.is_one_run(); });
    WEFT_TRY_STATUS(runs ? check_runs(tensor, of_tensor, cover)
                         : check_boxes(tensor, of_tensor, cover));
    begin = end;
  }
  if (begin == tiles.end()) return ok();
  return failure(ErrorCode::kConfig, Stage::kOpen, "lattice: a tile of a tensor that is not there");
}

}  // namespace weft::codec
