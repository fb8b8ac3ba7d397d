// SPDX-License-Identifier: Apache-2.0
// The types that list positions without classes: sparse, xor, overwrite.
#include <cstring>

#include "codec/bits/exp_golomb.hpp"
#include "codec/decode/read_chunk.hpp"

namespace weft::codec {

namespace {

// The positions that open a payload: as many as the index says.
bool read_positions(const ArrivingChunk& chunk, BitReader& in) {
  const SequenceHead head =
      chunk.kernels.read_sequence(in, chunk.element_count, chunk.changed_count(),
                                  chunk.lists.positions.get(), chunk.lists.scratch.get());
  return head.ok && head.count == chunk.changed_count() &&
         (head.universe == 0 || head.universe == chunk.element_count);
}

void copy_old(const ArrivingChunk& chunk) {
  std::memcpy(chunk.new_bytes.data(), chunk.input.old_bytes.data(), chunk.new_bytes.size());
}

}  // namespace

bool read_sparse(const ArrivingChunk& chunk) {
  DecodeWorkspace::Lists& lists = chunk.lists;
  BitReader in(chunk.payload);
  const auto order = static_cast<std::uint32_t>(in.take(5));
  if (!read_positions(chunk, in)) return false;
  const std::uint32_t count = chunk.changed_count();
  const std::uint64_t directions = in.position();
  if (!in.skip(count)) return false;
  const SequenceHead head =
      chunk.kernels.read_sequence(in, count, count, lists.exceptions.get(), lists.scratch.get());
  if (!head.ok || (head.universe != 0 && head.universe != count)) return false;
  copy_old(chunk);
  std::uint32_t next = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    const bool up = (in.window(directions + i) & 1) != 0;
    const std::uint32_t element = lists.positions[i];
    std::uint64_t size = 1;
    if (next < head.count && lists.exceptions[next] == i) {
      ++next;
      const GolombNumber number = take_golomb(in, order, chunk.word_bits());
      if (number.is_escape) {
        chunk.set_new_word(element, number.value);
        continue;
      }
      size = number.value + 2;
    }
    const std::uint64_t before = chunk.old_word(element);
    chunk.set_new_word(element, up ? before + size : before - size);
  }
  return in.finished();
}

bool read_xor(const ArrivingChunk& chunk) {
  BitReader in(chunk.payload);
  const auto order = static_cast<std::uint32_t>(in.take(5));
  if (!read_positions(chunk, in)) return false;
  copy_old(chunk);
  for (std::uint32_t i = 0; i < chunk.changed_count(); ++i) {
    const GolombNumber number = take_golomb(in, order, chunk.word_bits());
    const std::uint64_t mask = number.is_escape ? number.value : number.value + 1;
    const std::uint32_t element = chunk.lists.positions[i];
    chunk.set_new_word(element, chunk.old_word(element) ^ mask);
  }
  return in.finished();
}

bool read_overwrite(const ArrivingChunk& chunk) {
  BitReader in(chunk.payload);
  if (!read_positions(chunk, in)) return false;
  const std::size_t start = in.align();
  const std::size_t size = chunk.input.format.element_bytes;
  if (!in.ok() || chunk.payload.size() - start != chunk.changed_count() * size) return false;
  copy_old(chunk);
  const std::byte* from = chunk.payload.data() + start;
  for (std::uint32_t i = 0; i < chunk.changed_count(); ++i, from += size) {
    std::memcpy(chunk.new_bytes.data() + chunk.lists.positions[i] * size, from, size);
  }
  return true;
}

}  // namespace weft::codec
