// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <cstring>

#include "codec/decode/read_chunk.hpp"
#include "codec/encode/class_choice.hpp"

namespace weft::codec {

namespace {

// Numbers that kernels may write behind a list.
constexpr std::size_t kListSlack = 64;

bool read_parameters(BitReader& in, const ElementFormat& format, ClassCut& cut,
                     std::uint32_t& reference) {
  cut.count = static_cast<std::uint32_t>(in.take(3)) + 1;
  reference = static_cast<std::uint32_t>(in.take(format.exponent_bits));
  std::uint32_t threshold = 0;
  for (std::uint32_t k = 0; k + 1 < cut.count; ++k) {
    if (k == 0) {
      threshold = static_cast<std::uint32_t>(in.take(format.exponent_bits));
    } else {
      const auto delta = static_cast<std::uint32_t>(in.take(kThresholdDeltaBits)) + 1;
      if (delta > threshold) return false;
      threshold -= delta;
    }
    cut.thresholds[k] = static_cast<std::uint8_t>(threshold);
  }
  return in.ok();
}

// Ranks, directions and exceptions of every class; `universes` as far as the payload states them.
// Together the classes have exactly the chunk's changes, which bounds the lists.
bool read_lists(const ArrivingChunk& chunk, BitReader& in, ClassApply& apply,
                std::uint32_t (&universes)[kClassesMax]) {
  DecodeWorkspace::Lists& room = chunk.lists;
  std::uint32_t left = chunk.changed_count();
  std::size_t start = 0;
  for (std::uint32_t k = 0; k < apply.cut.count; ++k) {
    apply.ranks[k] = room.positions.get() + start;
    apply.scratch[k] = room.places.get() + start;
    apply.exception_places[k] = room.exception_places.get() + start;
    std::uint32_t* exceptions = room.exceptions.get() + start;
    apply.exceptions[k] = exceptions;
    const SequenceHead head = chunk.kernels.read_sequence(in, chunk.element_count, left,
                                                          apply.ranks[k], room.scratch.get());
    if (!head.ok) return false;
    apply.counts[k] = head.count;
    universes[k] = head.universe;
    left -= head.count;
    start += head.count + kListSlack;
    if (head.count == 0) continue;
    apply.directions[k] = in.position();
    if (!in.skip(head.count)) return false;
    const SequenceHead found =
        chunk.kernels.read_sequence(in, head.count, head.count, exceptions, room.scratch.get());
    if (!found.ok || (found.universe != 0 && found.universe != head.count)) return false;
    apply.exception_counts[k] = found.count;
  }
  return left == 0;
}

// The exceptions get their real value, whatever stands there now.
template <typename Word>
bool read_magnitudes(const ArrivingChunk& chunk, BitReader& in, const ClassApply& apply,
                     std::uint32_t reference) {
  const ElementFormat& format = chunk.input.format;
  const std::uint32_t exponent_mask = (1U << format.exponent_bits) - 1;
  constexpr std::uint32_t kWordBits = 8 * sizeof(Word);
  std::uint64_t at = in.position();
  for (std::uint32_t k = 0; k < apply.cut.count; ++k) {
    for (std::uint32_t i = 0; i < apply.exception_counts[k]; ++i) {
      const std::uint32_t element = apply.exception_places[k][i];
      const bool up = (in.window(apply.directions[k] + apply.exceptions[k][i]) & 1) != 0;
      Word before;
      std::memcpy(&before, chunk.input.old_bytes.data() + std::size_t{element} * sizeof(Word),
                  sizeof(Word));
      const std::uint32_t parameter =
          magnitude_parameter(reference, (before >> format.exponent_shift) & exponent_mask);
      if (at >= in.end()) return false;
      const std::uint64_t window = in.window(at);
      const auto zeros = static_cast<std::uint32_t>(
          std::countr_zero(window | (std::uint64_t{1} << kMagnitudeEscape)));
      std::uint32_t after = 0;
      if (zeros == kMagnitudeEscape) {
        if (((window >> zeros) & 1) == 0) return false;
        after = static_cast<std::uint32_t>(window >> (zeros + 1));
        at += zeros + 1 + kWordBits;
      } else {
        const auto low =
            static_cast<std::uint32_t>(window >> (zeros + 1)) & ((1U << parameter) - 1);
        const std::uint32_t size = ((zeros << parameter) | low) + 2;
        after = up ? before + size : before - size;
        at += zeros + 1 + parameter;
      }
      const auto word = static_cast<Word>(after);
      std::memcpy(chunk.new_bytes.data() + std::size_t{element} * sizeof(Word), &word,
                  sizeof(Word));
    }
  }
  return in.skip(at - in.position());
}

}  // namespace

bool read_classed(const ArrivingChunk& chunk) {
  const ElementFormat& format = chunk.input.format;
  if (format.exponent_bits == 0) return false;
  BitReader in(chunk.payload);
  ClassApply apply;
  std::uint32_t reference = 0;
  std::uint32_t stated_universes[kClassesMax] = {};
  if (!read_parameters(in, format, apply.cut, reference)) return false;
  if (!read_lists(chunk, in, apply, stated_universes)) return false;
  apply.old_bytes = chunk.input.old_bytes.data();
  apply.new_bytes = chunk.new_bytes.data();
  apply.element_count = chunk.element_count;
  apply.format = format;
  apply.bits = in.start();
  if (!chunk.kernels.apply(apply)) return false;
  for (std::uint32_t k = 0; k < apply.cut.count; ++k) {
    if (stated_universes[k] != 0 && stated_universes[k] != apply.universes[k]) return false;
  }
  const bool read = format.element_bytes == 1
                        ? read_magnitudes<std::uint8_t>(chunk, in, apply, reference)
                        : read_magnitudes<std::uint16_t>(chunk, in, apply, reference);
  return read && in.finished();
}

}  // namespace weft::codec
