// SPDX-License-Identifier: Apache-2.0
// The types made of byte planes: raw, planes, bytes.
#include <cstring>

#include "codec/decode/read_chunk.hpp"
#include "weft/wire/byte_io.hpp"

namespace weft::codec {

namespace {

template <typename Call>
bool with_word(std::uint32_t element_bytes, Call&& call) {
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

template <typename Word>
Word load(std::span<const std::byte> bytes, std::uint32_t element) {
  Word word;
  std::memcpy(&word, bytes.data() + std::size_t{element} * sizeof(Word), sizeof(Word));
  return word;
}

template <typename Word>
void store(std::span<std::byte> bytes, std::uint32_t element, Word word) {
  std::memcpy(bytes.data() + std::size_t{element} * sizeof(Word), &word, sizeof(Word));
}

template <typename Word>
Word unzigzag(Word number) {
  return static_cast<Word>(static_cast<Word>(number >> 1) ^
                           static_cast<Word>(-static_cast<Word>(number & 1)));
}

// Joins one plane per byte into words; the planes must fill the payload.
bool read_word_planes(const ArrivingChunk& chunk) {
  const std::size_t size = chunk.input.format.element_bytes;
  std::span<const std::byte> rest = chunk.payload;
  const std::span<std::byte> plane(chunk.lists.plane.get(), chunk.element_count);
  for (std::size_t number = 0; number < size; ++number) {
    if (!chunk.lists.planes.read(rest, plane)) return false;
    std::byte* to = chunk.new_bytes.data() + number;
    for (const std::byte byte : plane) {
      *to = byte;
      to += size;
    }
  }
  return rest.empty();
}

}  // namespace

bool read_raw(const ArrivingChunk& chunk) { return read_word_planes(chunk); }

bool read_planes(const ArrivingChunk& chunk) {
  if (!read_word_planes(chunk)) return false;
  return with_word(chunk.input.format.element_bytes, [&](auto zero) {
    using Word = decltype(zero);
    for (std::uint32_t i = 0; i < chunk.element_count; ++i) {
      const Word step = unzigzag(load<Word>(chunk.new_bytes, i));
      store(chunk.new_bytes, i, static_cast<Word>(load<Word>(chunk.input.old_bytes, i) + step));
    }
    return true;
  });
}

bool read_bytes(const ArrivingChunk& chunk) {
  constexpr std::uint32_t kCarry = 255;
  std::span<const std::byte> rest = chunk.payload;
  if (rest.size() < 4) return false;
  const auto length = wire::load_le<std::uint32_t>(rest.data());
  rest = rest.subspan(4);
  const std::uint32_t count = chunk.changed_count();
  // Every change ends one gap, and a gap carries on at most once in 255 elements.
  if (length < count || length > count + chunk.element_count / kCarry) return false;
  const std::span<std::byte> gaps(chunk.lists.plane.get(), length);
  if (!chunk.lists.planes.read(rest, gaps)) return false;
  std::uint32_t found = 0;
  std::uint64_t position = 0;
  for (const std::byte gap : gaps) {
    position += static_cast<std::uint32_t>(gap);
    if (static_cast<std::uint32_t>(gap) == kCarry) continue;
    if (found == count || position >= chunk.element_count) return false;
    chunk.lists.positions[found++] = static_cast<std::uint32_t>(position++);
  }
  if (found != count || (length != 0 && static_cast<std::uint32_t>(gaps.back()) == kCarry)) {
    return false;
  }
  const std::span<std::byte> steps(chunk.lists.plane.get(), count);
  if (!chunk.lists.planes.read(rest, steps)) return false;
  std::memcpy(chunk.new_bytes.data(), chunk.input.old_bytes.data(), chunk.new_bytes.size());
  return with_word(chunk.input.format.element_bytes, [&](auto zero) {
    using Word = decltype(zero);
    for (std::uint32_t i = 0; i < count; ++i) {
      const std::uint32_t element = chunk.lists.positions[i];
      const auto step = static_cast<std::uint32_t>(steps[i]);
      if (step == kCarry) {
        if (rest.size() < sizeof(Word)) return false;
        store(chunk.new_bytes, element, load<Word>(rest, 0));
        rest = rest.subspan(sizeof(Word));
      } else {
        store(chunk.new_bytes, element,
              static_cast<Word>(load<Word>(chunk.input.old_bytes, element) +
                                unzigzag(static_cast<Word>(step))));
      }
    }
    return rest.empty();
  });
}

}  // namespace weft::codec
