// SPDX-License-Identifier: Apache-2.0
// The 22 element types of the safetensors format, and how the codec sees each one.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace weft::codec {

// The numbers enter the schema digest: never renumber.
enum class DType : std::uint8_t {
  kBool = 1,
  kF4 = 2,
  kF6E2M3 = 3,
  kF6E3M2 = 4,
  kU8 = 5,
  kI8 = 6,
  kF8E5M2 = 7,
  kF8E4M3 = 8,
  kF8E8M0 = 9,
  kF8E4M3Fnuz = 10,
  kF8E5M2Fnuz = 11,
  kI16 = 12,
  kU16 = 13,
  kF16 = 14,
  kBF16 = 15,
  kI32 = 16,
  kU32 = 17,
  kF32 = 18,
  kC64 = 19,
  kF64 = 20,
  kI64 = 21,
  kU64 = 22,
};
inline constexpr int kDTypeCount = 22;

// How the codec treats an element: an opaque word of 1, 2, 4 or 8 bytes, of which the bits from
// exponent_shift on (exponent_bits of them) predict how likely a change is; 0 bits: no such field.
// Threads: a value; one at a time.
struct ElementFormat {
  std::uint8_t element_bytes = 1;
  std::uint8_t exponent_bits = 0;
  std::uint8_t exponent_shift = 0;
  auto operator<=>(const ElementFormat&) const = default;
};

namespace internal {
struct DTypeRow {
  DType dtype;
  std::string_view name;
  std::uint32_t bits;
  ElementFormat format;
};
// In the order of the numbers. Sub-byte types are words of one byte without an exponent field.
inline constexpr std::array<DTypeRow, kDTypeCount> kDTypes{{
    {DType::kBool, "BOOL", 8, {1, 0, 0}},
    {DType::kF4, "F4", 4, {1, 0, 0}},
    {DType::kF6E2M3, "F6_E2M3", 6, {1, 0, 0}},
    {DType::kF6E3M2, "F6_E3M2", 6, {1, 0, 0}},
    {DType::kU8, "U8", 8, {1, 0, 0}},
    {DType::kI8, "I8", 8, {1, 0, 0}},
    {DType::kF8E5M2, "F8_E5M2", 8, {1, 5, 2}},
    {DType::kF8E4M3, "F8_E4M3", 8, {1, 4, 3}},
    {DType::kF8E8M0, "F8_E8M0", 8, {1, 0, 0}},
    {DType::kF8E4M3Fnuz, "F8_E4M3FNUZ", 8, {1, 4, 3}},
    {DType::kF8E5M2Fnuz, "F8_E5M2FNUZ", 8, {1, 5, 2}},
    {DType::kI16, "I16", 16, {2, 0, 0}},
    {DType::kU16, "U16", 16, {2, 0, 0}},
    {DType::kF16, "F16", 16, {2, 5, 10}},
    {DType::kBF16, "BF16", 16, {2, 8, 7}},
    {DType::kI32, "I32", 32, {4, 0, 0}},
    {DType::kU32, "U32", 32, {4, 0, 0}},
    {DType::kF32, "F32", 32, {4, 0, 0}},
    {DType::kC64, "C64", 64, {8, 0, 0}},
    {DType::kF64, "F64", 64, {8, 0, 0}},
    {DType::kI64, "I64", 64, {8, 0, 0}},
    {DType::kU64, "U64", 64, {8, 0, 0}},
}};
constexpr const DTypeRow& row(DType dtype) { return kDTypes[static_cast<std::size_t>(dtype) - 1]; }
}  // namespace internal

constexpr std::uint32_t bits(DType dtype) { return internal::row(dtype).bits; }
// The spelling of the format, e.g. "BF16".
constexpr std::string_view name(DType dtype) { return internal::row(dtype).name; }
constexpr ElementFormat element_format(DType dtype) { return internal::row(dtype).format; }
// The storage word of one element: 1, 2, 4 or 8; sub-byte types count as bytes.
constexpr std::uint32_t element_bytes(DType dtype) {
  return internal::row(dtype).format.element_bytes;
}
// Exact spelling only; nothing for an unknown one.
constexpr std::optional<DType> parse_dtype(std::string_view spelling) {
  for (const internal::DTypeRow& row : internal::kDTypes) {
    if (row.name == spelling) return row.dtype;
  }
  return std::nullopt;
}

}  // namespace weft::codec
