// SPDX-License-Identifier: Apache-2.0
// Old values and ranks to new values, once per instruction set: for levels that walk the changes
// one by one.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "codec/kernels/class_block.hpp"
#include "codec/kernels/kernel_set.hpp"

namespace weft::codec::kernel {

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

// Moves the changes of class k in one block; returns the first one behind it.
template <typename Isa, std::uint32_t kBytes>
std::uint32_t step_class(const ClassApply& apply, const ClassBlock& block, std::uint32_t k,
                         std::uint32_t start, std::uint32_t next, std::uint32_t total) {
  // Bytes are written below, which might be fields of `apply` for all the compiler knows.
  std::byte* new_block = apply.new_bytes + std::size_t{start} * kBytes;
  const std::uint32_t* ranks = apply.ranks[k];
  const std::uint16_t* before = block.before[k];
  const std::byte* bits = apply.bits;
  const std::uint64_t directions = apply.directions[k];
  std::uint32_t* places = apply.scratch[k];
  const std::uint32_t first = apply.universes[k];
  std::uint32_t i = next;
  for (; ranks[i] < first + total; ++i) {
    const std::uint32_t rank = ranks[i] - first;
    const std::uint32_t w = Isa::locate(before, rank);
    const std::uint32_t place = 64 * w + Isa::select_bit(block.masks[w][k], rank - before[w]);
    const std::uint64_t bit = directions + i;
    const std::uint32_t up = (static_cast<std::uint32_t>(bits[bit >> 3]) >> (bit & 7)) & 1;
    step_word<kBytes>(new_block + std::size_t{place} * kBytes, up);
    places[i] = start + place;
  }
  return i;
}

template <typename Isa, std::uint32_t kBytes>
bool apply_words(ClassApply& apply) {
  const typename Isa::Thresholds thresholds(apply.cut, apply.format);
  ClassBlock block;
  std::uint32_t next[kClassesMax] = {};
  for (std::uint32_t k = 0; k < apply.cut.count; ++k) {
    apply.ranks[k][apply.counts[k]] = ~std::uint32_t{0};  // stops the loops above
  }
  for (std::uint32_t start = 0; start < apply.element_count; start += kBlockElements) {
    const std::uint32_t here = std::min(kBlockElements, apply.element_count - start);
    const std::byte* old_block = apply.old_bytes + std::size_t{start} * kBytes;
    std::memcpy(apply.new_bytes + std::size_t{start} * kBytes, old_block,
                std::size_t{here} * kBytes);
    std::uint32_t totals[kClassesMax] = {};
    classify<Isa, kBytes>(old_block, here, thresholds, apply.cut.count, block, totals);
    for (std::uint32_t k = 0; k < apply.cut.count; ++k) {
      next[k] = step_class<Isa, kBytes>(apply, block, k, start, next[k], totals[k]);
      apply.universes[k] += totals[k];
    }
  }
  for (std::uint32_t k = 0; k < apply.cut.count; ++k) {
    if (next[k] != apply.counts[k]) return false;
    for (std::uint32_t i = 0; i < apply.exception_counts[k]; ++i) {
      apply.exception_places[k][i] = apply.scratch[k][apply.exceptions[k][i]];
    }
  }
  return true;
}

template <typename Isa>
bool apply(ClassApply& apply) {
  return apply.format.element_bytes == 1 ? apply_words<Isa, 1>(apply) : apply_words<Isa, 2>(apply);
}

}  // namespace weft::codec::kernel
