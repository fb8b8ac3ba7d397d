// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "codec/encode/write_chunk.hpp"

namespace weft::codec {

namespace {

void write_parameters(BitWriter& out, const ClassChoice& choice, const ElementFormat& format) {
  out.put(choice.cut.count - 1, 3);
  out.put(choice.magnitude_reference, format.exponent_bits);
  for (std::uint32_t k = 0; k + 1 < choice.cut.count; ++k) {
    const std::uint32_t threshold = choice.cut.thresholds[k];
    if (k == 0) {
      out.put(threshold, format.exponent_bits);
    } else {
      out.put(choice.cut.thresholds[k - 1] - threshold - 1U, kThresholdDeltaBits);
    }
  }
}

void write_magnitude(BitWriter& out, const ChangedChunk& chunk, std::uint32_t position,
                     std::uint32_t reference) {
  const std::uint64_t before = chunk.old_word(position);
  const std::uint64_t after = chunk.new_word(position);
  const std::uint64_t mask = chunk.word_mask();
  const std::uint64_t step = (after - before) & mask;
  const bool down = ((step >> (chunk.word_bits() - 1)) & 1) != 0;
  const std::uint64_t magnitude = (down ? -step & mask : step) - 2;
  const ElementFormat& format = chunk.input.format;
  const auto exponent = static_cast<std::uint32_t>(before >> format.exponent_shift) &
                        ((1U << format.exponent_bits) - 1);
  const std::uint32_t k = magnitude_parameter(reference, exponent);
  const std::uint64_t zeros = magnitude >> k;
  if (zeros < kMagnitudeEscape) {
    const auto width = static_cast<std::uint32_t>(zeros) + 1;
    out.put((std::uint64_t{1} << zeros) | (magnitude & ((std::uint64_t{1} << k) - 1)) << width,
            width + k);
  } else {
    out.put((std::uint64_t{1} << kMagnitudeEscape) | after << (kMagnitudeEscape + 1),
            kMagnitudeEscape + 1 + chunk.word_bits());
  }
}

}  // namespace

std::byte* write_classed(const ChangedChunk& chunk, const ClassChoice& choice,
                         const ChangeStats& stats) {
  EncodeWorkspace::Lists& lists = chunk.lists;
  ClassSplit split;
  split.old_bytes = chunk.input.old_bytes.data();
  split.element_count = chunk.element_count;
  split.format = chunk.input.format;
  split.cut = choice.cut;
  split.positions = lists.positions.get();
  split.flags = lists.flags.get();
  split.changed_count = chunk.changed_count;
  std::size_t start = 0;
  std::uint32_t above = 256;
  for (std::uint32_t k = 0; k < choice.cut.count; ++k) {
    split.ranks[k] = lists.ranks.get() + start;
    split.class_flags[k] = lists.class_flags.get() + start;
    split.exceptions[k] = lists.exceptions.get() + start;
    const std::uint32_t lowest = k + 1 < choice.cut.count ? choice.cut.thresholds[k] : 0;
    for (std::uint32_t e = lowest; e < above; ++e) start += stats.changed[e];
    above = lowest;
    start += 64;
  }
  chunk.kernels.split(split);

  BitWriter out(lists.out.get());
  write_parameters(out, choice, chunk.input.format);
  for (std::uint32_t k = 0; k < choice.cut.count; ++k) {
    const std::uint32_t count = split.counts[k];
    chunk.kernels.write_sequence(out, split.ranks[k], count, split.universes[k],
                                 lists.scratch.get());
    if (count == 0) continue;
    const std::uint32_t exception_count =
        chunk.kernels.write_directions(out, split.class_flags[k], count, lists.indices.get());
    chunk.kernels.write_sequence(out, lists.indices.get(), exception_count, count,
                                 lists.scratch.get());
  }
  for (std::uint32_t k = 0; k < choice.cut.count; ++k) {
    for (std::uint32_t i = 0; i < split.exception_counts[k]; ++i) {
      write_magnitude(out, chunk, lists.positions[split.exceptions[k][i]],
                      choice.magnitude_reference);
    }
  }
  return out.align();
}

}  // namespace weft::codec
