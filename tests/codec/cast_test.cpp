// SPDX-License-Identifier: Apache-2.0
#include "codec/project/cast.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "codec/projection_cases.hpp"

namespace weft::codec::test {
namespace {

// The values of the type as exact doubles, by the definition of its fields.
double value_of_half(std::uint32_t half, int exponent_bits, int mantissa_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = static_cast<int>(half >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const double mantissa = half & ((1U << mantissa_bits) - 1);
  if (exponent == 0) return std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

std::uint32_t bits_of(double value) {
  return std::bit_cast<std::uint32_t>(static_cast<float>(value));
}

// Every pair of neighbours: the middle goes to the even one, a bit less or more to the nearer one.
template <typename F>
void check_neighbours(F&& cast, int exponent_bits, int mantissa_bits) {
  const std::uint32_t infinity = ((1U << exponent_bits) - 1) << mantissa_bits;
  for (std::uint32_t half = 0; half < infinity; ++half) {
    const double low = value_of_half(half, exponent_bits, mantissa_bits);
    const double high = half + 1 == infinity
                            ? 2 * low - value_of_half(half - 1, exponent_bits, mantissa_bits)
                            : value_of_half(half + 1, exponent_bits, mantissa_bits);
    ASSERT_EQ(cast(bits_of(low)), half);
    ASSERT_EQ(cast(bits_of(-low)), half | 0x8000);
    const double middle = low + (high - low) / 2;
    if (middle > 3.4e38 || static_cast<double>(static_cast<float>(middle)) != middle) continue;
    const std::uint32_t tie = bits_of(middle);
    ASSERT_EQ(cast(tie), half % 2 == 0 ? half : half + 1) << std::hex << half;
    ASSERT_EQ(cast(tie - 1), half) << std::hex << half;
    ASSERT_EQ(cast(tie + 1), half + 1) << std::hex << half;
    ASSERT_EQ(cast(tie | 0x8000'0000), (half % 2 == 0 ? half : half + 1) | 0x8000);
  }
}

TEST(Cast, Bf16RoundsToNearestWithTiesToEven) {
  check_neighbours([](std::uint32_t bits) { return to_bf16(bits); }, 8, 7);
  EXPECT_EQ(to_bf16(0x7F7F'FFFF), 0x7F80);  // the largest FP32 is nearer to infinity
  EXPECT_EQ(to_bf16(0x7F80'0000), 0x7F80);
  EXPECT_EQ(to_bf16(0xFF80'0000), 0xFF80);
  EXPECT_EQ(to_bf16(0x7F80'0001), 0x7FC0);  // a NaN stays one
  EXPECT_EQ(to_bf16(0xFFFF'FFFF), 0xFFFF);
}

TEST(Cast, F16RoundsToNearestWithTiesToEven) {
  check_neighbours([](std::uint32_t bits) { return to_f16(bits); }, 5, 10);
  EXPECT_EQ(to_f16(bits_of(65519.996)), 0x7BFF);
  EXPECT_EQ(to_f16(bits_of(65520)), 0x7C00);
  EXPECT_EQ(to_f16(0x7F80'0000), 0x7C00);
  EXPECT_EQ(to_f16(0x7F80'0001), 0x7E00);
  EXPECT_EQ(to_f16(0xFFC0'2000), 0xFE01);
  EXPECT_EQ(to_f16(0x0000'0001), 0x0000);
}

TEST(Cast, GathersThroughBoxesInTheSourcesOwnSize) {
  // A transposed FP32 master of [5, 3], exported as BF16 of [3, 5].
  const Schema schema = schema_of({{"w", DType::kBF16, {3, 5}}});
  Projection projection{{{"master", 15}}, {}};
  Box box;
  box.rank = 2;
  box.axes[0] = {3, 1, 5};
  box.axes[1] = {5, 3, 1};
  projection.boxes.push_back(box);
  const auto lattice = lattice_of(schema, {projection});
  const auto gather = Gather::open(schema, *lattice, ProducerIndex{0}, projection);
  ASSERT_TRUE(gather);
  std::vector<float> master(15);
  for (std::size_t i = 0; i < master.size(); ++i) master[i] = static_cast<float>(i) + 0.5F;
  const std::vector<std::span<const std::byte>> sources{std::as_bytes(std::span(master))};
  std::vector<std::byte> wide(60);
  ASSERT_TRUE(gather->read_as(4, ChunkIndex{0}, sources, wide));
  std::vector<std::byte> narrow(30);
  cast_from_f32(DType::kBF16, wide, narrow);
  for (std::size_t row = 0; row < 3; ++row) {
    for (std::size_t column = 0; column < 5; ++column) {
      std::uint16_t found = 0;
      std::memcpy(&found, &narrow[(row * 5 + column) * 2], 2);
      EXPECT_EQ(found, to_bf16(bits_of(master[column * 3 + row])));
    }
  }
}

}  // namespace
}  // namespace weft::codec::test
