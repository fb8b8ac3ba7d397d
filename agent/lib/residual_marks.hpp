// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "weft/base/ids.hpp"
#include "weft/publisher.hpp"

namespace weft::agent {

// Consecutive elements of a shard tensor.
// Threads: a value; one at a time.
struct ElementRange {
  std::uint64_t first = 0;
  std::uint64_t count = 0;
};

// ResidualMarks remembers what the converters of one producer's residuals had read when the values
// in its baseline were made, as digests: a residual whose source is the same need not be converted.
// They live in memory: after a start everything is converted once.
// Invariant: a mark stands for values that are in the baseline. Those of an open refit become marks
//            with move(), together with its values, or are dropped with them.
// Threads:   one at a time.
class ResidualMarks {
 public:
  explicit ResidualMarks(std::size_t tensor_count);

  // Which of the ranges of a shard tensor of `element_count` elements must be converted: those that
  // read something else than their mark says. Notes what they read now. A source without parts, or
  // none that can be split as it says, is not known: all of them.
  std::vector<bool> changed(std::uint32_t tensor, std::uint64_t element_count,
                            std::span<const ElementRange> ranges, const ResidualSource& source);
  // Its values come from elsewhere in this refit.
  void forget(std::uint32_t tensor) { pending_[tensor] = Marks(); }

  void move();
  void drop();

 private:
  // A digest per range, or one for the whole source.
  using Marks = std::vector<Digest>;
  std::vector<Marks> committed_;               // by shard tensor
  std::vector<std::optional<Marks>> pending_;  // nothing: not touched by the open refit
};

}  // namespace weft::agent
