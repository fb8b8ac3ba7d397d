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
#pragma clang attribute push(__attribute__((target("avx2,bmi,bmi2,lzcnt,popcnt"))), \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,bmi,bmi2,lzcnt,popcnt")
#endif

#include "codec/kernels/apply_body.hpp"
#include "codec/kernels/scan_body.hpp"
#include "codec/kernels/sequence_body.hpp"
#include "codec/kernels/split_body.hpp"

namespace weft::codec::kernel {

namespace {

// Threads: immutable.
struct Avx2Isa {
  static constexpr bool kWide = false;

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

  static __m256i load(const std::byte* at) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
  }
  static std::uint32_t byte_mask(__m256i bytes) {
    return static_cast<std::uint32_t>(_mm256_movemask_epi8(bytes));
  }
  // 32 words of two compares of 16-bit words, in order.
  static std::uint32_t pack_words(__m256i first, __m256i second) {
    return byte_mask(_mm256_permute4x64_epi64(_mm256_packs_epi16(first, second), 0xD8));
  }

  template <std::uint32_t kBytes>
  static std::uint64_t differ64(const std::byte* a, const std::byte* b) {
    std::uint64_t equal = 0;
    if constexpr (kBytes == 1) {
      for (std::uint32_t i = 0; i < 2; ++i) {
        const __m256i same = _mm256_cmpeq_epi8(load(a + 32 * i), load(b + 32 * i));
        equal |= std::uint64_t{byte_mask(same)} << (32 * i);
      }
    } else if constexpr (kBytes == 2) {
      for (std::uint32_t i = 0; i < 2; ++i) {
        const __m256i first = _mm256_cmpeq_epi16(load(a + 64 * i), load(b + 64 * i));
        const __m256i second = _mm256_cmpeq_epi16(load(a + 64 * i + 32), load(b + 64 * i + 32));
        equal |= std::uint64_t{pack_words(first, second)} << (32 * i);
      }
    } else if constexpr (kBytes == 4) {
      for (std::uint32_t i = 0; i < 8; ++i) {
        const __m256i same = _mm256_cmpeq_epi32(load(a + 32 * i), load(b + 32 * i));
        const int eight = _mm256_movemask_ps(_mm256_castsi256_ps(same));
        equal |= std::uint64_t{static_cast<std::uint32_t>(eight)} << (8 * i);
      }
    } else {
      for (std::uint32_t i = 0; i < 16; ++i) {
        const __m256i same = _mm256_cmpeq_epi64(load(a + 32 * i), load(b + 32 * i));
        const int four = _mm256_movemask_pd(_mm256_castsi256_pd(same));
        equal |= std::uint64_t{static_cast<std::uint32_t>(four)} << (4 * i);
      }
    }
    return ~equal;
  }

  // Four at a time whether they are there or not: the count is noise to the branch predictor.
  static std::uint32_t* extract(std::uint64_t mask, std::uint32_t base, std::uint32_t* to) {
    const std::uint32_t count = popcount(mask);
    std::uint32_t* const end = to + count;
    do {
      for (std::uint32_t i = 0; i < 4; ++i) {
        to[i] = base + trailing_zeros(mask);
        mask &= mask - 1;
      }
      to += 4;
    } while (mask != 0);
    return end;
  }

  static std::uint32_t locate(const std::uint16_t* before, std::uint32_t rank) {
    const __m256i wanted = _mm256_set1_epi16(static_cast<short>(rank));
    const auto above = [&](std::uint32_t at) {
      return _mm256_cmpgt_epi16(_mm256_load_si256(reinterpret_cast<const __m256i*>(before + at)),
                                wanted);
    };
    // The order of the words does not matter: they are counted.
    const std::uint32_t low = byte_mask(_mm256_packs_epi16(above(0), above(16)));
    const std::uint32_t high = byte_mask(_mm256_packs_epi16(above(32), above(48)));
    return kBlockWords - 1 - popcount(std::uint64_t{high} << 32 | low);
  }

