// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "codec/safetensors/dtype.hpp"

namespace weft::codec {

// ConditionalBound is how few bits the changes of one tensor could take for a coder that knows the
// old values: the entropy of which elements change given the old exponent, and of the steps given
// old exponent and sign, plus half a logarithm of the sample for every estimated parameter: the
// formula of docs/conditional-bound.md, which is what encoders are measured against.
// Limits:  only for formats with an exponent field; others have no bound. At most kFarStepsMax
//          different steps beyond the near ones, 48 MiB; a tensor with more has no bound.
// Threads: one at a time.
class ConditionalBound {
 public:
  static constexpr std::size_t kFarStepsMax = std::size_t{1} << 20;

  explicit ConditionalBound(const ElementFormat& format) : format_(format) {}
  // As new, for elements of this format; memory is kept.
  void reset(const ElementFormat& format);

  // Any run of the tensor's elements; runs may come in any order. Both of the same length.
  void add(std::span<const std::byte> old_bytes, std::span<const std::byte> new_bytes);
  // All that the other one has seen; it is of the same format.
  void merge(const ConditionalBound& other);

  bool known() const { return format_.exponent_bits != 0 && !too_many_steps_; }
  std::uint64_t changed_count() const;
  // 0 if it is not known.
  double bits() const;

 private:
  static constexpr std::int64_t kNear = 32;  // steps up to so many are counted in a table
  static constexpr std::size_t kNearSteps = 2 * kNear + 1;

  template <typename Word>
  void count_exponents(std::span<const std::byte> old_bytes);
  template <typename Word>
  void count_steps(std::span<const std::byte> old_bytes, std::span<const std::byte> new_bytes);
  void count_far(std::uint64_t step, std::uint64_t count);

  ElementFormat format_;
  bool too_many_steps_ = false;
  std::array<std::uint64_t, 256> elements_{};
  std::array<std::uint64_t, 256> changed_{};
  std::vector<std::uint64_t> near_;  // by old exponent, then step from -kNear to kNear
  // Old exponent above, step away from (or towards) zero below.
  std::unordered_map<std::uint64_t, std::uint64_t> far_;
  std::vector<std::uint32_t> positions_;
};

}  // namespace weft::codec
