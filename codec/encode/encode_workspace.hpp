// SPDX-License-Identifier: Apache-2.0
// The memory behind EncodeWorkspace; internal to encode/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "codec/encode/encode_chunk.hpp"
#include "codec/encode/plane_writer.hpp"
#include "codec/kernels/kernel_set.hpp"
#include "weft/base/limits.hpp"

namespace weft::codec {

// Arrays are not filled when made, so that only what a chunk needs is ever touched.
// Threads: one at a time.
struct EncodeWorkspace::Lists {
  static constexpr std::size_t kElements = limits::kChunkElementsMax + 64;
  // One list per class, each with room for all: how many will be of a class is not known before.
  static constexpr std::size_t kByClass = kElements * kClassesMax;
  // No type spends more than 96 bits on a change (frame.md), plus its fixed part.
  static constexpr std::size_t kOutBytes = limits::kChunkElementsMax * 12 + 4096;

  template <typename T>
  static std::unique_ptr<T[]> room(std::size_t count) {
    return std::make_unique_for_overwrite<T[]>(count);
  }

  std::unique_ptr<std::uint32_t[]> positions = room<std::uint32_t>(kElements);
  std::unique_ptr<std::uint8_t[]> flags = room<std::uint8_t>(kElements);
  std::unique_ptr<std::uint32_t[]> entries = room<std::uint32_t>(kByClass);
  std::unique_ptr<std::uint32_t[]> exceptions = room<std::uint32_t>(kByClass);
  std::unique_ptr<std::uint64_t[]> ups = room<std::uint64_t>(kElements / 64 + 1);
  std::unique_ptr<std::uint32_t[]> scratch = room<std::uint32_t>(kElements);
  std::unique_ptr<std::uint32_t[]> indices = room<std::uint32_t>(kElements);
  std::unique_ptr<std::byte[]> plane = room<std::byte>(limits::kChunkBytesMax + 64);
  std::unique_ptr<std::byte[]> out = room<std::byte>(kOutBytes);
  PlaneWriter planes;
};

}  // namespace weft::codec
