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

// Magnitudes of all exceptions, class by class. The writer comes and goes by value: a copy without
// an address stays in registers.
BitWriter write_magnitudes(BitWriter out, const ClassSplit& split, std::uint32_t reference) {
  const ElementFormat& format = split.format;
  const std::uint32_t word_bits = format.element_bytes * 8U;
  const std::uint32_t word_mask = (1U << word_bits) - 1;
  const std::uint32_t exponent_mask = (1U << format.exponent_bits) - 1;
  for (std::uint32_t k = 0; k < split.cut.count; ++k) {
    const std::uint32_t* exceptions = split.exceptions[k];
    const std::uint32_t count = split.exception_counts[k];
    for (std::uint32_t i = 0; i < count; ++i) {
      const std::uint32_t before = exceptions[i] & 0xFFFF;
      const std::uint32_t after = exceptions[i] >> 16;
      const std::uint32_t step = (after - before) & word_mask;
      const std::uint32_t magnitude = std::min(step, -step & word_mask) - 2;
      const std::uint32_t parameter =
          magnitude_parameter(reference, (before >> format.exponent_shift) & exponent_mask);
      const std::uint32_t zeros = magnitude >> parameter;
      if (zeros < kMagnitudeEscape) {
        const std::uint64_t low = magnitude & ((1U << parameter) - 1);
        out.put((std::uint64_t{1} << zeros) | low << (zeros + 1), zeros + 1 + parameter);
      } else {
        out.put(
            (std::uint64_t{1} << kMagnitudeEscape) | std::uint64_t{after} << (kMagnitudeEscape + 1),
            kMagnitudeEscape + 1 + word_bits);
      }
    }
  }
  return out;
}

// Ranks, directions and exceptions of class k. Returns the bits that they ideally take.
double write_class(BitWriter& out, const ChangedChunk& chunk, const ClassSplit& split,
                   std::uint32_t k) {
  EncodeWorkspace::Lists& lists = chunk.lists;
  const std::uint32_t count = split.counts[k];
  const std::uint32_t exception_count =
      chunk.kernels.separate(split.entries[k], count, lists.ups.get(), lists.indices.get());
  chunk.kernels.write_sequence(out, split.entries[k], count, split.universes[k],
                               lists.scratch.get());
  if (count == 0) return 0;
  for (std::uint32_t i = 0; i < count; i += 32) {
    const auto up = static_cast<std::uint32_t>(lists.ups[i / 64] >> (i % 64));
    const std::uint32_t here = std::min(count - i, 32U);
    out.put(up & ((std::uint64_t{1} << here) - 1), here);
  }
  chunk.kernels.write_sequence(out, lists.indices.get(), exception_count, count,
                               lists.scratch.get());
  return entropy_bits(count, split.universes[k]) + count + entropy_bits(exception_count, count);
}

}  // namespace

ClassedPayload write_classed(const ChangedChunk& chunk, const ClassChoice& choice,
                             PieceHash& hash) {
  EncodeWorkspace::Lists& lists = chunk.lists;
  ClassSplit split;
  split.old_bytes = chunk.input.old_bytes.data();
  split.new_bytes = chunk.input.new_bytes.data();
  split.element_count = chunk.element_count;
  split.format = chunk.input.format;
  split.cut = choice.cut;
  for (std::uint32_t k = 0; k < kClassesMax; ++k) {
    split.entries[k] = lists.entries.get() + k * EncodeWorkspace::Lists::kElements;
    split.exceptions[k] = lists.exceptions.get() + k * EncodeWorkspace::Lists::kElements;
  }
  static_assert(kPassElements % kSplitElements == 0);
  for (std::uint32_t first = 0; first < chunk.element_count; first += kPassElements) {
    const std::uint32_t end = std::min(first + kPassElements, chunk.element_count);
    chunk.kernels.split(split, first, end);
    hash.reach(std::size_t{end} * split.format.element_bytes);
  }

  ClassedPayload payload;
  BitWriter out(lists.out.get());
  write_parameters(out, choice, chunk.input.format);
  for (std::uint32_t k = 0; k < choice.cut.count; ++k) {
    payload.changed_count += split.counts[k];
    payload.ideal_bits += write_class(out, chunk, split, k);
  }
  const std::uint64_t magnitudes_at = out.bits_since(lists.out.get());
  out = write_magnitudes(out, split, choice.magnitude_reference);
  payload.ideal_bits += static_cast<double>(out.bits_since(lists.out.get()) - magnitudes_at);
  payload.end = out.align();
  return payload;
}

}  // namespace weft::codec
