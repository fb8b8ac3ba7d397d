// SPDX-License-Identifier: Apache-2.0
#include "codec/encode/change_stats.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace weft::codec {

namespace {

template <typename Word>
Word load(std::span<const std::byte> bytes, std::uint32_t element) {
  Word word;
  std::memcpy(&word, bytes.data() + std::size_t{element} * sizeof(Word), sizeof(Word));
  return word;
}

template <typename Word>
void gather(std::span<const std::byte> old_bytes, std::span<const std::byte> new_bytes,
            const ElementFormat& format, const std::uint32_t* positions,
            std::uint32_t changed_count, std::uint8_t* flags, ChangeStats& stats) {
  constexpr std::uint32_t kTop = sizeof(Word) * 8 - 1;
  const std::uint32_t mask = (1U << format.exponent_bits) - 1;
  for (std::uint32_t i = 0; i < changed_count; ++i) {
    const Word before = load<Word>(old_bytes, positions[i]);
    const Word after = load<Word>(new_bytes, positions[i]);
    const Word step = static_cast<Word>(after - before);
    const bool down = ((step >> kTop) & 1) != 0;
    const Word size = down ? static_cast<Word>(-step) : step;
    const bool is_exception = size != 1;
    flags[i] =
        static_cast<std::uint8_t>((down ? 0 : kFlagUp) | (is_exception ? kFlagException : 0));
    const auto exponent =
        static_cast<std::uint32_t>(before >> format.exponent_shift) & mask;  // 0 without a field
    ++stats.changed[exponent];
    ++stats.mask_widths[static_cast<std::size_t>(
        std::bit_width(static_cast<std::uint64_t>(static_cast<Word>(before ^ after) - 1U)))];
    if (!is_exception) continue;
    const std::uint64_t magnitude = std::uint64_t{size} - 2;
    ++stats.exceptions[exponent];
    ++stats.exception_count;
    stats.magnitude_sums[exponent] += std::min(magnitude, kMagnitudeSumCap);
    ++stats.magnitude_widths[static_cast<std::size_t>(std::bit_width(magnitude))];
  }
}

}  // namespace

void gather_changes(std::span<const std::byte> old_bytes, std::span<const std::byte> new_bytes,
                    const ElementFormat& format, const std::uint32_t* positions,
                    std::uint32_t changed_count, std::uint8_t* flags, ChangeStats& stats) {
  stats.element_count = static_cast<std::uint32_t>(old_bytes.size() / format.element_bytes);
  stats.changed_count = changed_count;
  const auto run = [&](auto zero) {
    gather<decltype(zero)>(old_bytes, new_bytes, format, positions, changed_count, flags, stats);
  };
  switch (format.element_bytes) {
    case 1:
      return run(std::uint8_t{0});
    case 2:
      return run(std::uint16_t{0});
    case 4:
      return run(std::uint32_t{0});
    default:
      return run(std::uint64_t{0});
  }
}

void sample_exponents(std::span<const std::byte> old_bytes, const ElementFormat& format,
                      ChangeStats& stats) {
  constexpr std::uint32_t kRun = 64;
  const std::uint32_t stride = stats.element_count >= 131'072  ? 32
                               : stats.element_count >= 32'768 ? 8
                                                               : 1;
  const std::uint32_t mask = (1U << format.exponent_bits) - 1;
  std::uint32_t counts[2][256] = {};  // two tables: runs of one exponent would wait for each other
  std::uint32_t sampled = 0;
  for (std::uint32_t start = 0; start < stats.element_count; start += kRun * stride) {
    const std::uint32_t end = std::min(start + kRun, stats.element_count);
    sampled += end - start;
    for (std::uint32_t i = start; i < end; ++i) {
      const std::uint32_t word = format.element_bytes == 1 ? load<std::uint8_t>(old_bytes, i)
                                                           : load<std::uint16_t>(old_bytes, i);
      ++counts[i & 1][(word >> format.exponent_shift) & mask];
    }
  }
  const double scale = static_cast<double>(stats.element_count) / std::max(sampled, 1U);
  for (std::size_t e = 0; e < 256; ++e) {
    stats.elements[e] = std::max<double>((counts[0][e] + counts[1][e]) * scale, stats.changed[e]);
  }
}

}  // namespace weft::codec
