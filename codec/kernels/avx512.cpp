// SPDX-License-Identifier: Apache-2.0
#if defined(__x86_64__)
// Standard headers come before the target is widened, so that none of their inline functions can be
// compiled for it and then be used by the whole program.
#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "codec/kernels/levels.hpp"

#if defined(__clang__)
#pragma clang attribute push(                                                              \
    __attribute__((                                                                        \
        target("avx2,bmi,bmi2,lzcnt,popcnt,avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi," \
               "avx512vbmi2,avx512vpopcntdq"))),                                           \
    apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,bmi,bmi2,lzcnt,popcnt,avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi")
#pragma GCC target("avx512vbmi2,avx512vpopcntdq")
#endif

#include "codec/kernels/apply_wide.hpp"
#include "codec/kernels/scan_body.hpp"
#include "codec/kernels/sequence_body.hpp"
#include "codec/kernels/sequence_wide.hpp"
#include "codec/kernels/split_wide.hpp"

namespace weft::codec::kernel {

namespace {

// Threads: immutable.
struct Avx512Isa {
  static constexpr bool kWide = true;

  static std::uint32_t popcount(std::uint64_t word) {
    return static_cast<std::uint32_t>(__builtin_popcountll(word));
  }
  static std::uint32_t trailing_zeros(std::uint64_t word) {
    return static_cast<std::uint32_t>(_tzcnt_u64(word));
  }
  static __m512i load(const std::byte* at) {
    return _mm512_loadu_si512(reinterpret_cast<const void*>(at));
  }

  // A mask of fewer than 64 bits as a number, by way of a plain register: g++ 12 may spill the mask
  // itself as 32 bits and read it back as 64 (seen with -fsanitize=thread), and then the upper half
  // is what lay there before.
  template <typename Mask>
  static std::uint64_t bits_of(Mask mask) {
    std::uint32_t bits = mask;
    asm("" : "+r"(bits));
    return bits;
  }

  template <std::uint32_t kBytes>
  static std::uint64_t differ64(const std::byte* a, const std::byte* b) {
    if constexpr (kBytes == 1) {
      return _mm512_cmpneq_epi8_mask(load(a), load(b));
    } else if constexpr (kBytes == 2) {
      const std::uint64_t low = bits_of(_mm512_cmpneq_epi16_mask(load(a), load(b)));
      const std::uint64_t high = bits_of(_mm512_cmpneq_epi16_mask(load(a + 64), load(b + 64)));
      return low | high << 32;
    } else if constexpr (kBytes == 4) {
      std::uint64_t mask = 0;
      for (std::uint32_t i = 0; i < 4; ++i) {
        const auto here = _mm512_cmpneq_epi32_mask(load(a + 64 * i), load(b + 64 * i));
        mask |= bits_of(here) << (16 * i);
      }
      return mask;
    } else {
      std::uint64_t mask = 0;
      for (std::uint32_t i = 0; i < 8; ++i) {
        const auto here = _mm512_cmpneq_epi64_mask(load(a + 64 * i), load(b + 64 * i));
        mask |= bits_of(here) << (8 * i);
      }
      return mask;
    }
  }

  // Steps of 64 words as bytes: those that do not fit are as far from zero as a byte can be.
  template <std::uint32_t kBytes>
  static __m512i steps64(const std::byte* old_bytes, const std::byte* new_bytes) {
    if constexpr (kBytes == 1) {
      return _mm512_sub_epi8(load(new_bytes), load(old_bytes));
    } else {
      const __m512i low = _mm512_sub_epi16(load(new_bytes), load(old_bytes));
      const __m512i high = _mm512_sub_epi16(load(new_bytes + 64), load(old_bytes + 64));
      return _mm512_permutexvar_epi64(_mm512_set_epi64(7, 5, 3, 1, 6, 4, 2, 0),
                                      _mm512_packs_epi16(low, high));
    }
  }

  // 0, 1, ... 63
  static __m512i places64() {
    alignas(64) static constexpr std::uint8_t kPlaces[64] = {
        0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,
        22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43,
        44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63};
    return _mm512_load_si512(kPlaces);
  }

  // Zero, as a register that what comes next is merged into: compressing and expanding wait for the
  // old value of their target even where they clear it, so an unknown old value would chain each
  // one to the one before.
  static __m512i cleared() {
    __m512i zero = _mm512_setzero_si512();
    asm("" : "+v"(zero));
    return zero;
  }
  static __m512i compress_bytes(std::uint64_t mask, __m512i bytes) {
    return _mm512_mask_compress_epi8(cleared(), mask, bytes);
  }
  static __m512i compress_words(__mmask16 mask, __m512i words) {
    return _mm512_mask_compress_epi32(cleared(), mask, words);
  }

