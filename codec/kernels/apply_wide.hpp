// SPDX-License-Identifier: Apache-2.0
// Old values and ranks to new values, for levels that expand bytes: the changes of a class lie as
// one byte per member, and a mask of the members brings them to their elements.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "codec/kernels/class_block.hpp"
#include "codec/kernels/kernel_set.hpp"

namespace weft::codec::kernel {

// Threads: one at a time.
struct alignas(64) WideApply {
  std::uint64_t members[kBlockWords][kClassesMax];  // of 64 elements; first: thresholds reached
  std::uint64_t before[kBlockWords][kClassesMax];   // members in the block before these 64
  std::uint64_t exceptional[kBlockWords];           // of 64 elements
  // One byte per member, class by class: what is added to the word.
  std::uint8_t marks[kBlockElements + 64];
};
inline constexpr std::uint8_t kMarkUp = 1;
inline constexpr std::uint8_t kMarkDown = 0xFF;
inline constexpr std::uint8_t kMarkException = 0x80;

// One mark per change of class k, to its scratch.
template <typename Isa>
inline const std::uint8_t* make_marks(const ClassApply& apply, std::uint32_t k) {
  auto* marks = reinterpret_cast<std::uint8_t*>(apply.scratch[k]);
  const std::uint32_t count = apply.counts[k];
  for (std::uint32_t i = 0; i < count; i += 64) {
    const std::uint64_t at = apply.directions[k] + i;
    const auto shift = static_cast<std::uint32_t>(at & 7);
    std::uint64_t low;
    std::memcpy(&low, apply.bits + (at >> 3), 8);
    const auto high = static_cast<std::uint64_t>(apply.bits[(at >> 3) + 8]);
    const std::uint64_t up = low >> shift | (high << 1) << (63 - shift);
    _mm512_storeu_si512(marks + i,
                        _mm512_mask_blend_epi8(up, _mm512_set1_epi8(static_cast<char>(kMarkDown)),
                                               _mm512_set1_epi8(static_cast<char>(kMarkUp))));
  }
  for (std::uint32_t i = 0; i < apply.exception_counts[k]; ++i) {
    marks[apply.exceptions[k][i]] = kMarkException;
  }
  return marks;
}

// Members and their number before each 64 elements, from the thresholds reached. Returns the
// members of each class in the block.
template <typename Isa>
inline __m512i count_block(WideApply& block, std::uint32_t words) {
  __m512i running = _mm512_setzero_si512();
  for (std::uint32_t w = 0; w < words; ++w) {
    const __m512i reached = _mm512_load_si512(block.members[w]);
    const __m512i members =
        _mm512_andnot_si512(_mm512_alignr_epi64(reached, _mm512_setzero_si512(), 7), reached);
    _mm512_store_si512(block.members[w], members);
    _mm512_store_si512(block.before[w], running);
    running = _mm512_add_epi64(running, _mm512_popcnt_epi64(members));
  }
  return running;
}

template <typename Isa, std::uint32_t kBytes, std::uint32_t kCuts>
inline void reach64(const std::byte* old_bytes, const typename Isa::Thresholds& thresholds,
                    std::uint64_t (&reached)[kClassesMax]) {
  const __m512i exponents = thresholds.template exponents<kBytes>(old_bytes);
#pragma GCC unroll 8
  for (std::uint32_t k = 0; k < kCuts; ++k) {
    reached[k] = _mm512_cmpge_epu8_mask(exponents, thresholds.lowest[k]);
  }
#pragma GCC unroll 8
  for (std::uint32_t k = kCuts; k < kClassesMax; ++k) reached[k] = ~std::uint64_t{0};
}

// Expanding from memory is many times slower than from a register on some machines. A template, so
// that the header is good without AVX-512.
template <typename Vector>
inline void keep_in_register(Vector& vector) {
  asm("" : "+v"(vector));
}

// New words of 64 elements; returns which are exceptions.
template <typename Isa, std::uint32_t kBytes, std::uint32_t kCuts>
inline std::uint64_t step64(const std::byte* old_bytes, std::byte* new_bytes,
                            const WideApply& block, std::uint32_t w,
                            const std::uint8_t* const (&marks)[kClassesMax]) {
  __m512i steps = Isa::cleared();
#pragma GCC unroll 8
  for (std::uint32_t k = 0; k <= kCuts; ++k) {
    __m512i own = _mm512_loadu_si512(marks[k] + block.before[w][k]);
    keep_in_register(own);
    steps = _mm512_mask_expand_epi8(steps, block.members[w][k], own);
  }
  if constexpr (kBytes == 1) {
    _mm512_storeu_si512(new_bytes, _mm512_add_epi8(Isa::load(old_bytes), steps));
  } else {
    const __m512i low = _mm512_cvtepi8_epi16(_mm512_castsi512_si256(steps));
    const __m512i high = _mm512_cvtepi8_epi16(_mm512_extracti64x4_epi64(steps, 1));
    _mm512_storeu_si512(new_bytes, _mm512_add_epi16(Isa::load(old_bytes), low));
    _mm512_storeu_si512(new_bytes + 64, _mm512_add_epi16(Isa::load(old_bytes + 64), high));
  }
  return _mm512_cmplt_epi8_mask(steps, _mm512_set1_epi8(-1));
}

// Elements of the exceptions, to the lists of their classes.
template <typename Isa, std::uint32_t kBytes>
inline void place_exceptions(const ClassApply& apply, const std::uint8_t (&class_of)[256],
                             const WideApply& block, std::uint32_t start, std::uint32_t words,
                             std::uint32_t* (&to)[kClassesMax]) {
  const std::uint32_t exponent_mask = (1U << apply.format.exponent_bits) - 1;
  std::uint64_t some = 0;
  for (std::uint32_t w = 0; w < words; w += 8) {
    const __m512i eight = _mm512_load_si512(block.exceptional + w);
    some |= Isa::bits_of(_mm512_test_epi64_mask(eight, eight)) << w;
  }
  for (some = _bzhi_u64(some, words); some != 0; some &= some - 1) {
    const std::uint32_t w = Isa::trailing_zeros(some);
    for (std::uint64_t mask = block.exceptional[w]; mask != 0; mask &= mask - 1) {
      const std::uint32_t place = start + 64 * w + Isa::trailing_zeros(mask);
      const std::uint32_t word = load_word(apply.old_bytes + std::size_t{place} * kBytes, kBytes);
      *to[class_of[(word >> apply.format.exponent_shift) & exponent_mask]]++ = place;
    }
  }
}

// Threads: one at a time.
struct WideCursor {
  const std::uint8_t* marks[kClassesMax] = {};
  std::uint32_t next[kClassesMax] = {};
  std::uint32_t* exceptions[kClassesMax] = {};
};

// The marks of a block's changes to their members; `marks` is where each class's begin.
template <typename Isa>
inline void place_marks(ClassApply& apply, WideCursor& cursor, __m512i counts, WideApply& block,
                        const std::uint8_t* (&marks)[kClassesMax]) {
  alignas(64) std::uint64_t totals[kClassesMax];
  _mm512_store_si512(totals, counts);
  std::memset(block.marks, 0, sizeof(block.marks));
  std::uint8_t* at = block.marks;
  for (std::uint32_t k = 0; k < kClassesMax; ++k) {
    marks[k] = at;
    if (k >= apply.cut.count) continue;
    const std::uint32_t first = apply.universes[k];
    const std::uint32_t end = first + static_cast<std::uint32_t>(totals[k]);
    const std::uint32_t* ranks = apply.ranks[k];
    const std::uint8_t* from = cursor.marks[k];
    std::uint32_t i = cursor.next[k];
    for (; ranks[i] < end; ++i) at[ranks[i] - first] = from[i];
    cursor.next[k] = i;
    apply.universes[k] = end;
    at += totals[k];
  }
}

template <typename Isa, std::uint32_t kBytes, std::uint32_t kCuts>
bool apply_wide_words(ClassApply& apply) {
  const typename Isa::Thresholds thresholds(apply.cut, apply.format);
  std::uint8_t class_of[256];
  fill_class_table(apply.cut, class_of);
  WideApply block;
  WideCursor cursor;
  for (std::uint32_t k = 0; k < apply.cut.count; ++k) {
    apply.ranks[k][apply.counts[k]] = ~std::uint32_t{0};  // stops the loop above
    cursor.marks[k] = make_marks<Isa>(apply, k);
    cursor.exceptions[k] = apply.exception_places[k];
  }
  for (std::uint32_t start = 0; start < apply.element_count; start += kBlockElements) {
    const std::uint32_t here = std::min(kBlockElements, apply.element_count - start);
    const std::byte* old_block = apply.old_bytes + std::size_t{start} * kBytes;
    std::byte* new_block = apply.new_bytes + std::size_t{start} * kBytes;
    const std::uint32_t full = here / 64;
    const std::uint32_t left = here % 64;
    const std::uint32_t words = full + (left != 0 ? 1 : 0);
    const std::size_t tail_at = std::size_t{64} * full * kBytes;
    std::byte tail[64 * kBytes] = {};
    // As in split_wide_words.
    const bool more = apply.element_count - start > 2 * kBlockElements;
    const std::size_t ahead = more ? std::size_t{2} * kBlockElements * kBytes : 0;
    for (std::uint32_t w = 0; w < full; ++w) {
      const std::byte* at = old_block + std::size_t{64} * w * kBytes;
      for (std::size_t line = 0; line < 64 * kBytes; line += 64) {
        _mm_prefetch(reinterpret_cast<const char*>(at + ahead + line), _MM_HINT_T0);
      }
      reach64<Isa, kBytes, kCuts>(at, thresholds, block.members[w]);
    }
    if (left != 0) {
      std::memcpy(tail, old_block + tail_at, std::size_t{left} * kBytes);
      reach64<Isa, kBytes, kCuts>(tail, thresholds, block.members[full]);
      // Elements that do not exist are of no class.
      for (std::uint64_t& mask : block.members[full]) mask = _bzhi_u64(mask, left);
    }
    const std::uint8_t* marks[kClassesMax];
    place_marks<Isa>(apply, cursor, count_block<Isa>(block, words), block, marks);
    for (std::uint32_t w = 0; w < full; ++w) {
      const std::size_t at = std::size_t{64} * w * kBytes;
      block.exceptional[w] =
          step64<Isa, kBytes, kCuts>(old_block + at, new_block + at, block, w, marks);
    }
    if (left != 0) {
      block.exceptional[full] = step64<Isa, kBytes, kCuts>(tail, tail, block, full, marks);
      std::memcpy(new_block + tail_at, tail, std::size_t{left} * kBytes);
    }
    place_exceptions<Isa, kBytes>(apply, class_of, block, start, words, cursor.exceptions);
  }
  for (std::uint32_t k = 0; k < apply.cut.count; ++k) {
    if (cursor.next[k] != apply.counts[k]) return false;
  }
  return true;
}

template <typename Isa>
bool apply_wide(ClassApply& apply) {
  constexpr std::uint32_t kUsual = 5;  // the encoder's most
  const bool usual = apply.cut.count <= kUsual + 1;
  if (apply.format.element_bytes == 1) {
    return usual ? apply_wide_words<Isa, 1, kUsual>(apply)
                 : apply_wide_words<Isa, 1, kClassesMax - 1>(apply);
  }
  return usual ? apply_wide_words<Isa, 2, kUsual>(apply)
               : apply_wide_words<Isa, 2, kClassesMax - 1>(apply);
}

}  // namespace weft::codec::kernel
