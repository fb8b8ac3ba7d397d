// SPDX-License-Identifier: Apache-2.0
// The types that list positions without classes: sparse, xor, overwrite, bytes.
#include <bit>
#include <cstring>

#include "codec/bits/exp_golomb.hpp"
#include "codec/encode/write_chunk.hpp"

namespace weft::codec {

std::byte* write_sparse(const ChangedChunk& chunk, std::uint32_t golomb_order) {
  EncodeWorkspace::Lists& lists = chunk.lists;
  const std::uint32_t count = chunk.changed_count;
  BitWriter out(lists.out.get());
  out.put(golomb_order, 5);
  chunk.kernels.write_sequence(out, lists.positions.get(), count, chunk.element_count,
                               lists.scratch.get());
  std::uint32_t exception_count = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    out.put(lists.flags[i] & kFlagUp, 1);
    lists.indices[exception_count] = i;
    exception_count += lists.flags[i] >> 1;
  }
  chunk.kernels.write_sequence(out, lists.indices.get(), exception_count, count,
                               lists.scratch.get());
  const std::uint64_t mask = chunk.word_mask();
  for (std::uint32_t i = 0; i < exception_count; ++i) {
    const std::uint32_t element = lists.positions[lists.indices[i]];
    const std::uint64_t after = chunk.new_word(element);
    const std::uint64_t step = (after - chunk.old_word(element)) & mask;
    const bool up = (lists.flags[lists.indices[i]] & kFlagUp) != 0;
    const std::uint64_t size = up ? step : -step & mask;
    put_golomb(out, size - 2, golomb_order, after, chunk.word_bits());
  }
  return out.align();
}

std::byte* write_xor(const ChangedChunk& chunk, std::uint32_t golomb_order) {
  EncodeWorkspace::Lists& lists = chunk.lists;
  BitWriter out(lists.out.get());
  out.put(golomb_order, 5);
  chunk.kernels.write_sequence(out, lists.positions.get(), chunk.changed_count, chunk.element_count,
                               lists.scratch.get());
  for (std::uint32_t i = 0; i < chunk.changed_count; ++i) {
    const std::uint64_t after = chunk.new_word(lists.positions[i]);
    const std::uint64_t mask = after ^ chunk.old_word(lists.positions[i]);
    put_golomb(out, mask - 1, golomb_order, mask, chunk.word_bits());
  }
  return out.align();
}

std::byte* write_overwrite(const ChangedChunk& chunk) {
  EncodeWorkspace::Lists& lists = chunk.lists;
  BitWriter out(lists.out.get());
  chunk.kernels.write_sequence(out, lists.positions.get(), chunk.changed_count, chunk.element_count,
                               lists.scratch.get());
  std::byte* to = out.align();
  const std::size_t size = chunk.input.format.element_bytes;
  for (std::uint32_t i = 0; i < chunk.changed_count; ++i, to += size) {
    std::memcpy(to, chunk.input.new_bytes.data() + lists.positions[i] * size, size);
  }
  return to;
}

}  // namespace weft::codec
