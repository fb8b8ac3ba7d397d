// SPDX-License-Identifier: Apache-2.0
#include "codec/project/derive.hpp"

#include <algorithm>
#include <cstring>
#include <string>

#include "weft/base/assert.hpp"

namespace weft::codec {

namespace {

// Boxes of one element each would be read as slowly as they were derived.
constexpr std::size_t kBoxesMax = 1'000'000;

// From one box to the next of the same form. Nothing: they differ, or the source goes backwards.
std::optional<BoxAxis> step_between(const Box& first, const Box& next) {
  if (first.source != next.source || first.rank != next.rank || first.axes != next.axes ||
      next.source_offset < first.source_offset) {
    return std::nullopt;
  }
  return BoxAxis{2, next.source_offset - first.source_offset,
                 next.target_offset - first.target_offset};
}

// Groups of equally spaced boxes become boxes of one more axis. False: nothing could be joined.
bool fold(std::vector<Box>& boxes) {
  std::vector<Box> folded;
  for (std::size_t i = 0; i < boxes.size();) {
    std::size_t count = 1;
    Box box = boxes[i];
    const auto step = i + 1 < boxes.size() ? step_between(box, boxes[i + 1]) : std::nullopt;
    if (step && box.rank < limits::kBoxRankMax) {
      while (i + count < boxes.size() &&
             step_between(boxes[i + count - 1], boxes[i + count]) == step) {
        ++count;
      }
      // A pair that only looks like one: the second belongs to what follows.
      if (count == 2 && i + 3 < boxes.size()) {
        const auto next = step_between(boxes[i + 1], boxes[i + 2]);
        if (next && next == step_between(boxes[i + 2], boxes[i + 3])) count = 1;
      }
    }
    if (count > 1) {
      for (std::uint32_t a = box.rank; a > 0; --a) box.axes[a] = box.axes[a - 1];
      box.axes[0] = {count, step->source_stride, step->target_stride};
      ++box.rank;
    }
    folded.push_back(box);
    i += count;
  }
  const bool shorter = folded.size() < boxes.size();
  boxes = std::move(folded);
  return shorter;
}

// Runs of a constant step, one axis each.
class RunCollector {
 public:
  RunCollector(TensorIndex target, std::vector<Box>& boxes) : target_(target), boxes_(boxes) {}

  void add(std::uint32_t source, std::uint64_t from, std::uint64_t to) {
    if (count_ > 0 && source == source_ && from >= last_) {
      const std::uint64_t step = from - last_;
      if (count_ == 1 || step == step_) {
        step_ = step;
        last_ = from;
        ++count_;
        return;
      }
    }
    flush();
    source_ = source;
    first_ = last_ = from;
    target_offset_ = to;
    count_ = 1;
  }
  void flush() {
    if (count_ == 0) return;
    Box box;
    box.source = source_;
    box.target = target_;
    box.source_offset = first_;
    box.target_offset = target_offset_;
    // Two elements are no pattern: fold() finds the better one.
    if (count_ == 2) {
      boxes_.push_back(box);
      box.source_offset = last_;
      ++box.target_offset;
    } else if (count_ > 2) {
      box.rank = 1;
      box.axes[0] = {count_, step_, 1};
    }
    boxes_.push_back(box);
    count_ = 0;
  }

 private:
  const TensorIndex target_;
  std::vector<Box>& boxes_;
  std::uint32_t source_ = 0;
  std::uint64_t first_ = 0;
  std::uint64_t last_ = 0;
  std::uint64_t step_ = 0;
  std::uint64_t count_ = 0;
  std::uint64_t target_offset_ = 0;
};

}  // namespace

Status derive_boxes(const Schema& schema, TensorIndex target, std::uint64_t target_offset,
                    std::span<const std::uint64_t> exported, Projection& projection) {
  const Tensor& tensor = schema.tensor(target);
  const auto wrong = [&](ErrorCode code, std::uint64_t element, const std::string& what) {
    return failure(code, Stage::kOpen,
                   "derived boxes: tensor " + tensor.name + " element " + std::to_string(element) +
                       ": " + what);
  };
  if (target_offset > tensor.element_count ||
      exported.size() > tensor.element_count - target_offset) {
    return wrong(ErrorCode::kConfig, tensor.element_count, "the tensor ends before the export");
  }
  std::vector<std::uint64_t> ends;  // of the sources, in numbers
  std::uint64_t total = 0;
  for (const ShardTensor& source : projection.sources) {
    total += source.element_count;
    ends.push_back(total);
  }
  std::vector<Box> boxes;
  RunCollector runs(target, boxes);
  for (std::size_t i = 0; i < exported.size(); ++i) {
    const std::uint64_t number = exported[i];
    if (number >= total) {
      return wrong(ErrorCode::kConfig, target_offset + i,
                   "no source has number " + std::to_string(number));
    }
    const auto source = static_cast<std::uint32_t>(
        std::upper_bound(ends.begin(), ends.end(), number) - ends.begin());
    runs.add(source, number - (source == 0 ? 0 : ends[source - 1]), target_offset + i);
    if (boxes.size() > 4 * kBoxesMax) break;
  }
  runs.flush();
  while (fold(boxes)) {
  }
  if (boxes.size() > kBoxesMax) {
    return wrong(ErrorCode::kUnsupported, target_offset,
                 "no pattern in it: hand it over as a residual");
  }
  projection.boxes.insert(projection.boxes.end(), boxes.begin(), boxes.end());
  return ok();
}

Status compare_export(const Schema& schema, const ChunkPlace& place,
                      std::span<const std::byte> gathered, std::span<const std::byte> exported) {
  const Tensor& tensor = schema.tensor(place.tensor);
  WEFT_ASSERT(gathered.size() == place.bytes() && exported.size() == tensor.bytes);
  const std::size_t width = place.element_bytes();
  ChunkRuns runs(place);
  ChunkRun run;
  while (runs.next(run)) {
    const auto expected = exported.subspan(static_cast<std::size_t>(run.first_element) * width,
                                           run.element_count * width);
    const auto found = gathered.subspan(run.offset * width, expected.size());
    const auto differ = std::mismatch(found.begin(), found.end(), expected.begin()).first;
    if (differ == found.end()) continue;
    const auto element =
        run.first_element + static_cast<std::uint64_t>(differ - found.begin()) / width;
    return failure(ErrorCode::kConfig, Stage::kOpen,
                   "self-test: the projection gives another tensor " + tensor.name +
                       " than the export, first at element " + std::to_string(element));
  }
  return ok();
}

}  // namespace weft::codec
