// SPDX-License-Identifier: Apache-2.0
// The changes of a chunk by class, for levels that compress bytes: everything about 64 elements is
// a mask or a byte per element, and only the changed ones are ever moved.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "codec/kernels/class_block.hpp"
#include "codec/kernels/kernel_set.hpp"
#include "codec/kernels/split_body.hpp"

namespace weft::codec::kernel {

// A block with all that is known of it, and the blocks that are asked for ahead of it, stay in the
// first cache.
inline constexpr std::uint32_t kWideElements = 1024;
inline constexpr std::uint32_t kWideWords = kWideElements / 64;
inline constexpr std::uint32_t kWideBlocksAhead = 3;
static_assert(kSplitElements % kWideElements == 0);

// What is known of the changes of one block, in the order of the elements.
// Threads: one at a time.
struct alignas(64) WideBlock {
  std::uint64_t reached[kWideWords][kClassesMax];  // of 64 elements: at or above threshold k
  std::uint8_t counts[kWideWords];                 // changes among 64 elements
  std::uint16_t places[kWideElements + 64];
  std::uint8_t flags[kWideElements + 64];  // class, kWideUp, kWideException
  std::uint32_t entries[kWideElements + 64];
};
inline constexpr std::uint32_t kWideUp = 8;
inline constexpr std::uint32_t kWideException = 16;

// Flags of a step, by its low six bits; a threshold that does not exist is reached by all, and what
// is left of kCuts behind those reached is the class.
template <std::uint32_t kCuts>
inline __m512i make_step_flags() {
  alignas(64) std::uint8_t table[64] = {};
  table[1] = kCuts + kWideUp;
  table[2] = kCuts + kWideUp + kWideException;
  table[63] = kCuts;                   // -1
  table[62] = kCuts + kWideException;  // -2
  return _mm512_load_si512(table);
}

// Threads: a value; one at a time.
struct Words64 {
  const std::byte* old_bytes;
  const std::byte* new_bytes;
};

// 64 elements: which have changed and how, and which thresholds their old exponents reach. Returns
// the number of changes, which are written behind those of `found`.
template <typename Isa, std::uint32_t kBytes, std::uint32_t kCuts>
inline std::uint32_t compare64(const Words64& words, const typename Isa::Thresholds& thresholds,
                               __m512i step_flags, std::uint32_t w, std::uint32_t found,
                               WideBlock& block) {
  const __m512i steps = Isa::template steps64<kBytes>(words.old_bytes, words.new_bytes);
  const std::uint64_t changed = _mm512_test_epi8_mask(steps, steps);
  const __m512i exponents = thresholds.template exponents<kBytes>(words.old_bytes);
  // A step of -2 or less, -1, 1, 2 or more: the low bits of its byte are a place in the table.
  const __m512i clamped =
      _mm512_max_epi8(_mm512_min_epi8(steps, _mm512_set1_epi8(2)), _mm512_set1_epi8(-2));
  __m512i flags = _mm512_permutexvar_epi8(clamped, step_flags);
#pragma GCC unroll 8
  for (std::uint32_t k = 0; k < kCuts; ++k) {
    const __mmask64 reached = _mm512_cmpge_epu8_mask(exponents, thresholds.lowest[k]);
    block.reached[w][k] = reached;
    flags = _mm512_mask_sub_epi8(flags, reached, flags, _mm512_set1_epi8(1));
  }
  const __m512i places = Isa::compress_bytes(changed, Isa::places64());
  flags = Isa::compress_bytes(changed, flags);
  const std::uint32_t count = Isa::popcount(changed);
  const __m512i base = _mm512_set1_epi16(static_cast<short>(64 * w));
  const auto widen = [base](__m256i bytes) {
    return _mm512_add_epi16(_mm512_cvtepu8_epi16(bytes), base);
  };
  if (count <= 16) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(block.flags + found),
                     _mm512_castsi512_si128(flags));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(block.places + found),
                        _mm512_castsi512_si256(widen(_mm512_castsi512_si256(places))));
  } else {
    _mm512_storeu_si512(block.flags + found, flags);
    _mm512_storeu_si512(block.places + found, widen(_mm512_castsi512_si256(places)));
    _mm512_storeu_si512(block.places + found + 32, widen(_mm512_extracti64x4_epi64(places, 1)));
  }
  block.counts[w] = static_cast<std::uint8_t>(count);
  return found + count;
}

