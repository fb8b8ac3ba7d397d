// SPDX-License-Identifier: Apache-2.0
// FP32 to the 16-bit types, to nearest, ties to even, whatever the processor's rounding mode.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>

#include "codec/safetensors/dtype.hpp"

namespace weft::codec {

// Infinity beyond the largest value; a NaN keeps its sign and the upper bits, and becomes quiet.
constexpr std::uint16_t to_bf16(std::uint32_t bits) {
  const std::uint32_t rounded = bits + 0x7FFF + ((bits >> 16) & 1);
  const bool nan = (bits & 0x7FFF'FFFF) > 0x7F80'0000;
  return static_cast<std::uint16_t>(nan ? (bits >> 16) | 0x40 : rounded >> 16);
}

constexpr std::uint16_t to_f16(std::uint32_t bits) {
  const std::uint32_t sign = (bits >> 16) & 0x8000;
  const std::uint32_t size = bits & 0x7FFF'FFFF;
  if (size > 0x7F80'0000) {  // NaN
    return static_cast<std::uint16_t>(sign | 0x7E00 | ((size >> 13) & 0x3FF));
  }
  if (size >= 0x4780'0000) return static_cast<std::uint16_t>(sign | 0x7C00);  // 65,536 and more
  std::uint32_t half = 0;
  if (size >= 0x3880'0000) {  // normal: 2^-14 and more
    half = (size - 0x3800'0000 + 0xFFF + ((size >> 13) & 1)) >> 13;
  } else if (size >= 0x3300'0000) {                  // subnormal: 2^-25 and more
    const std::uint32_t shift = 126 - (size >> 23);  // 14 to 24
    const std::uint32_t mantissa = (size & 0x7F'FFFF) | 0x80'0000;
    const std::uint32_t tie = std::uint32_t{1} << (shift - 1);
    half = (mantissa + tie - 1 + ((mantissa >> shift) & 1)) >> shift;
  }
  return static_cast<std::uint16_t>(sign | half);
}

// Whether a tensor of this type can be given as FP32.
constexpr bool can_cast(DType target) { return target == DType::kBF16 || target == DType::kF16; }

// `from` holds as many FP32 values as `to` holds values of `target`, which can_cast().
inline void cast_from_f32(DType target, std::span<const std::byte> from, std::span<std::byte> to) {
  const std::size_t count = to.size() / 2;
  const auto convert = [&](auto&& one) {
    for (std::size_t i = 0; i < count; ++i) {
      std::uint32_t bits = 0;
      std::memcpy(&bits, from.data() + i * 4, 4);
      const std::uint16_t half = one(bits);
      std::memcpy(to.data() + i * 2, &half, 2);
    }
  };
  target == DType::kBF16 ? convert([](std::uint32_t bits) { return to_bf16(bits); })
                         : convert([](std::uint32_t bits) { return to_f16(bits); });
}

}  // namespace weft::codec
