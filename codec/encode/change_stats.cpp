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
            const ElementFormat& format, const ChangeLists& lists, ChangeStats& stats) {
  constexpr std::uint32_t kTop = sizeof(Word) * 8 - 1;
  const std::uint32_t mask = (1U << format.exponent_bits) - 1;
  // No branch on what a step is: the predictor would miss one in ten.
  // Everything in locals: flags are bytes, and their stores might change anything else.
  std::uint32_t exception_count = 0;
  const std::uint32_t* const positions = lists.positions;
  std::uint8_t* const flags = lists.flags;
  std::uint32_t* const exceptions = lists.exceptions;
  const std::uint32_t changed_count = lists.changed_count;
  const std::uint32_t shift = format.exponent_shift;
  for (std::uint32_t i = 0; i < changed_count; ++i) {
    const Word before = load<Word>(old_bytes, positions[i]);
    const Word step = static_cast<Word>(load<Word>(new_bytes, positions[i]) - before);
    const auto up = static_cast<std::uint32_t>(((step >> kTop) & 1) ^ 1);
    const std::uint32_t exception = static_cast<Word>(step + 1) > 2 ? 1 : 0;
    flags[i] = static_cast<std::uint8_t>(up | exception << 1);
    exceptions[exception_count] = positions[i];
    exception_count += exception;
    // Exponent 0 without a field.
    ++stats.changed[static_cast<std::uint32_t>(before >> shift) & mask];
  }
  stats.exception_count = exception_count;
  for (std::uint32_t i = 0; i < exception_count; ++i) {
    const Word before = load<Word>(old_bytes, lists.exceptions[i]);
    const Word step = static_cast<Word>(load<Word>(new_bytes, lists.exceptions[i]) - before);
    const Word size = ((step >> kTop) & 1) != 0 ? static_cast<Word>(-step) : step;
    const std::uint64_t magnitude = std::uint64_t{size} - 2;
    const std::uint32_t exponent =
        static_cast<std::uint32_t>(before >> format.exponent_shift) & mask;
    ++stats.exceptions[exponent];
    stats.magnitude_sums[exponent] += std::min(magnitude, kMagnitudeSumCap);
    ++stats.magnitude_widths[static_cast<std::size_t>(std::bit_width(magnitude))];
  }
}

template <typename Word>
void gather_masks(std::span<const std::byte> old_bytes, std::span<const std::byte> new_bytes,
                  const std::uint32_t* positions, ChangeStats& stats) {
  for (std::uint32_t i = 0; i < stats.changed_count; ++i) {
    const auto mask = static_cast<Word>(load<Word>(old_bytes, positions[i]) ^
                                        load<Word>(new_bytes, positions[i]));
    ++stats.mask_widths[static_cast<std::size_t>(std::bit_width(std::uint64_t{mask} - 1))];
  }
}

}  // namespace

void gather_changes(std::span<const std::byte> old_bytes, std::span<const std::byte> new_bytes,
                    const ElementFormat& format, const ChangeLists& lists, bool with_masks,
                    ChangeStats& stats) {
  stats.element_count = static_cast<std::uint32_t>(old_bytes.size() / format.element_bytes);
  stats.changed_count = lists.changed_count;
  const auto run = [&](auto zero) {
    using Word = decltype(zero);
    gather<Word>(old_bytes, new_bytes, format, lists, stats);
    if (with_masks) gather_masks<Word>(old_bytes, new_bytes, lists.positions, stats);
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
  const std::uint32_t stride = stats.element_count >= 131'072 ? 64
                               : stats.element_count >= 8192  ? 8
                                                              : 1;
  const std::uint32_t mask = (1U << format.exponent_bits) - 1;
  // Four tables: equal exponents in a row would wait for each other.
  std::uint32_t counts[4][256] = {};
  std::uint32_t sampled = 0;
  for (std::uint32_t start = 0; start < stats.element_count; start += kRun * stride) {
    const std::uint32_t end = std::min(start + kRun, stats.element_count);
    sampled += end - start;
    for (std::uint32_t i = start; i < end; ++i) {
      const std::uint32_t word = format.element_bytes == 1 ? load<std::uint8_t>(old_bytes, i)
                                                           : load<std::uint16_t>(old_bytes, i);
      ++counts[i & 3][(word >> format.exponent_shift) & mask];
    }
  }
  const double scale = static_cast<double>(stats.element_count) / std::max(sampled, 1U);
  for (std::size_t e = 0; e < 256; ++e) {
    const std::uint32_t count = counts[0][e] + counts[1][e] + counts[2][e] + counts[3][e];
    stats.elements[e] = std::max<double>(count * scale, stats.changed[e]);
  }
}

}  // namespace weft::codec
