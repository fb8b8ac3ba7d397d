// SPDX-License-Identifier: Apache-2.0
// Elements as words of 1, 2, 4 or 8 bytes, at any alignment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace weft::codec {

// One copy per size: a copy of unknown size would be a call.
inline std::uint64_t load_word(const std::byte* bytes, std::uint32_t element,
                               std::uint32_t element_bytes) {
  const std::byte* at = bytes + std::size_t{element} * element_bytes;
  std::uint64_t word = 0;
  switch (element_bytes) {
    case 1:
      std::memcpy(&word, at, 1);
      break;
    case 2:
      std::memcpy(&word, at, 2);
      break;
    case 4:
      std::memcpy(&word, at, 4);
      break;
    default:
      std::memcpy(&word, at, 8);
      break;
  }
  return word;
}

inline void store_word(std::byte* bytes, std::uint32_t element, std::uint32_t element_bytes,
                       std::uint64_t word) {
  std::byte* at = bytes + std::size_t{element} * element_bytes;
  switch (element_bytes) {
    case 1:
      std::memcpy(at, &word, 1);
      break;
    case 2:
      std::memcpy(at, &word, 2);
      break;
    case 4:
      std::memcpy(at, &word, 4);
      break;
    default:
      std::memcpy(at, &word, 8);
      break;
  }
}

}  // namespace weft::codec
