// SPDX-License-Identifier: Apache-2.0
#include "codec/project/box.hpp"

#include <algorithm>

namespace weft::codec {

namespace {

// Adds (extent - 1) * stride; false when that wraps.
bool reach(std::uint64_t& last, std::uint64_t extent, std::uint64_t stride) {
  std::uint64_t far = 0;
  return !__builtin_mul_overflow(extent - 1, stride, &far) &&
         !__builtin_add_overflow(last, far, &last);
}

}  // namespace

bool Box::is_monotone() const {
  const Box shortest = shortest_form(*this);
  for (std::uint32_t i = 0; i < shortest.rank; ++i) {
    std::uint64_t inner = 0;
    for (std::uint32_t k = i + 1; k < shortest.rank; ++k) {
      inner += (shortest.axes[k].extent - 1) * shortest.axes[k].source_stride;
    }
    if (shortest.axes[i].source_stride <= inner) return false;
  }
  return true;
}

Box shortest_form(const Box& box) {
  Box result = box;
  std::sort(result.axes.begin(), result.axes.begin() + result.rank,
            [](const BoxAxis& a, const BoxAxis& b) { return a.target_stride > b.target_stride; });
  result.rank = 0;
  const auto axes = result.axes;
  result.axes = {};
  for (std::uint32_t i = 0; i < box.rank; ++i) {
    const BoxAxis& axis = axes[i];
    if (axis.extent == 1) continue;
    BoxAxis* const outer = result.rank > 0 ? &result.axes[result.rank - 1] : nullptr;
    if (outer != nullptr && outer->target_stride == axis.extent * axis.target_stride &&
        outer->source_stride == axis.extent * axis.source_stride) {
      *outer = {outer->extent * axis.extent, axis.source_stride, axis.target_stride};
    } else {
      result.axes[result.rank++] = axis;
    }
  }
  return result;
}

Status check_box(const Schema& schema, const Projection& projection, const Box& box) {
  if (box.source >= projection.sources.size() || box.target.value >= schema.tensors().size()) {
    return failure(ErrorCode::kConfig, Stage::kOpen,
                   "box: source " + std::to_string(box.source) + " or target " +
                       std::to_string(box.target.value) + " is not there");
  }
  const ShardTensor& source = projection.sources[box.source];
  const Tensor& target = schema.tensor(box.target);
  const auto wrong = [&](ErrorCode code, const std::string& what) {
    return failure(code, Stage::kOpen,
                   "box from " + source.name + " [" + std::to_string(box.source_offset) + "] to " +
                       target.name + " [" + std::to_string(box.target_offset) + "]: " + what);
  };
  if (box.rank > limits::kBoxRankMax) {
    return wrong(ErrorCode::kUnsupported,
                 "more than " + std::to_string(limits::kBoxRankMax) + " axes");
  }
  std::uint64_t source_last = box.source_offset;
  std::uint64_t target_last = box.target_offset;
  std::uint64_t count = 1;
  for (const BoxAxis& axis : box.used_axes()) {
    if (axis.extent == 0) return wrong(ErrorCode::kConfig, "an extent of 0");
    if (!reach(source_last, axis.extent, axis.source_stride) ||
        !reach(target_last, axis.extent, axis.target_stride) ||
        __builtin_mul_overflow(count, axis.extent, &count)) {
      return wrong(ErrorCode::kConfig, "its size overflows");
    }
  }
  if (source_last >= source.element_count) {
    return wrong(ErrorCode::kConfig, "reaches source element " + std::to_string(source_last) +
                                         " of " + std::to_string(source.element_count));
  }
  if (target_last >= target.element_count) {
    return wrong(ErrorCode::kConfig, "reaches target element " + std::to_string(target_last) +
                                         " of " + std::to_string(target.element_count));
  }
  // Everything fits in the tensors now, so sums do not wrap.
  const Box shortest = shortest_form(box);
  std::uint64_t inner = 0;
  for (std::uint32_t i = shortest.rank; i-- > 0;) {
    if (shortest.axes[i].target_stride <= inner) {
      return wrong(ErrorCode::kConfig, "target elements overlap along the axis of stride " +
                                           std::to_string(shortest.axes[i].target_stride));
    }
    inner += (shortest.axes[i].extent - 1) * shortest.axes[i].target_stride;
  }
  return ok();
}

}  // namespace weft::codec
