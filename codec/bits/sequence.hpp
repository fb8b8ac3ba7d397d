// SPDX-License-Identifier: Apache-2.0
// A bit sequence: which `count` of `universe` places are set, in the smallest of a few forms. The
// layout is in docs/formats/frame.md.
#pragma once

#include <cmath>
#include <cstdint>

namespace weft::codec {

// The 5-bit code that opens a sequence. Rice(k) is kSequenceRice + k, its complement (the places
// that are not set) kSequenceInverted + k.
inline constexpr std::uint32_t kSequenceEmpty = 0;
inline constexpr std::uint32_t kSequenceFull = 1;
inline constexpr std::uint32_t kSequenceRaw = 2;
inline constexpr std::uint32_t kSequenceRice = 3;
inline constexpr std::uint32_t kRiceParameterMax = 18;
inline constexpr std::uint32_t kSequenceInverted = kSequenceRice + kRiceParameterMax + 1;
inline constexpr std::uint32_t kInvertedParameterMax = 31 - kSequenceInverted;

// What a reader has found. universe is 0 for the forms that do not state it.
// Threads: a value; one at a time.
struct SequenceHead {
  bool ok = false;
  std::uint32_t count = 0;
  std::uint32_t universe = 0;
};

// Which form fits best, and its expected bits, code and counts included.
// Threads: a value; one at a time.
struct SequenceChoice {
  std::uint32_t code = kSequenceEmpty;
  double bits = 5;
};

// Bits of Rice(k) for `count` of `universe` places set at random.
inline double rice_bits(double count, double universe, std::uint32_t k) {
  const double none = std::log1p(-count / universe) * static_cast<double>(std::uint32_t{1} << k);
  return count * (k + 1.0 / (1.0 - std::exp(none)));
}

inline SequenceChoice choose_sequence(std::uint32_t count, std::uint32_t universe) {
  if (count == 0) return {kSequenceEmpty, 5};
  const auto width = [](std::uint32_t number) { return 36.0 - __builtin_clz(number); };
  if (count == universe) return {kSequenceFull, 5 + width(universe)};
  SequenceChoice best{kSequenceRaw, 5 + width(universe) + universe};
  const bool inverted = count > universe - count;
  const std::uint32_t listed = inverted ? universe - count : count;
  const std::uint32_t k_max = inverted ? kInvertedParameterMax : kRiceParameterMax;
  // ln 2 / p is where the best parameter lies, within one.
  const double mean = 0.6931 * universe / listed;
  const int k_mid = mean > 1 ? static_cast<int>(std::lround(std::log2(mean))) : 0;
  for (int k = k_mid > 0 ? k_mid - 1 : 0; k <= k_mid + 1; ++k) {
    if (k > static_cast<int>(k_max)) break;
    const auto parameter = static_cast<std::uint32_t>(k);
    const double bits = 5 + width(listed) + (inverted ? width(universe) : 0) +
                        rice_bits(listed, universe, parameter);
    if (bits < best.bits) {
      best = {(inverted ? kSequenceInverted : kSequenceRice) + parameter, bits};
    }
  }
  return best;
}

}  // namespace weft::codec
