// SPDX-License-Identifier: Apache-2.0
// Where to cut the old exponents into classes, and what the result costs.
#pragma once

#include <cstdint>

#include "codec/encode/change_stats.hpp"
#include "codec/kernels/kernel_set.hpp"

namespace weft::codec {

inline constexpr std::uint32_t kRiceMagnitudeMax = 10;  // largest parameter of a magnitude
// Zeros before the one that say "the new word follows" instead of a magnitude.
inline constexpr std::uint32_t kMagnitudeEscape = 20;
inline constexpr std::uint32_t kExponentSpan = 16;  // exponents that may be told apart, top down
inline constexpr std::uint32_t kThresholdDeltaBits = 5;

// Rice parameter of a magnitude at an old exponent.
constexpr std::uint32_t magnitude_parameter(std::uint32_t reference, std::uint32_t exponent) {
  if (exponent > reference) return 0;
  const std::uint32_t k = reference - exponent + 1;
  return k < kRiceMagnitudeMax ? k : kRiceMagnitudeMax;
}

// Threads: a value; one at a time.
struct ClassChoice {
  ClassCut cut;
  std::uint32_t magnitude_reference = 0;
  double bits = 0;  // expected payload
};

// Bits to say which `part` of `whole` are meant.
double entropy_bits(double part, double whole);

// Optimal cuts by dynamic programming on the exponent histogram.
ClassChoice choose_classes(const ChangeStats& stats, const ElementFormat& format,
                           std::uint32_t classes_max);

}  // namespace weft::codec
