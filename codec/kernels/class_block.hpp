// SPDX-License-Identifier: Apache-2.0
// Which class each of 4,096 elements is of (bit masks per 64 elements), and how many of its class
// stand before each 64: what both sides of the `classed` type compute from the old values.
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

}  // namespace weft::codec::kernel
