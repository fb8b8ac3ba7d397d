// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>

#include "codec/safetensors/dtype.hpp"

namespace weft::codec {

// ConditionalBound is how few bits the changes of one tensor could take for a coder that knows the
// old values: the entropy of which elements change given the old exponent, and of the steps given
// old exponent and sign, plus half a logarithm of the sample for every estimated parameter. What
// encoders are measured against; much slower than encoding.
// Limits:  only for formats with an exponent field; others have no bound (bits() is 0).
// Threads: one at a time.
class ConditionalBound {
 public:
  explicit ConditionalBound(const ElementFormat& format) : format_(format) {}

  // Any run of the tensor's elements; runs may come in any order. Both of the same length.
  void add(std::span<const std::byte> old_bytes, std::span<const std::byte> new_bytes);

  std::uint64_t changed_count() const;
  double bits() const;

 private:
  ElementFormat format_;
  std::array<std::uint64_t, 256> elements_{};
  std::array<std::uint64_t, 256> changed_{};
  // Old exponent above, step away from (or towards) zero below.
  std::unordered_map<std::uint64_t, std::uint64_t> steps_;
};

}  // namespace weft::codec