  static void strip64(std::uint32_t* entries, std::uint64_t& up, std::uint64_t& exceptional) {
    std::uint64_t ups = 0;
    std::uint64_t exceptions = 0;
    for (std::uint32_t i = 0; i < 64; i += 8) {
      auto* const at = reinterpret_cast<__m256i*>(entries + i);
      const __m256i all = _mm256_loadu_si256(at);
      const auto top = [](__m256i words) {
        return static_cast<std::uint64_t>(
            static_cast<std::uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(words))));
      };
      ups |= top(_mm256_slli_epi32(all, 1)) << i;
      exceptions |= top(all) << i;
      _mm256_storeu_si256(at,
                          _mm256_and_si256(all, _mm256_set1_epi32(static_cast<int>(kEntryRank))));
    }
    up = ups;
    exceptional = exceptions;
  }
  // Exponents and thresholds stand at the top of a byte, made signed for the compare; what lies
  // below an exponent does not change whether it reaches a threshold.
  // Threads: immutable.
  struct Thresholds {
    Thresholds(const ClassCut& cut, const ElementFormat& format)
        : left(_mm_cvtsi32_si128((format.element_bytes == 1 ? 8 : 16) - format.exponent_shift -
                                 format.exponent_bits)),
          field(_mm256_set1_epi8(static_cast<char>(0xFF00U >> format.exponent_bits))) {
      for (std::uint32_t k = 0; k + 1 < cut.count; ++k) {
        const std::uint32_t lowest = static_cast<std::uint32_t>(cut.thresholds[k])
                                     << (8 - format.exponent_bits);
        below[k] = _mm256_set1_epi8(static_cast<char>((lowest - 1) ^ 0x80));
        always[k] = lowest == 0 ? ~std::uint64_t{0} : 0;
      }
    }
    // Of 32 elements, in order.
    template <std::uint32_t kBytes>
    __m256i exponents(const std::byte* from) const {
      const __m256i sign = _mm256_set1_epi8(static_cast<char>(0x80));
      if constexpr (kBytes == 1) {
        return _mm256_xor_si256(_mm256_and_si256(_mm256_sll_epi16(load(from), left), field), sign);
      } else {
        const __m256i a = _mm256_srli_epi16(_mm256_sll_epi16(load(from), left), 8);
        const __m256i b = _mm256_srli_epi16(_mm256_sll_epi16(load(from + 32), left), 8);
        const __m256i ordered = _mm256_permute4x64_epi64(_mm256_packus_epi16(a, b), 0xD8);
        return _mm256_xor_si256(ordered, sign);
      }
    }
    // kCount is class_count where that is known when it is compiled, else 0.
    template <std::uint32_t kBytes, std::uint32_t kCount>
    void masks64(const std::byte* from, std::uint32_t class_count,
                 std::uint64_t (&masks)[kClassesMax]) const {
      const __m256i a = exponents<kBytes>(from);
      const __m256i b = exponents<kBytes>(from + 32 * kBytes);
      std::uint64_t above = 0;  // members of the classes before
#pragma GCC unroll 8
      for (std::uint32_t k = 0; k + 1 < (kCount != 0 ? kCount : class_count); ++k) {
        const std::uint32_t low = byte_mask(_mm256_cmpgt_epi8(a, below[k]));
        const std::uint32_t high = byte_mask(_mm256_cmpgt_epi8(b, below[k]));
        const std::uint64_t reached = (std::uint64_t{high} << 32 | low) | always[k];
        masks[k] = reached & ~above;
        above = reached;
      }
      masks[(kCount != 0 ? kCount : class_count) - 1] = ~above;
    }
    __m128i left;
    __m256i field;
    __m256i below[kClassesMax - 1];         // one less than a threshold
    std::uint64_t always[kClassesMax - 1];  // a threshold of 0 has nothing below it
  };
};

}  // namespace

const KernelSet kAvx2Kernels{
    KernelLevel::kAvx2,      "avx2",          &scan_range<Avx2Isa>, &write_sequence<Avx2Isa>,
    &read_sequence<Avx2Isa>, &split<Avx2Isa>, &separate<Avx2Isa>,   &apply<Avx2Isa>};

}  // namespace weft::codec::kernel

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