// Asks for the 64 elements from `at` on.
template <std::uint32_t kBytes>
inline void ask_for64(const std::byte* at) {
  for (std::size_t line = 0; line < 64 * kBytes; line += 64) {
    _mm_prefetch(reinterpret_cast<const char*>(at + line), _MM_HINT_T0);
  }
}

// Ranks of all changes of a block, as entries. `seen` has the members of each class before the
// block, and then behind it. Asks for the elements from `ahead` on.
template <typename Isa, std::uint32_t kBytes>
inline void rank_block(WideBlock& block, std::uint32_t words, const std::byte* ahead,
                       __m512i& seen) {
  const __m512i one = _mm512_set1_epi64(1);
  const __m512i all = _mm512_set1_epi64(-1);
  std::uint32_t at = 0;
  for (std::uint32_t w = 0; w < words; ++w) {
    ask_for64<kBytes>(ahead + std::size_t{64} * w * kBytes);
    const __m512i reached = _mm512_load_si512(block.reached[w]);
    // Members of a class reach its threshold and not the one before.
    const __m512i members =
        _mm512_andnot_si512(_mm512_alignr_epi64(reached, _mm512_setzero_si512(), 7), reached);
    const std::uint32_t count = block.counts[w];
    // Eight at a time and once at least: whether there is a change is a coin toss.
    std::uint32_t i = 0;
    do {
      const __m512i places = _mm512_cvtepu16_epi64(
          _mm_loadu_si128(reinterpret_cast<const __m128i*>(block.places + at + i)));
      const __m512i flags = _mm512_cvtepu8_epi64(
          _mm_loadl_epi64(reinterpret_cast<const __m128i*>(block.flags + at + i)));
      // Rotation is modulo 64, and so is the choice of a lane modulo 8.
      const __m512i below = _mm512_add_epi64(_mm512_rolv_epi64(one, places), all);
      const __m512i own = _mm512_permutexvar_epi64(flags, members);
      const __m512i rank = _mm512_add_epi64(_mm512_popcnt_epi64(_mm512_and_si512(own, below)),
                                            _mm512_permutexvar_epi64(flags, seen));
      const __m512i entry = _mm512_or_si512(rank, _mm512_slli_epi64(flags, kEntryClassShift));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(block.entries + at + i),
                          _mm512_cvtepi64_epi32(entry));
      i += 8;
    } while (i < count);
    at += count;
    seen = _mm512_add_epi64(seen, _mm512_popcnt_epi64(members));
  }
}

// Entries of a block to the lists of their classes.
template <typename Isa, std::uint32_t kCuts>
inline void sort_entries(const WideBlock& block, std::uint32_t count, SplitCursor& cursor) {
  const __m512i field = _mm512_set1_epi32(7 << kEntryClassShift);
  for (std::uint32_t i = 0; i < count; i += 16) {
    const __m512i entries = _mm512_loadu_si512(block.entries + i);
    const auto valid = static_cast<__mmask16>(_bzhi_u32(0xFFFF, std::min(count - i, 16U)));
    const __m512i classes = _mm512_and_si512(entries, field);
#pragma GCC unroll 8
    for (std::uint32_t k = 0; k <= kCuts; ++k) {
      const __mmask16 own = _mm512_mask_cmpeq_epi32_mask(
          valid, classes, _mm512_set1_epi32(static_cast<int>(k << kEntryClassShift)));
      _mm512_storeu_si512(cursor.entries[k], Isa::compress_words(own, entries));
      cursor.entries[k] += Isa::popcount(own);
    }
  }
}

