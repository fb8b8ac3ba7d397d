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

#include "codec/kernels/classed_body.hpp"
#include "codec/kernels/scan_body.hpp"
#include "codec/kernels/sequence_body.hpp"

namespace weft::codec::kernel {

namespace {

// Threads: immutable.
struct Avx512Isa {
  static std::uint32_t popcount(std::uint64_t word) {
    return static_cast<std::uint32_t>(__builtin_popcountll(word));
  }
  static std::uint32_t trailing_zeros(std::uint64_t word) {
    return static_cast<std::uint32_t>(_tzcnt_u64(word));
  }
  static std::uint64_t low_bits(std::uint64_t word, std::uint32_t count) {
    return _bzhi_u64(word, count);
  }
  static std::uint32_t select_bit(std::uint64_t word, std::uint32_t rank) {
    return trailing_zeros(_pdep_u64(std::uint64_t{1} << rank, word)) & 63;
  }

  static __m512i load(const std::byte* at) {
    return _mm512_loadu_si512(reinterpret_cast<const void*>(at));
  }

  template <std::uint32_t kBytes>
  static std::uint64_t differ64(const std::byte* a, const std::byte* b) {
    if constexpr (kBytes == 1) {
      return _mm512_cmpneq_epi8_mask(load(a), load(b));
    } else if constexpr (kBytes == 2) {
      const std::uint64_t low = _mm512_cmpneq_epi16_mask(load(a), load(b));
      const std::uint64_t high = _mm512_cmpneq_epi16_mask(load(a + 64), load(b + 64));
      return low | high << 32;
    } else if constexpr (kBytes == 4) {
      std::uint64_t mask = 0;
      for (std::uint32_t i = 0; i < 4; ++i) {
        const auto here = _mm512_cmpneq_epi32_mask(load(a + 64 * i), load(b + 64 * i));
        mask |= std::uint64_t{here} << (16 * i);
      }
      return mask;
    } else {
      std::uint64_t mask = 0;
      for (std::uint32_t i = 0; i < 8; ++i) {
        const auto here = _mm512_cmpneq_epi64_mask(load(a + 64 * i), load(b + 64 * i));
        mask |= std::uint64_t{here} << (8 * i);
      }
      return mask;
    }
  }

  // Sixteen at a time whether they are there or not.
  static std::uint32_t* extract(std::uint64_t mask, std::uint32_t base, std::uint32_t* to) {
    if (mask == 0) return to;
    const std::uint32_t count = popcount(mask);
    alignas(64) static constexpr std::uint8_t kPlaces[64] = {
        0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,
        22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43,
        44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63};
    __m512i places = _mm512_maskz_compress_epi8(mask, _mm512_load_si512(kPlaces));
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

  static std::uint32_t locate(const std::uint16_t* before, std::uint32_t rank) {
    const __m512i wanted = _mm512_set1_epi16(static_cast<short>(rank));
    const std::uint64_t low = _mm512_cmple_epu16_mask(_mm512_load_si512(before), wanted);
    const std::uint64_t high = _mm512_cmple_epu16_mask(_mm512_load_si512(before + 32), wanted);
    return popcount(high << 32 | low) - 1;
  }

  static void flag_masks32(const std::uint8_t* flags, std::uint32_t& up,
                           std::uint32_t& exceptional) {
    const __m256i all = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(flags));
    up = _mm256_movepi8_mask(_mm256_slli_epi16(all, 7));
    exceptional = _mm256_movepi8_mask(_mm256_slli_epi16(all, 6));
  }

