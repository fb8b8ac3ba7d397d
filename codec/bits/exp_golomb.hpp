// SPDX-License-Identifier: Apache-2.0
// Exp-Golomb codes of order q: for numbers whose spread is known only roughly. The layout is in
// docs/formats/frame.md.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "codec/bits/bit_reader.hpp"
#include "codec/bits/bit_writer.hpp"

namespace weft::codec {

inline constexpr std::uint32_t kGolombOrderMax = 31;
// This many zeros are an escape: the whole word follows.
inline constexpr std::uint32_t kGolombEscape = 24;

// `escape` is written instead where the number is too large for the code.
inline void put_golomb(BitWriter& out, std::uint64_t number, std::uint32_t order,
                       std::uint64_t escape, std::uint32_t escape_bits) {
  const std::uint64_t high = (number >> order) + 1;
  const auto below = static_cast<std::uint32_t>(std::bit_width(high)) - 1;
  if (below >= kGolombEscape) {
    out.put(std::uint64_t{1} << kGolombEscape, kGolombEscape + 1);
    out.put_wide(escape, escape_bits);
    return;
  }
  out.put(std::uint64_t{1} << below, below + 1);
  out.put(high & ((std::uint64_t{1} << below) - 1), below);
  out.put(number & ((std::uint64_t{1} << order) - 1), order);
}

// Threads: a value; one at a time.
struct GolombNumber {
  std::uint64_t value = 0;
  bool is_escape = false;
};
inline GolombNumber take_golomb(BitReader& in, std::uint32_t order, std::uint32_t escape_bits) {
  const std::uint64_t window = in.window(in.position());
  const auto below =
      static_cast<std::uint32_t>(std::countr_zero(window | (std::uint64_t{1} << kGolombEscape)));
  in.skip(below + 1);
  if (below == kGolombEscape) {
    if (((window >> kGolombEscape) & 1) == 0) in.fail();
    return {in.take_wide(escape_bits), true};
  }
  const std::uint64_t high = in.take(below) | (std::uint64_t{1} << below);
  return {((high - 1) << order) | in.take(order), false};
}

// Expected bits of `count` numbers at the best order, which goes to `order`. widths counts the
// numbers by their bit width.
inline double golomb_bits(const std::array<std::uint32_t, 65>& widths, std::uint32_t& order) {
  double best = 0;
  std::uint32_t widest = 64;
  while (widest > 0 && widths[widest] == 0) --widest;
  // An order above the widest number only adds to each.
  for (std::uint32_t q = 0; q <= kGolombOrderMax && q <= widest; ++q) {
    double bits = 0;
    for (std::uint32_t width = 0; width <= widest; ++width) {
      const std::uint32_t below = width > q ? width - q : 0;
      bits +=
          widths[width] * (below >= kGolombEscape ? kGolombEscape + 1 + 64.0 : 2.0 * below + 1 + q);
    }
    if (q == 0 || bits < best) {
      best = bits;
      order = q;
    }
  }
  return best;
}

}  // namespace weft::codec