// The exceptions of a block to the lists of their classes, as old and new words.
template <typename Isa, std::uint32_t kBytes>
inline void sort_exceptions(const WideBlock& block, std::uint32_t count, const std::byte* old_bytes,
                            const std::byte* new_bytes, SplitCursor& cursor) {
  for (std::uint32_t i = 0; i < count; i += 64) {
    const __m512i flags = _mm512_loadu_si512(block.flags + i);
    std::uint64_t mask = _bzhi_u64(_mm512_test_epi8_mask(flags, _mm512_set1_epi8(kWideException)),
                                   std::min(count - i, 64U));
    for (; mask != 0; mask &= mask - 1) {
      const std::uint32_t at = i + Isa::trailing_zeros(mask);
      const std::uint32_t k = block.flags[at] & 7U;
      const std::size_t place = std::size_t{block.places[at]} * kBytes;
      *cursor.exceptions[k]++ =
          load_word(old_bytes + place, kBytes) | load_word(new_bytes + place, kBytes) << 16;
    }
  }
}

template <typename Isa, std::uint32_t kBytes, std::uint32_t kCuts>
void split_wide_words(ClassSplit& split, std::uint32_t first, std::uint32_t end) {
  const typename Isa::Thresholds thresholds(split.cut, split.format);
  const __m512i step_flags = make_step_flags<kCuts>();
  SplitCursor cursor = open_cursor(split);
  WideBlock block;
  for (auto& row : block.reached) _mm512_store_si512(row, _mm512_set1_epi64(-1));
  __m512i seen =
      _mm512_cvtepu32_epi64(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(split.universes)));
  std::uint32_t behind = 0;  // elements that fill up the last 64 and do not exist
  for (std::uint32_t start = first; start < end; start += kWideElements) {
    const std::uint32_t here = std::min(kWideElements, end - start);
    const std::byte* old_block = split.old_bytes + std::size_t{start} * kBytes;
    const std::byte* new_block = split.new_bytes + std::size_t{start} * kBytes;
    // What comes later is asked for now: its old values while blocks are compared, its new ones
    // while changes are ranked, because memory would rest meanwhile. Behind the chunk there is
    // nothing that will be read: this block is asked for again.
    const bool more = split.element_count - start >= (kWideBlocksAhead + 1) * kWideElements;
    const std::size_t ahead =
        more ? std::size_t{kWideBlocksAhead} * kWideElements * kBytes : std::size_t{0};
    std::uint32_t count = 0;
    std::uint32_t w = 0;
    for (; w < here / 64; ++w) {
      const std::size_t at = std::size_t{64} * w * kBytes;
      ask_for64<kBytes>(old_block + at + ahead);
      count = compare64<Isa, kBytes, kCuts>({old_block + at, new_block + at}, thresholds,
                                            step_flags, w, count, block);
    }
    if (const std::uint32_t left = here % 64; left != 0) {
      std::byte old_tail[64 * kBytes] = {};
      std::byte new_tail[64 * kBytes] = {};
      const std::size_t at = std::size_t{64} * w * kBytes;
      std::memcpy(old_tail, old_block + at, std::size_t{left} * kBytes);
      std::memcpy(new_tail, new_block + at, std::size_t{left} * kBytes);
      count = compare64<Isa, kBytes, kCuts>({old_tail, new_tail}, thresholds, step_flags, w, count,
                                            block);
      ++w;
      behind = 64 - left;
    }
    rank_block<Isa, kBytes>(block, w, new_block + ahead, seen);
    sort_entries<Isa, kCuts>(block, count, cursor);
    sort_exceptions<Isa, kBytes>(block, count, old_block, new_block, cursor);
  }
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(cursor.seen), _mm512_cvtepi64_epi32(seen));
  std::uint32_t lowest_class = 0;  // of those, whose exponents are 0
  while (lowest_class + 1 < split.cut.count && split.cut.thresholds[lowest_class] != 0) {
    ++lowest_class;
  }
  cursor.seen[lowest_class] -= behind;
  close_cursor(cursor, split);
}

template <typename Isa>
void split_wide(ClassSplit& split, std::uint32_t first, std::uint32_t end) {
  constexpr std::uint32_t kUsual = 5;  // the encoder's most
  const bool usual = split.cut.count <= kUsual + 1;
  if (split.format.element_bytes == 1) {
    usual ? split_wide_words<Isa, 1, kUsual>(split, first, end)
          : split_wide_words<Isa, 1, kClassesMax - 1>(split, first, end);
  } else {
    usual ? split_wide_words<Isa, 2, kUsual>(split, first, end)
          : split_wide_words<Isa, 2, kClassesMax - 1>(split, first, end);
  }
}

}  // namespace weft::codec::kernel
