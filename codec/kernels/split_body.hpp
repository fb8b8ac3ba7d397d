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

// The changes of one block in the order of its elements.
// Threads: one at a time.
struct BlockChanges {
  std::uint32_t count = 0;
  std::uint32_t exception_count = 0;
  std::uint32_t places[kBlockElements + 64];
  std::uint32_t entries[kBlockElements];  // with the class above the rank
  std::uint32_t words[kBlockElements];    // old and, 16 bits higher, new
  std::uint32_t exceptions[kBlockElements + 1];
};
inline constexpr std::uint32_t kEntryClassShift = 27;

// What each change is. No branch on it: the predictor would miss one in ten. Nothing is sorted yet:
// a list that the next change may go to as well would make it wait.
template <typename Isa, std::uint32_t kBytes>
void name_changes(const ClassSplit& split, const std::uint8_t (&class_of)[256],
                  const ClassBlock& block, std::uint32_t start,
                  const std::uint32_t (&seen)[kClassesMax], BlockChanges& changes) {
  constexpr std::uint32_t kTop = 8 * kBytes - 1;
  constexpr std::uint32_t kWord = (1U << (8 * kBytes)) - 1;
  const std::uint32_t exponent_mask = (1U << split.format.exponent_bits) - 1;
  const std::uint32_t shift = split.format.exponent_shift;
  const std::byte* old_block = split.old_bytes + std::size_t{start} * kBytes;
  const std::byte* new_block = split.new_bytes + std::size_t{start} * kBytes;
  const std::uint32_t count = changes.count;
  std::uint32_t exception_count = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t place = changes.places[i];
    const std::uint32_t before = load_word(old_block + std::size_t{place} * kBytes, kBytes);
    const std::uint32_t after = load_word(new_block + std::size_t{place} * kBytes, kBytes);
    const std::uint32_t step = after - before;
    const std::uint32_t up = ((step >> kTop) & 1) ^ 1;
    const std::uint32_t exception = ((step + 1) & kWord) > 2 ? 1 : 0;
    const std::uint32_t k = class_of[(before >> shift) & exponent_mask];
    const std::uint32_t w = place >> 6;
    const std::uint32_t rank =
        seen[k] + block.before[k][w] + Isa::popcount(Isa::low_bits(block.masks[w][k], place & 63));
    changes.entries[i] = rank | k << kEntryClassShift | up << 30 | exception << 31;
    changes.words[i] = before | after << 16;
    changes.exceptions[exception_count] = i;
    exception_count += exception;
  }
  changes.exception_count = exception_count;
}

static inline void sort_changes(const BlockChanges& changes, SplitCursor& cursor) {
  constexpr std::uint32_t kField = kClassesMax - 1;
  const std::uint32_t count = changes.count;
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t entry = changes.entries[i];
    *cursor.entries[entry >> kEntryClassShift & kField]++ = entry;
  }
  const std::uint32_t exception_count = changes.exception_count;
  for (std::uint32_t i = 0; i < exception_count; ++i) {
    const std::uint32_t at = changes.exceptions[i];
    *cursor.exceptions[changes.entries[at] >> kEntryClassShift & kField]++ = changes.words[at];
  }
}

template <typename Isa, std::uint32_t kBytes>
void split_words(ClassSplit& split, std::uint32_t first, std::uint32_t end) {
  std::uint8_t class_of[256];
  fill_class_table(split.cut, class_of);
  const typename Isa::Thresholds thresholds(split.cut, split.format);
  SplitCursor cursor = open_cursor(split);
  ClassBlock block;
  BlockChanges changes;
  for (std::uint32_t start = first; start < end; start += kBlockElements) {
    const std::uint32_t here = std::min(kBlockElements, end - start);
    const std::size_t at = std::size_t{start} * kBytes;
    changes.count = scan_words<Isa, kBytes>(split.old_bytes + at, split.new_bytes + at, 0, here,
                                            changes.places);
    // The next block is asked for, if there is a whole one.
    const bool more = split.element_count - start >= 2 * kBlockElements;
    const std::size_t next = at + std::size_t{kBlockElements} * kBytes;
    block.ahead[0] = more ? split.old_bytes + next : nullptr;
    block.ahead[1] = more ? split.new_bytes + next : nullptr;
    std::uint32_t totals[kClassesMax] = {};
    classify<Isa, kBytes>(split.old_bytes + at, here, thresholds, split.cut.count, block, totals);
    name_changes<Isa, kBytes>(split, class_of, block, start, cursor.seen, changes);
    sort_changes(changes, cursor);
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

// Isa::strip64(entries, up, exceptional): which of 64 entries went up and which are exceptions;
// they become ranks.
template <typename Isa>
std::uint32_t separate(std::uint32_t* entries, std::uint32_t count, std::uint64_t* ups,
                       std::uint32_t* exceptions) {
  std::uint32_t* to = exceptions;
  for (std::uint32_t i = 0; i < count; i += 64) {
    std::uint64_t exceptional = 0;
    Isa::strip64(entries + i, ups[i / 64], exceptional);
    const std::uint32_t here = std::min(count - i, 64U);
    exceptional &= ~std::uint64_t{0} >> (64 - here);
    if (exceptional != 0) to = Isa::extract(exceptional, i, to);
  }
  return static_cast<std::uint32_t>(to - exceptions);
}

}  // namespace weft::codec::kernel
