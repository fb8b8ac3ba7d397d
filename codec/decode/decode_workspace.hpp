// SPDX-License-Identifier: Apache-2.0
// The memory behind DecodeWorkspace; internal to decode/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "codec/decode/decode_chunk.hpp"
#include "codec/decode/plane_reader.hpp"
#include "codec/encode/encode_chunk.hpp"
#include "codec/kernels/kernel_set.hpp"
#include "weft/base/limits.hpp"

namespace weft::codec {

// Arrays are not filled when made, so that only what a chunk needs is ever touched.
// Threads: one at a time.
struct DecodeWorkspace::Lists {
  static constexpr std::size_t kElements = limits::kChunkElementsMax + 64;
  static constexpr std::size_t kByClass = limits::kChunkElementsMax + 64 * (kClassesMax + 1);

  template <typename T>
  static std::unique_ptr<T[]> room(std::size_t count) {
    return std::make_unique_for_overwrite<T[]>(count);
  }

  // The private copy of the payload, with zeros behind it.
  std::unique_ptr<std::byte[]> payload =
      room<std::byte>(payload_bytes_max(limits::kChunkBytesMax) + BitReader::kTailBytes);
  std::unique_ptr<std::uint32_t[]> positions = room<std::uint32_t>(kByClass);
  std::unique_ptr<std::uint32_t[]> exceptions = room<std::uint32_t>(kByClass);
  std::unique_ptr<std::uint32_t[]> places = room<std::uint32_t>(kByClass);
  std::unique_ptr<std::uint32_t[]> exception_places = room<std::uint32_t>(kByClass);
  std::unique_ptr<std::uint32_t[]> scratch = room<std::uint32_t>(kElements);
  // One byte per element, or the gaps of as many changes with every carry there can be.
  static constexpr std::size_t kPlaneBytes =
      limits::kChunkElementsMax + limits::kChunkElementsMax / 255 + 64;
  std::unique_ptr<std::byte[]> plane = room<std::byte>(kPlaneBytes);
  PlaneReader planes;
};

}  // namespace weft::codec
