// SPDX-License-Identifier: Apache-2.0
// Compare and extract, once per instruction set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace weft::codec::kernel {

// Isa::differ64<kBytes>(a, b): bit i set when the i-th of 64 words differs.
// Isa::extract(mask, base, to): base + place of each set bit to `to`, which has room for 64;
// returns the end. Some bit should be set: if none is, the work is done all the same.
template <typename Isa, std::uint32_t kBytes>
std::uint32_t scan_words(const std::byte* old_bytes, const std::byte* new_bytes,
                         std::uint32_t first, std::uint32_t end, std::uint32_t* positions) {
  constexpr std::size_t kBlockBytes = 64 * kBytes;
  std::uint32_t* to = positions;
  std::uint32_t done = first;
  // Fewer than 64 elements.
  const auto scan_few = [&](std::uint32_t count) {
    std::byte old_few[kBlockBytes] = {};
    std::byte new_few[kBlockBytes] = {};
    const std::size_t at = std::size_t{done} * kBytes;
    std::memcpy(old_few, old_bytes + at, std::size_t{count} * kBytes);
    std::memcpy(new_few, new_bytes + at, std::size_t{count} * kBytes);
    to = Isa::extract(Isa::template differ64<kBytes>(old_few, new_few), done, to);
    done += count;
  };
  // Up to a cache line's border: loads that cross one are slower, all along the chunk.
  const auto beside = static_cast<std::uint32_t>(
      -(reinterpret_cast<std::uintptr_t>(old_bytes) + std::size_t{first} * kBytes) & 63);
  if (beside != 0 && beside % kBytes == 0 && end - first > 256) scan_few(beside / kBytes);
  // One question for 256 elements: at a few per cent of changes, whether 64 have one is a coin toss
  // that the branch predictor loses.
  for (; done + 256 <= end; done += 256) {
    std::uint64_t masks[4];
    for (std::uint32_t i = 0; i < 4; ++i) {
      const std::size_t at = std::size_t{done + 64 * i} * kBytes;
      masks[i] = Isa::template differ64<kBytes>(old_bytes + at, new_bytes + at);
    }
    if ((masks[0] | masks[1] | masks[2] | masks[3]) == 0) continue;
    for (std::uint32_t i = 0; i < 4; ++i) to = Isa::extract(masks[i], done + 64 * i, to);
  }
  for (; done + 64 <= end; done += 64) {
    const std::size_t at = std::size_t{done} * kBytes;
    const std::uint64_t mask = Isa::template differ64<kBytes>(old_bytes + at, new_bytes + at);
    if (mask != 0) to = Isa::extract(mask, done, to);
  }
  if (done < end) scan_few(end - done);
  return static_cast<std::uint32_t>(to - positions);
}

template <typename Isa>
std::uint32_t scan_range(const std::byte* old_bytes, const std::byte* new_bytes,
                         std::uint32_t first, std::uint32_t end, std::uint32_t element_bytes,
                         std::uint32_t* positions) {
  switch (element_bytes) {
    case 1:
      return scan_words<Isa, 1>(old_bytes, new_bytes, first, end, positions);
    case 2:
      return scan_words<Isa, 2>(old_bytes, new_bytes, first, end, positions);
    case 4:
      return scan_words<Isa, 4>(old_bytes, new_bytes, first, end, positions);
    default:
      return scan_words<Isa, 8>(old_bytes, new_bytes, first, end, positions);
  }
}

}  // namespace weft::codec::kernel
