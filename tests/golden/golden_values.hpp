// SPDX-License-Identifier: Apache-2.0
// Old and new values of the golden frames, from integer arithmetic alone. Never change: the frames
// in this folder were made from them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "codec/safetensors/dtype.hpp"

namespace weft::golden {

// Threads: a value; one at a time.
struct GoldenChunk {
  std::vector<std::byte> old_bytes;
  std::vector<std::byte> new_bytes;
};

inline GoldenChunk golden_chunk(codec::DType dtype, std::uint32_t element_count,
                                std::uint64_t seed) {
  std::uint64_t state = seed;
  const auto next = [&state] {
    state = state * 6'364'136'223'846'793'005ULL + 1'442'695'040'888'963'407ULL;
    return state >> 33;
  };
  const std::size_t size = codec::element_bytes(dtype);
  GoldenChunk chunk;
  chunk.old_bytes.resize(element_count * size);
  chunk.new_bytes.resize(element_count * size);
  for (std::uint32_t i = 0; i < element_count; ++i) {
    // BF16-like in the top 16 bits: sign, exponents 112 to 127 with few small ones, mantissa.
    std::uint64_t exponent = 127;
    while (exponent > 112 && next() % 2 == 0) --exponent;
    const std::uint64_t top = (next() % 2 << 15) | exponent << 7 | next() % 128;
    std::uint64_t before = top << 48 | next() << 17 | next() % 131'072;
    before >>= 64 - 8 * size;
    std::uint64_t after = before;
    // The smaller the exponent, the likelier a change.
    if (next() % 4096 < std::uint64_t{20} << (127 - exponent)) {
      const std::uint64_t kind = next() % 16;
      after = kind < 7 ? before + 1 : kind < 14 ? before - 1 : before + next() % 64 - 32;
      if (next() % 64 == 0) after = next() << 33 | next();
    }
    std::memcpy(chunk.old_bytes.data() + i * size, &before, size);
    std::memcpy(chunk.new_bytes.data() + i * size, &after, size);
  }
  return chunk;
}

// The chunks of every golden frame, in order; a frame holds those that its type can express.
struct GoldenKind {
  codec::DType dtype;
  std::uint32_t element_count;
};
inline constexpr GoldenKind kGoldenKinds[] = {
    {codec::DType::kBF16, 9000}, {codec::DType::kF16, 1000}, {codec::DType::kF8E4M3, 5000},
    {codec::DType::kU8, 777},    {codec::DType::kF32, 600},  {codec::DType::kF64, 301}};

}  // namespace weft::golden
