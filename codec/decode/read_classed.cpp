// SPDX-License-Identifier: Apache-2.0
#include <bit>

#include "codec/decode/read_chunk.hpp"
#include "codec/encode/class_choice.hpp"

namespace weft::codec {

namespace {

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

// Ranks, directions and exceptions of every class. Together the classes have exactly the chunk's
// changes, which bounds the lists.
struct ClassLists {
  ClassApply apply;
  std::uint32_t stated_universes[kClassesMax] = {};
  std::uint32_t* exceptions[kClassesMax] = {};
  std::uint32_t exception_counts[kClassesMax] = {};
};

bool read_lists(const ArrivingChunk& chunk, BitReader& in, ClassLists& lists) {
  DecodeWorkspace::Lists& room = chunk.lists;
  std::uint32_t left = chunk.changed_count();
  std::size_t start = 0;
  for (std::uint32_t k = 0; k < lists.apply.cut.count; ++k) {
    lists.apply.ranks[k] = room.positions.get() + start;
    lists.apply.places[k] = room.places.get() + start;
    lists.exceptions[k] = room.exceptions.get() + start;
    const SequenceHead head = chunk.kernels.read_sequence(in, chunk.element_count, left,
                                                          lists.apply.ranks[k], room.scratch.get());
    if (!head.ok) return false;
    lists.apply.counts[k] = head.count;
    lists.stated_universes[k] = head.universe;
    left -= head.count;
    start += head.count + 8;
    if (head.count == 0) continue;
    lists.apply.directions[k] = in.position();
    if (!in.skip(head.count)) return false;
    const SequenceHead exceptions = chunk.kernels.read_sequence(
        in, head.count, head.count, lists.exceptions[k], room.scratch.get());
    if (!exceptions.ok || (exceptions.universe != 0 && exceptions.universe != head.count)) {
      return false;
    }
    lists.exception_counts[k] = exceptions.count;
  }
  return left == 0;
}

// The exceptions have moved one step already: this gives them their real value.
bool read_magnitudes(const ArrivingChunk& chunk, BitReader& in, const ClassLists& lists,
                     std::uint32_t reference) {
  const ElementFormat& format = chunk.input.format;
  const std::uint32_t exponent_mask = (1U << format.exponent_bits) - 1;
  for (std::uint32_t k = 0; k < lists.apply.cut.count; ++k) {
    for (std::uint32_t i = 0; i < lists.exception_counts[k]; ++i) {
      const std::uint32_t change = lists.exceptions[k][i];
      const std::uint32_t element = lists.apply.places[k][change];
      const bool up = (in.window(lists.apply.directions[k] + change) & 1) != 0;
      const std::uint64_t before = chunk.old_word(element);
      const std::uint32_t parameter = magnitude_parameter(
          reference, static_cast<std::uint32_t>(before >> format.exponent_shift) & exponent_mask);
      const std::uint64_t window = in.window(in.position());
      const auto zeros = static_cast<std::uint32_t>(
          std::countr_zero(window | (std::uint64_t{1} << kMagnitudeEscape)));
      std::uint64_t after = 0;
      if (zeros == kMagnitudeEscape) {
        if (((window >> zeros) & 1) == 0 || !in.skip(zeros + 1)) return false;
        after = in.take(chunk.word_bits());
      } else {
        const std::uint64_t low = (window >> (zeros + 1)) & ((std::uint64_t{1} << parameter) - 1);
        const std::uint64_t size = ((std::uint64_t{zeros} << parameter) | low) + 2;
        after = up ? before + size : before - size;
        in.skip(zeros + 1 + parameter);
      }
      if (!in.ok()) return false;
      chunk.set_new_word(element, after);
    }
  }
  return true;
}

}  // namespace

bool read_classed(const ArrivingChunk& chunk) {
  const ElementFormat& format = chunk.input.format;
  if (format.exponent_bits == 0) return false;
  BitReader in(chunk.payload);
  ClassLists lists;
  ClassApply& apply = lists.apply;
  std::uint32_t reference = 0;
  if (!read_parameters(in, format, apply.cut, reference)) return false;
  if (!read_lists(chunk, in, lists)) return false;
  apply.old_bytes = chunk.input.old_bytes.data();
  apply.new_bytes = chunk.new_bytes.data();
  apply.element_count = chunk.element_count;
  apply.format = format;
  apply.bits = in.start();
  if (!chunk.kernels.apply(apply)) return false;
  for (std::uint32_t k = 0; k < apply.cut.count; ++k) {
    if (lists.stated_universes[k] != 0 && lists.stated_universes[k] != apply.universes[k]) {
      return false;
    }
  }
  return read_magnitudes(chunk, in, lists, reference) && in.finished();
}

}  // namespace weft::codec
