// SPDX-License-Identifier: Apache-2.0
// The loops of the `classed` type, once per instruction set. Both sides compute, from the old
// values of 4,096 elements at a time, which class each element is of (bit masks per 64 elements)
// and how many of its class stand before each 64.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "codec/kernels/kernel_set.hpp"

// Plain functions here are static, and templates take the level's Isa, which has no linkage: no
// level's code can end up in another's.
namespace weft::codec::kernel {

inline constexpr std::uint32_t kBlockElements = 4096;
inline constexpr std::uint32_t kBlockWords = kBlockElements / 64;

// Threads: one at a time.
struct alignas(64) ClassBlock {
  std::uint64_t masks[kBlockWords][kClassesMax];   // of 64 elements: members of the class
  std::uint16_t before[kClassesMax][kBlockWords];  // members of the class before these 64
};

static inline std::uint32_t load_word(const std::byte* at, std::uint32_t element_bytes) {
  if (element_bytes == 1) return static_cast<std::uint32_t>(*at);
  std::uint16_t word;
  std::memcpy(&word, at, 2);
  return word;
}

// Class of every exponent.
static inline void fill_class_table(const ClassCut& cut, std::uint8_t (&table)[256]) {
  for (std::uint32_t exponent = 0; exponent < 256; ++exponent) {
    std::uint8_t number = 0;
    while (number + 1U < cut.count && exponent < cut.thresholds[number]) ++number;
    table[exponent] = number;
  }
}

// Masks and counts of up to kBlockElements elements. Places behind them are of no class; in words
// behind them `before` is the class's total, so that no rank is found there.
template <typename Isa, std::uint32_t kBytes>
void classify(const std::byte* old_bytes, std::uint32_t element_count,
              const typename Isa::Thresholds& thresholds, std::uint32_t class_count,
              ClassBlock& block, std::uint32_t* totals) {
  const std::uint32_t full_words = element_count / 64;
  for (std::uint32_t w = 0; w < full_words; ++w) {
    thresholds.template masks64<kBytes>(old_bytes + std::size_t{64} * w * kBytes, class_count,
                                        block.masks[w]);
  }
  if (full_words < kBlockWords) {
    std::memset(block.masks[full_words], 0, (kBlockWords - full_words) * sizeof(block.masks[0]));
    if (const std::uint32_t left = element_count - 64 * full_words; left != 0) {
      std::byte tail[64 * kBytes] = {};
      std::memcpy(tail, old_bytes + std::size_t{64} * full_words * kBytes,
                  std::size_t{left} * kBytes);
      thresholds.template masks64<kBytes>(tail, class_count, block.masks[full_words]);
      for (std::uint64_t& mask : block.masks[full_words]) mask &= (std::uint64_t{1} << left) - 1;
    }
  }
  Isa::count_before(block, class_count, totals);
}

// `before` and totals from the masks, one class after the other.
template <typename Isa>
void count_before_by_class(ClassBlock& block, std::uint32_t class_count, std::uint32_t* totals) {
  for (std::uint32_t k = 0; k < class_count; ++k) {
    std::uint32_t count = 0;
    for (std::uint32_t w = 0; w < kBlockWords; ++w) {
      block.before[k][w] = static_cast<std::uint16_t>(count);
      count += Isa::popcount(block.masks[w][k]);
    }
    totals[k] = count;
  }
}

template <typename Isa, std::uint32_t kBytes>
void split_words(ClassSplit& split) {
  std::uint8_t class_of[256];
  fill_class_table(split.cut, class_of);
  const std::uint32_t exponent_mask = (1U << split.format.exponent_bits) - 1;
  const std::uint32_t shift = split.format.exponent_shift;
  const typename Isa::Thresholds thresholds(split.cut, split.format);
  ClassBlock block;
  std::uint32_t seen[kClassesMax] = {};  // members of the class in earlier blocks
  std::uint32_t counts[kClassesMax] = {};
  std::uint32_t exception_counts[kClassesMax] = {};
  const std::uint32_t* positions = split.positions;
  const std::uint8_t* all_flags = split.flags;
  const std::uint32_t changed_count = split.changed_count;
  std::uint32_t i = 0;
  for (std::uint32_t start = 0; start < split.element_count; start += kBlockElements) {
    const std::uint32_t here = std::min(kBlockElements, split.element_count - start);
    const std::byte* old_block = split.old_bytes + std::size_t{start} * kBytes;
    std::uint32_t totals[kClassesMax] = {};
    classify<Isa, kBytes>(old_block, here, thresholds, split.cut.count, block, totals);
    for (; i < changed_count && positions[i] - start < here; ++i) {
      const std::uint32_t place = positions[i] - start;
      const std::uint32_t word = load_word(old_block + std::size_t{place} * kBytes, kBytes);
      const std::uint32_t k = class_of[(word >> shift) & exponent_mask];
      const std::uint32_t w = place >> 6;
      const std::uint32_t at = counts[k]++;
      split.ranks[k][at] = seen[k] + block.before[k][w] +
                           Isa::popcount(Isa::low_bits(block.masks[w][k], place & 63));
      const std::uint8_t flags = all_flags[i];
      split.class_flags[k][at] = flags;
      split.exceptions[k][exception_counts[k]] = i;
      exception_counts[k] += flags >> 1;
    }
    for (std::uint32_t k = 0; k < split.cut.count; ++k) seen[k] += totals[k];
  }
  std::copy_n(counts, kClassesMax, split.counts);
  std::copy_n(exception_counts, kClassesMax, split.exception_counts);
  std::copy_n(seen, kClassesMax, split.universes);
}

template <typename Isa>
void split(ClassSplit& split) {
  if (split.format.element_bytes == 1) {
    split_words<Isa, 1>(split);
  } else {
    split_words<Isa, 2>(split);
  }
}

// The directions of one class as a bit plane; the places of its exceptions to `exceptions`, which
// has room for count + 64. Returns how many. Flags are readable up to 64 behind the last.
template <typename Isa>
std::uint32_t write_directions(BitWriter& out, const std::uint8_t* flags, std::uint32_t count,
                               std::uint32_t* exceptions) {
  std::uint32_t* to = exceptions;
  for (std::uint32_t i = 0; i < count; i += 32) {
    std::uint32_t up = 0;
    std::uint32_t exceptional = 0;
    Isa::flag_masks32(flags + i, up, exceptional);
    const std::uint32_t here = std::min(count - i, 32U);
    const auto valid = static_cast<std::uint32_t>((std::uint64_t{1} << here) - 1);
    out.put(up & valid, here);
    to = Isa::extract(exceptional & valid, i, to);
  }
  return static_cast<std::uint32_t>(to - exceptions);
}

// One step up or down on the bit pattern.
template <std::uint32_t kBytes>
static inline void step_word(std::byte* at, std::uint32_t up) {
  if constexpr (kBytes == 1) {
    *at = static_cast<std::byte>(static_cast<std::uint32_t>(*at) + 2 * up - 1);
  } else {
    std::uint16_t word;
    std::memcpy(&word, at, 2);
    word = static_cast<std::uint16_t>(word + 2 * up - 1);
    std::memcpy(at, &word, 2);
  }
}

template <typename Isa, std::uint32_t kBytes>
bool apply_words(ClassApply& apply) {
  const typename Isa::Thresholds thresholds(apply.cut, apply.format);
  ClassBlock block;
  std::uint32_t seen[kClassesMax] = {};
  std::uint32_t next[kClassesMax] = {};
  for (std::uint32_t k = 0; k < apply.cut.count; ++k) {
    apply.ranks[k][apply.counts[k]] = ~std::uint32_t{0};  // stops the loop below
  }
  for (std::uint32_t start = 0; start < apply.element_count; start += kBlockElements) {
    const std::uint32_t here = std::min(kBlockElements, apply.element_count - start);
    const std::byte* old_block = apply.old_bytes + std::size_t{start} * kBytes;
    std::byte* new_block = apply.new_bytes + std::size_t{start} * kBytes;
    std::memcpy(new_block, old_block, std::size_t{here} * kBytes);
    std::uint32_t totals[kClassesMax] = {};
    classify<Isa, kBytes>(old_block, here, thresholds, apply.cut.count, block, totals);
    for (std::uint32_t k = 0; k < apply.cut.count; ++k) {
      const std::uint32_t end = seen[k] + totals[k];
      const std::uint32_t* ranks = apply.ranks[k];
      const std::uint16_t* before = block.before[k];
      // Bytes are written below, which might be fields of `apply` for all the compiler knows.
      const std::byte* bits = apply.bits;
      const std::uint64_t directions = apply.directions[k];
      std::uint32_t* places = apply.places[k];
      const std::uint32_t first = seen[k];
      std::uint32_t i = next[k];
      for (; ranks[i] < end; ++i) {
        const std::uint32_t rank = ranks[i] - first;
        const std::uint32_t w = Isa::locate(before, rank);
        const std::uint32_t place = 64 * w + Isa::select_bit(block.masks[w][k], rank - before[w]);
        const std::uint64_t bit = directions + i;
        const std::uint32_t up = (static_cast<std::uint32_t>(bits[bit >> 3]) >> (bit & 7)) & 1;
        step_word<kBytes>(new_block + std::size_t{place} * kBytes, up);
        places[i] = start + place;
      }
      next[k] = i;
      seen[k] = end;
    }
  }
  bool complete = true;
  for (std::uint32_t k = 0; k < apply.cut.count; ++k) {
    complete = complete && next[k] == apply.counts[k];
    apply.universes[k] = seen[k];
  }
  return complete;
}

template <typename Isa>
bool apply(ClassApply& apply) {
  return apply.format.element_bytes == 1 ? apply_words<Isa, 1>(apply) : apply_words<Isa, 2>(apply);
}

}  // namespace weft::codec::kernel
