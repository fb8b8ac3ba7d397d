// SPDX-License-Identifier: Apache-2.0
// The changes of a chunk by class, once per instruction set: for levels that walk the changes one
// by one.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "codec/kernels/class_block.hpp"
#include "codec/kernels/kernel_set.hpp"
#include "codec/kernels/scan_body.hpp"

namespace weft::codec::kernel {

// Where a split has come to: locals, which no store to a list can change.
// Threads: one at a time.
struct SplitCursor {
  std::uint32_t* entries[kClassesMax];
  std::uint32_t* exceptions[kClassesMax];
  std::uint32_t seen[kClassesMax];  // members of the class in earlier blocks
};

static inline SplitCursor open_cursor(const ClassSplit& split) {
  SplitCursor cursor;
  for (std::uint32_t k = 0; k < kClassesMax; ++k) {
    cursor.entries[k] = split.entries[k] + split.counts[k];
    cursor.exceptions[k] = split.exceptions[k] + split.exception_counts[k];
    cursor.seen[k] = split.universes[k];
  }
  return cursor;
}

static inline void close_cursor(const SplitCursor& cursor, ClassSplit& split) {
  for (std::uint32_t k = 0; k < kClassesMax; ++k) {
    split.counts[k] = static_cast<std::uint32_t>(cursor.entries[k] - split.entries[k]);
    split.exception_counts[k] =
        static_cast<std::uint32_t>(cursor.exceptions[k] - split.exceptions[k]);
    split.universes[k] = cursor.seen[k];
  }
}

// The changes of one block, whose masks are made, to the lists. No branch on what a change is: the
// predictor would miss one in ten.
template <typename Isa, std::uint32_t kBytes>
void split_block(const ClassSplit& split, const std::uint8_t (&class_of)[256],
                 const ClassBlock& block, std::uint32_t start, const std::uint32_t* places,
                 std::uint32_t count, SplitCursor& cursor) {
  constexpr std::uint32_t kTop = 8 * kBytes - 1;
  constexpr std::uint32_t kWord = (1U << (8 * kBytes)) - 1;
  const std::uint32_t exponent_mask = (1U << split.format.exponent_bits) - 1;
  const std::uint32_t shift = split.format.exponent_shift;
  const std::byte* old_block = split.old_bytes + std::size_t{start} * kBytes;
  const std::byte* new_block = split.new_bytes + std::size_t{start} * kBytes;
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t place = places[i];
    const std::uint32_t before = load_word(old_block + std::size_t{place} * kBytes, kBytes);
    const std::uint32_t after = load_word(new_block + std::size_t{place} * kBytes, kBytes);
    const std::uint32_t step = after - before;
    const std::uint32_t up = ((step >> kTop) & 1) ^ 1;
    const std::uint32_t exception = ((step + 1) & kWord) > 2 ? 1 : 0;
    const std::uint32_t k = class_of[(before >> shift) & exponent_mask];
    const std::uint32_t w = place >> 6;
    const std::uint32_t rank = cursor.seen[k] + block.before[k][w] +
                               Isa::popcount(Isa::low_bits(block.masks[w][k], place & 63));
    *cursor.entries[k]++ = rank | up << 30 | exception << 31;
    *cursor.exceptions[k] = before | after << 16;
    cursor.exceptions[k] += exception;
  }
}

template <typename Isa, std::uint32_t kBytes>
void split_words(ClassSplit& split, std::uint32_t first, std::uint32_t end) {
  std::uint8_t class_of[256];
  fill_class_table(split.cut, class_of);
  const typename Isa::Thresholds thresholds(split.cut, split.format);
  SplitCursor cursor = open_cursor(split);
  ClassBlock block;
  std::uint32_t places[kBlockElements + 64];
  for (std::uint32_t start = first; start < end; start += kBlockElements) {
    const std::uint32_t here = std::min(kBlockElements, end - start);
    const std::size_t at = std::size_t{start} * kBytes;
    const std::uint32_t count =
        scan_words<Isa, kBytes>(split.old_bytes + at, split.new_bytes + at, 0, here, places);
    std::uint32_t totals[kClassesMax] = {};
    classify<Isa, kBytes>(split.old_bytes + at, here, thresholds, split.cut.count, block, totals);
    split_block<Isa, kBytes>(split, class_of, block, start, places, count, cursor);
    for (std::uint32_t k = 0; k < split.cut.count; ++k) cursor.seen[k] += totals[k];
  }
  close_cursor(cursor, split);
}

template <typename Isa>
void split(ClassSplit& split, std::uint32_t first, std::uint32_t end) {
  if (split.format.element_bytes == 1) {
    split_words<Isa, 1>(split, first, end);
  } else {
    split_words<Isa, 2>(split, first, end);
  }
}

template <typename Isa>
std::uint32_t separate(std::uint32_t* entries, std::uint32_t count, std::uint64_t* ups,
                       std::uint32_t* exceptions) {
  std::uint32_t exception_count = 0;
  for (std::uint32_t i = 0; i < count; i += 64) {
    const std::uint32_t here = std::min(count - i, 64U);
    std::uint64_t up = 0;
    for (std::uint32_t j = 0; j < here; ++j) {
      const std::uint32_t entry = entries[i + j];
      up |= std::uint64_t{(entry >> 30) & 1} << j;
      exceptions[exception_count] = i + j;
      exception_count += entry >> 31;
      entries[i + j] = entry & kEntryRank;
    }
    ups[i / 64] = up;
  }
  return exception_count;
}

}  // namespace weft::codec::kernel
