// SPDX-License-Identifier: Apache-2.0
// The types made of byte planes: raw, planes, bytes.
#include <cstring>

#include "codec/encode/write_chunk.hpp"
#include "weft/wire/byte_io.hpp"

namespace weft::codec {

namespace {

// Byte `number` of every word(i), i < count, to one plane.
template <typename WordOf>
std::byte* write_word_planes(const ChangedChunk& chunk, WordOf&& word_of) {
  std::byte* to = chunk.lists.out.get();
  std::byte* plane = chunk.lists.plane.get();
  for (std::uint32_t number = 0; number < chunk.input.format.element_bytes; ++number) {
    for (std::uint32_t i = 0; i < chunk.element_count; ++i) {
      plane[i] = static_cast<std::byte>(word_of(i) >> (8 * number));
    }
    to = chunk.lists.planes.write({plane, chunk.element_count}, to);
  }
  return to;
}

template <typename Word>
Word load(std::span<const std::byte> bytes, std::uint32_t element) {
  Word word;
  std::memcpy(&word, bytes.data() + std::size_t{element} * sizeof(Word), sizeof(Word));
  return word;
}

// Small differences of either sign to small numbers: 0, -1, 1, -2, ...
template <typename Word>
Word zigzag(Word step) {
  constexpr std::uint32_t kTop = sizeof(Word) * 8 - 1;
  return static_cast<Word>(static_cast<Word>(step << 1) ^
                           static_cast<Word>(-static_cast<Word>(step >> kTop)));
}

template <typename Call>
std::byte* with_word(std::uint32_t element_bytes, Call&& call) {
  switch (element_bytes) {
    case 1:
      return call(std::uint8_t{0});
    case 2:
      return call(std::uint16_t{0});
    case 4:
      return call(std::uint32_t{0});
    default:
      return call(std::uint64_t{0});
  }
}

// A plane whose length the reader does not know: length first.
std::byte* write_measured_plane(const ChangedChunk& chunk, std::span<const std::byte> plane,
                                std::byte* to) {
  wire::store_le(to, static_cast<std::uint32_t>(plane.size()));
  return chunk.lists.planes.write(plane, to + 4);
}

}  // namespace

std::byte* write_raw(const ChangedChunk& chunk) {
  return with_word(chunk.input.format.element_bytes, [&](auto zero) {
    using Word = decltype(zero);
    return write_word_planes(chunk,
                             [&](std::uint32_t i) { return load<Word>(chunk.input.new_bytes, i); });
  });
}

std::byte* write_planes(const ChangedChunk& chunk) {
  return with_word(chunk.input.format.element_bytes, [&](auto zero) {
    using Word = decltype(zero);
    return write_word_planes(chunk, [&](std::uint32_t i) {
      return zigzag(static_cast<Word>(load<Word>(chunk.input.new_bytes, i) -
                                      load<Word>(chunk.input.old_bytes, i)));
    });
  });
}

std::byte* write_bytes(const ChangedChunk& chunk) {
  constexpr std::uint32_t kCarry = 255;
  EncodeWorkspace::Lists& lists = chunk.lists;
  std::byte* plane = lists.plane.get();
  std::size_t length = 0;
  std::uint32_t next = 0;
  for (std::uint32_t i = 0; i < chunk.changed_count; ++i) {
    std::uint32_t gap = lists.positions[i] - next;
    next = lists.positions[i] + 1;
    for (; gap >= kCarry; gap -= kCarry) plane[length++] = static_cast<std::byte>(kCarry);
    plane[length++] = static_cast<std::byte>(gap);
  }
  std::byte* to = write_measured_plane(chunk, {plane, length}, lists.out.get());
  return with_word(chunk.input.format.element_bytes, [&](auto zero) {
    using Word = decltype(zero);
    // Words whose step does not fit a byte follow behind the planes.
    std::uint32_t wide_count = 0;
    for (std::uint32_t i = 0; i < chunk.changed_count; ++i) {
      const std::uint32_t element = lists.positions[i];
      const Word step = zigzag(static_cast<Word>(load<Word>(chunk.input.new_bytes, element) -
                                                 load<Word>(chunk.input.old_bytes, element)));
      const bool wide = step >= kCarry;
      plane[i] = static_cast<std::byte>(wide ? kCarry : static_cast<std::uint32_t>(step));
      lists.indices[wide_count] = element;
      wide_count += wide ? 1 : 0;
    }
    to = lists.planes.write({plane, chunk.changed_count}, to);
    for (std::uint32_t i = 0; i < wide_count; ++i, to += sizeof(Word)) {
      const Word word = load<Word>(chunk.input.new_bytes, lists.indices[i]);
      std::memcpy(to, &word, sizeof(Word));
    }
    return to;
  });
}

}  // namespace weft::codec