  // Sixteen at a time whether they are there or not.
  static std::uint32_t* extract(std::uint64_t mask, std::uint32_t base, std::uint32_t* to) {
    const std::uint32_t count = popcount(mask);
    __m512i places = compress_bytes(mask, places64());
    const __m512i bases = _mm512_set1_epi32(static_cast<int>(base));
    for (std::uint32_t done = 0;;) {
      const __m512i wide = _mm512_cvtepu8_epi32(_mm512_castsi512_si128(places));
      _mm512_storeu_si512(to + done, _mm512_add_epi32(wide, bases));
      done += 16;
      if (done >= count) break;
      places = _mm512_alignr_epi64(places, places, 2);
    }
    return to + count;
  }

  static void strip64(std::uint32_t* entries, std::uint64_t& up, std::uint64_t& exceptional) {
    std::uint64_t ups = 0;
    std::uint64_t exceptions = 0;
    for (std::uint32_t i = 0; i < 64; i += 16) {
      const __m512i all = _mm512_loadu_si512(entries + i);
      ups |= bits_of(_mm512_movepi32_mask(_mm512_slli_epi32(all, 1))) << i;
      exceptions |= bits_of(_mm512_movepi32_mask(all)) << i;
      _mm512_storeu_si512(entries + i,
                          _mm512_and_si512(all, _mm512_set1_epi32(static_cast<int>(kEntryRank))));
    }
    up = ups;
    exceptional = exceptions;
  }

  [[gnu::always_inline]] static inline std::uint32_t put_remainders(
      BitWriter& out, const std::uint32_t* positions, std::uint32_t count, std::uint32_t k,
      std::uint32_t* quotients, std::uint32_t& next) {
    return put_remainders_wide<Avx512Isa>(out, positions, count, k, quotients, next);
  }
  static std::uint64_t find_stops(const BitReader& in, std::uint32_t count, std::uint32_t* stops) {
    return find_stops_wide<Avx512Isa>(in, count, stops);
  }
  static bool add_remainders(const std::byte* bits, std::uint64_t remainder_at, std::uint32_t k,
                             std::uint32_t count, std::uint32_t limit, std::uint32_t* positions) {
    return add_remainders_wide<Avx512Isa>(bits, remainder_at, k, count, limit, positions);
  }

  // Exponents and thresholds stand at the top of a byte; what lies below an exponent does not
  // change whether it reaches a threshold.
  // Threads: immutable.
  struct Thresholds {
    Thresholds(const ClassCut& cut, const ElementFormat& format)
        : left(_mm_cvtsi32_si128((format.element_bytes == 1 ? 8 : 16) - format.exponent_shift -
                                 format.exponent_bits)),
          field(_mm512_set1_epi8(static_cast<char>(0xFF00U >> format.exponent_bits))) {
      alignas(64) std::uint8_t odd[64];
      for (std::uint32_t i = 0; i < 64; ++i) odd[i] = static_cast<std::uint8_t>(2 * i + 1);
      high_bytes = _mm512_load_si512(odd);
      for (std::uint32_t k = 0; k + 1 < kClassesMax; ++k) {
        const auto lowest_byte = static_cast<std::uint32_t>(cut.thresholds[k])
                                 << (8 - format.exponent_bits);
        lowest[k] = _mm512_set1_epi8(static_cast<char>(k + 1 < cut.count ? lowest_byte : 0));
      }
    }
    // Of 64 elements, in order.
    template <std::uint32_t kBytes>
    __m512i exponents(const std::byte* from) const {
      if constexpr (kBytes == 1) {
        return _mm512_and_si512(_mm512_sll_epi16(load(from), left), field);
      } else {
        const __m512i low = _mm512_sll_epi16(load(from), left);
        const __m512i high = _mm512_sll_epi16(load(from + 64), left);
        return _mm512_permutex2var_epi8(low, high_bytes, high);
      }
    }
    __m128i left;
    __m512i field;
    __m512i high_bytes;
    __m512i lowest[kClassesMax - 1];
  };
};

}  // namespace

const KernelSet kAvx512Kernels{KernelLevel::kAvx512,      "avx512",
                               &scan_range<Avx512Isa>,    &write_sequence<Avx512Isa>,
                               &read_sequence<Avx512Isa>, &split_wide<Avx512Isa>,
                               &separate<Avx512Isa>,      &apply_wide<Avx512Isa>};

}  // namespace weft::codec::kernel

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