  // All classes at once: a row of masks is one register of eight counts. Eight rows are turned into
  // eight counts of each class.
  static void count_before(ClassBlock& block, std::uint32_t class_count, std::uint32_t* totals) {
    __m512i running = _mm512_setzero_si512();
    for (std::uint32_t w = 0; w < kBlockWords; w += 8) {
      __m128i rows[8];
      for (std::uint32_t i = 0; i < 8; ++i) {
        rows[i] = _mm512_cvtepi64_epi16(running);
        running =
            _mm512_add_epi64(running, _mm512_popcnt_epi64(_mm512_load_si512(block.masks[w + i])));
      }
      __m128i pairs[8];
      for (std::uint32_t i = 0; i < 4; ++i) {
        pairs[i] = _mm_unpacklo_epi16(rows[2 * i], rows[2 * i + 1]);
        pairs[4 + i] = _mm_unpackhi_epi16(rows[2 * i], rows[2 * i + 1]);
      }
      __m128i fours[8];  // classes 0 and 1, 2 and 3, ...: of rows 0..3, then of rows 4..7
      for (std::uint32_t half = 0; half < 2; ++half) {
        for (std::uint32_t i = 0; i < 2; ++i) {
          const __m128i a = pairs[4 * i + 2 * half];
          const __m128i b = pairs[4 * i + 2 * half + 1];
          fours[4 * half + 2 * i] = _mm_unpacklo_epi32(a, b);
          fours[4 * half + 2 * i + 1] = _mm_unpackhi_epi32(a, b);
        }
      }
      for (std::uint32_t i = 0; i < 4; ++i) {
        _mm_store_si128(reinterpret_cast<__m128i*>(block.before[2 * i] + w),
                        _mm_unpacklo_epi64(fours[i], fours[4 + i]));
        _mm_store_si128(reinterpret_cast<__m128i*>(block.before[2 * i + 1] + w),
                        _mm_unpackhi_epi64(fours[i], fours[4 + i]));
      }
    }
    alignas(64) std::uint64_t counts[kClassesMax];
    _mm512_store_si512(counts, running);
    for (std::uint32_t k = 0; k < class_count; ++k)
      totals[k] = static_cast<std::uint32_t>(counts[k]);
  }

  // Threads: immutable.
  struct Thresholds {
    Thresholds(const ClassCut& cut, const ElementFormat& format)
        : left(_mm_cvtsi32_si128(16 - format.exponent_shift - format.exponent_bits)),
          right(_mm_cvtsi32_si128(16 - format.exponent_bits)),
          byte_shift(_mm_cvtsi32_si128(format.exponent_shift)),
          byte_field(_mm512_set1_epi8(static_cast<char>((1U << format.exponent_bits) - 1))),
          in_order(_mm512_set_epi64(7, 5, 3, 1, 6, 4, 2, 0)) {
      for (std::uint32_t k = 0; k + 1 < kClassesMax; ++k) {
        lowest[k] = _mm512_set1_epi8(static_cast<char>(cut.thresholds[k]));
      }
    }
    // Exponents of 64 elements as bytes, in order.
    template <std::uint32_t kBytes>
    __m512i exponents(const std::byte* from) const {
      if constexpr (kBytes == 1) {
        return _mm512_and_si512(_mm512_srl_epi16(load(from), byte_shift), byte_field);
      } else {
        const __m512i a = _mm512_srl_epi16(_mm512_sll_epi16(load(from), left), right);
        const __m512i b = _mm512_srl_epi16(_mm512_sll_epi16(load(from + 64), left), right);
        return _mm512_permutexvar_epi64(in_order, _mm512_packus_epi16(a, b));
      }
    }
    template <std::uint32_t kBytes>
    void masks64(const std::byte* from, std::uint32_t class_count,
                 std::uint64_t (&masks)[kClassesMax]) const {
      const __m512i all = exponents<kBytes>(from);
      std::uint64_t above = 0;  // members of the classes before
      for (std::uint32_t k = 0; k + 1 < kClassesMax; ++k) {
        const std::uint64_t reached =
            k + 1 < class_count ? _mm512_cmpge_epu8_mask(all, lowest[k]) : ~std::uint64_t{0};
        masks[k] = reached & ~above;
        above = reached;
      }
      masks[kClassesMax - 1] = ~above;
    }
    __m128i left;
    __m128i right;
    __m128i byte_shift;
    __m512i byte_field;
    __m512i in_order;
    __m512i lowest[kClassesMax - 1];
  };
};

}  // namespace

const KernelSet kAvx512Kernels{KernelLevel::kAvx512,
                               "avx512",
                               &scan<Avx512Isa>,
                               &write_sequence<Avx512Isa>,
                               &read_sequence<Avx512Isa>,
                               &split<Avx512Isa>,
                               &write_directions<Avx512Isa>,
                               &apply<Avx512Isa>};

}  // namespace weft::codec::kernel

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
