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
  // Two streams of which as many elements will be read soon as are being classified, when memory
  // would rest; null: none.
  const std::byte* ahead[2] = {};
};

static inline std::uint32_t load_word(const std::byte* at, std::uint32_t element_bytes) {
  if (element_bytes == 1) return static_cast<std::uint32_t>(*at);
  std::uint16_t word;
  std::memcpy(&word, at, 2);
  return word;
}

// Class of every exponent.
static inline void fill_class_table(const ClassCut& cut, std::uint8_t (&table)[256]) {
  std::uint32_t above = 256;  // exponents from here on are done
  for (std::uint32_t k = 0; k < cut.count; ++k) {
    const std::uint32_t lowest = k + 1 < cut.count ? cut.thresholds[k] : 0;
    std::memset(table + lowest, static_cast<int>(k), above - lowest);
    above = lowest;
  }
}

// Masks and counts of up to kBlockElements elements. Places behind them are of no class; in words
// behind them `before` is the class's total, so that no rank is found there. kCount is class_count
// where that is known when it is compiled, else 0.
template <typename Isa, std::uint32_t kBytes, std::uint32_t kCount>
void classify_as(const std::byte* old_bytes, std::uint32_t element_count,
                 const typename Isa::Thresholds& thresholds, std::uint32_t class_count,
                 ClassBlock& block, std::uint32_t* totals) {
  const std::uint32_t full_words = element_count / 64;
  std::uint32_t counts[kClassesMax] = {};
  const auto count_word = [&](std::uint32_t w) {
#pragma GCC unroll 8
    for (std::uint32_t k = 0; k < (kCount != 0 ? kCount : class_count); ++k) {
      block.before[k][w] = static_cast<std::uint16_t>(counts[k]);
      counts[k] += Isa::popcount(block.masks[w][k]);
    }
  };
  for (std::uint32_t w = 0; w < full_words; ++w) {
    const std::size_t at = std::size_t{64} * w * kBytes;
    for (std::size_t line = at; block.ahead[0] != nullptr && line < at + 64 * kBytes; line += 64) {
      __builtin_prefetch(block.ahead[0] + line);
      __builtin_prefetch(block.ahead[1] + line);
    }
    thresholds.template masks64<kBytes, kCount>(old_bytes + at, class_count, block.masks[w]);
    count_word(w);
  }
  if (full_words < kBlockWords) {
    std::memset(block.masks[full_words], 0, (kBlockWords - full_words) * sizeof(block.masks[0]));
    if (const std::uint32_t left = element_count - 64 * full_words; left != 0) {
      std::byte tail[64 * kBytes] = {};
      std::memcpy(tail, old_bytes + std::size_t{64} * full_words * kBytes,
                  std::size_t{left} * kBytes);
      thresholds.template masks64<kBytes, kCount>(tail, class_count, block.masks[full_words]);
      for (std::uint64_t& mask : block.masks[full_words]) mask &= (std::uint64_t{1} << left) - 1;
    }
    for (std::uint32_t w = full_words; w < kBlockWords; ++w) count_word(w);
  }
  std::copy_n(counts, class_count, totals);
}

template <typename Isa, std::uint32_t kBytes>
void classify(const std::byte* old_bytes, std::uint32_t element_count,
              const typename Isa::Thresholds& thresholds, std::uint32_t class_count,
              ClassBlock& block, std::uint32_t* totals) {
  constexpr std::uint32_t kUsual = 6;  // what the encoder takes on weights
  const auto run =
      class_count == kUsual ? &classify_as<Isa, kBytes, kUsual> : &classify_as<Isa, kBytes, 0>;
  run(old_bytes, element_count, thresholds, class_count, block, totals);
}

}  // namespace weft::codec::kernel
