// SPDX-License-Identifier: Apache-2.0
// Rice codes sixteen at a time, for levels that compress bytes.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "codec/bits/bit_reader.hpp"
#include "codec/bits/bit_writer.hpp"

namespace weft::codec::kernel {

// Writes the low k bits of the gaps of all positions but the last few; all quotients of those go to
// `quotients`, which may be the list itself. Returns how many are done; `next` is then the position
// that a gap of zero would give.
template <typename Isa>
[[gnu::always_inline]] inline std::uint32_t put_remainders_wide(
    BitWriter& out, const std::uint32_t* positions, std::uint32_t count, std::uint32_t k,
    std::uint32_t* quotients, std::uint32_t& next) {
  const __m512i low = _mm512_set1_epi32(static_cast<int>((1U << k) - 1));
  const __m512i all = _mm512_set1_epi32(-1);
  const __m128i once = _mm_cvtsi32_si128(static_cast<int>(k));
  const __m128i twice = _mm_cvtsi32_si128(static_cast<int>(2 * k));
  __m512i last = all;
  alignas(64) std::uint64_t packed[8];
  std::uint32_t i = 0;
  for (; i + 16 <= count; i += 16) {
    const __m512i here = _mm512_loadu_si512(positions + i);
    const __m512i gaps =
        _mm512_add_epi32(_mm512_sub_epi32(here, _mm512_alignr_epi32(here, last, 15)), all);
    last = here;
    _mm512_storeu_si512(quotients + i, _mm512_srl_epi32(gaps, once));
    const __m512i bits = _mm512_and_si512(gaps, low);
    // Two to a lane, then four to every second lane.
    const __m512i even = _mm512_maskz_mov_epi32(0x5555, bits);
    const __m512i pairs =
        _mm512_or_si512(even, _mm512_sll_epi64(_mm512_srli_epi64(bits, 32), once));
    const __m512i fours =
        _mm512_or_si512(pairs, _mm512_sll_epi64(_mm512_unpackhi_epi64(pairs, pairs), twice));
    if (8 * k <= 56) {
      _mm512_store_si512(packed, fours);
      out.put(packed[0] | packed[2] << (4 * k), 8 * k);
      out.put(packed[4] | packed[6] << (4 * k), 8 * k);
    } else if (4 * k <= 56) {
      _mm512_store_si512(packed, fours);
      for (std::uint32_t j = 0; j < 8; j += 2) out.put(packed[j], 4 * k);
    } else {
      _mm512_store_si512(packed, pairs);
      for (std::uint32_t j = 0; j < 8; ++j) out.put(packed[j], 2 * k);
    }
  }
  alignas(64) std::uint32_t lanes[16];
  _mm512_store_si512(lanes, last);
  next = lanes[15] + 1;
  return i;
}

// Places of the first `count` ones from the reader's position on, counted from there; there is room
// for 16 more. Returns the bits up to and with the last one, 0 if there are fewer.
template <typename Isa>
inline std::uint64_t find_stops_wide(const BitReader& in, std::uint32_t count,
                                     std::uint32_t* stops) {
  const std::byte* from = in.start() + (in.position() >> 3);
  const auto phase = static_cast<std::uint32_t>(in.position() & 7);
  const std::uint64_t bits = in.remaining() + phase;
  std::uint32_t left = count;
  std::uint32_t* to = stops;
  for (std::uint64_t at = 0; at < bits; at += 64) {
    std::uint64_t word;
    std::memcpy(&word, from + (at >> 3), 8);
    if (at == 0) word &= ~std::uint64_t{0} << phase;
    // Ones behind the end belong to no one: the tail of a private copy is zero.
    const std::uint32_t ones = Isa::popcount(word);
    if (ones >= left) {
      word = _pdep_u64(left == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << left) - 1, word);
      Isa::extract(word, static_cast<std::uint32_t>(at) - phase, to);
      return std::uint64_t{stops[count - 1]} + 1;
    }
    to = Isa::extract(word, static_cast<std::uint32_t>(at) - phase, to);
    left -= ones;
  }
  return 0;
}

// Stops of the unary plane to positions, in place, with the remainders that begin at bit
// `remainder_at`. False: the last position is not below `limit`.
template <typename Isa>
inline bool add_remainders_wide(const std::byte* bits, std::uint64_t remainder_at, std::uint32_t k,
                                std::uint32_t count, std::uint32_t limit,
                                std::uint32_t* positions) {
  // Sixteen remainders take 2k bytes, so their places relative to the first byte never change.
  alignas(64) std::uint8_t bytes[64];
  alignas(64) std::uint32_t shifts[16];
  for (std::uint32_t lane = 0; lane < 16; ++lane) {
    const std::uint32_t bit = static_cast<std::uint32_t>(remainder_at & 7) + lane * k;
    for (std::uint32_t j = 0; j < 4; ++j) {
      bytes[4 * lane + j] = static_cast<std::uint8_t>((bit >> 3) + j);
    }
    shifts[lane] = bit & 7;
  }
  const __m512i from_byte = _mm512_load_si512(bytes);
  const __m512i shift = _mm512_load_si512(shifts);
  const __m512i low = _mm512_set1_epi32(static_cast<int>((1U << k) - 1));
  const __m512i zero = _mm512_setzero_si512();
  const __m512i top = _mm512_set1_epi32(15);
  const __m128i once = _mm_cvtsi32_si128(static_cast<int>(k));
  const std::byte* at = bits + (remainder_at >> 3);
  // Before each stop stand as many stops as there are positions before this one.
  __m512i number = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
  __m512i before = zero;    // sum of the remainders so far, in every lane
  std::uint64_t total = 0;  // the same, without wrapping
  const std::uint64_t last_stop = positions[count - 1];
  for (std::uint32_t i = 0; i < count; i += 16, at += 2 * k) {
    __m512i sum = _mm512_and_si512(
        _mm512_srlv_epi32(_mm512_permutexvar_epi8(from_byte, _mm512_loadu_si512(at)), shift), low);
    const std::uint32_t here = count - i;
    if (here < 16) sum = _mm512_maskz_mov_epi32(static_cast<__mmask16>((1U << here) - 1), sum);
    sum = _mm512_add_epi32(sum, _mm512_alignr_epi32(sum, zero, 15));
    sum = _mm512_add_epi32(sum, _mm512_alignr_epi32(sum, zero, 14));
    sum = _mm512_add_epi32(sum, _mm512_alignr_epi32(sum, zero, 12));
    sum = _mm512_add_epi32(sum, _mm512_alignr_epi32(sum, zero, 8));
    const __m512i quotients = _mm512_sub_epi32(_mm512_loadu_si512(positions + i), number);
    const __m512i place = _mm512_add_epi32(_mm512_add_epi32(_mm512_sll_epi32(quotients, once), sum),
                                           _mm512_add_epi32(before, number));
    _mm512_storeu_si512(positions + i, place);
    const __m512i group = _mm512_permutexvar_epi32(top, sum);
    before = _mm512_add_epi32(before, group);
    total += static_cast<std::uint32_t>(_mm_cvtsi128_si32(_mm512_castsi512_si128(group)));
    number = _mm512_add_epi32(number, _mm512_set1_epi32(16));
  }
  return ((last_stop + 1 - count) << k) + total + count <= limit;
}

}  // namespace weft::codec::kernel
