// SPDX-License-Identifier: Apache-2.0
// Equality of elements is equality of their bits, for every type and on every kernel set, whatever
// the float unit has been told.
#include <gtest/gtest.h>
#include <pmmintrin.h>
#include <xmmintrin.h>

#include <cstring>
#include <string>
#include <vector>

#include "chunk_cases.hpp"
#include "codec/decode/decode_chunk.hpp"
#include "codec/encode/encode_chunk.hpp"

namespace weft::codec {
namespace {

using testing::ChunkPair;

// Denormals read and written as zero, until the end of the scope.
// Threads: one at a time; of the thread that made it.
class FlushToZero {
 public:
  FlushToZero() : control_(_mm_getcsr()) {
    _MM_SET_FLUSH_ZERO_MODE(_MM_FLUSH_ZERO_ON);
    _MM_SET_DENORMALS_ZERO_MODE(_MM_DENORMALS_ZERO_ON);
  }
  ~FlushToZero() { _mm_setcsr(control_); }
  FlushToZero(const FlushToZero&) = delete;
  FlushToZero& operator=(const FlushToZero&) = delete;

 private:
  unsigned control_;
};

class BitEquality : public ::testing::TestWithParam<const KernelSet*> {
 protected:
  // How many elements it finds changed; decoded by every set to exactly the new bytes.
  void expect_changes(const ChunkPair& pair, std::uint32_t expected) {
    const FlushToZero flush;
    EncodeChoice choice;
    choice.kernel_set = GetParam();
    const auto coded =
        encode_chunk({pair.old_bytes, pair.new_bytes, pair.format}, choice, encoder_);
    ASSERT_TRUE(coded) << pair.name;
    ASSERT_EQ(coded->changed_count, expected) << pair.name;
    if (expected == 0) return;
    const wire::IndexEntry entry{{0},
                                 coded->type,
                                 static_cast<std::uint32_t>(coded->payload.size()),
                                 coded->changed_count,
                                 coded->new_digest};
    for (const KernelSet* set : available_kernels()) {
      std::vector<std::byte> arrived(pair.old_bytes.size());
      ASSERT_TRUE(decode_chunk(
          {entry, coded->payload, pair.old_bytes, pair.format, std::nullopt, true, set}, decoder_,
          arrived))
          << pair.name << " " << set->name;
      ASSERT_EQ(arrived, pair.new_bytes) << pair.name << " " << set->name;
    }
  }

  EncodeWorkspace encoder_;
  DecodeWorkspace decoder_;
};

// What floats call equal and bits do not, and the reverse. `exponent` is all ones.
struct FloatBits {
  DType dtype;
  std::uint64_t sign;
  std::uint64_t exponent;
};
constexpr std::uint64_t kTop = std::uint64_t{1} << 63;
// A C64 is two F32: its patterns here are those of its second half.
constexpr FloatBits kFloats[] = {{DType::kF8E4M3, 0x80, 0x78},
                                 {DType::kF8E5M2, 0x80, 0x7C},
                                 {DType::kF16, 0x8000, 0x7C00},
                                 {DType::kBF16, 0x8000, 0x7F80},
                                 {DType::kF32, 0x8000'0000, 0x7F80'0000},
                                 {DType::kF64, kTop, 0x7FF0'0000'0000'0000},
                                 {DType::kC64, kTop, 0x7F80'0000'0000'0000}};

// Case B-017, for every float type.
TEST_P(BitEquality, OfFloatsIsThatOfTheirBits) {
  for (const FloatBits& bits : kFloats) {
    const std::size_t size = element_bytes(bits.dtype);
    const std::uint64_t nan = bits.exponent | 1;
    const std::uint64_t words[][2] = {{bits.sign, 0},          // -0 and +0: a change
                                      {0, bits.sign},          //
                                      {nan, nan | 2},          // another payload: a change
                                      {nan, nan | bits.sign},  //
                                      {1, 2},  // denormals that are read as zero: a change
                                      {1, bits.sign | 1},                  //
                                      {bits.exponent, bits.exponent | 1},  // infinity to NaN
                                      {nan, nan},                          // the same NaN: none
                                      {nan | bits.sign | 2, nan | bits.sign | 2},
                                      {1, 1},
                                      {bits.sign, bits.sign}};
    // In every place that a wide load can have, once from its start and once from its end.
    for (std::size_t filler = 0; filler < 70; ++filler) {
      ChunkPair pair{std::string(name(bits.dtype)) + " behind " + std::to_string(filler),
                     element_format(bits.dtype),
                     {},
                     {}};
      const std::size_t count = filler + std::size(words);
      pair.old_bytes.resize(count * size);
      pair.new_bytes.resize(count * size);
      for (std::size_t i = 0; i < count; ++i) {
        testing::set_word(pair.old_bytes, i, size, i < filler ? nan : words[i - filler][0]);
        testing::set_word(pair.new_bytes, i, size, i < filler ? nan : words[i - filler][1]);
      }
      expect_changes(pair, 7);
    }
  }
}

TEST_P(BitEquality, OneFlippedBitAnywhereIsOneChange) {
  for (const DType dtype : {DType::kU8, DType::kF8E4M3, DType::kBF16, DType::kF32, DType::kF64}) {
    const ChunkPair same = testing::random_changes(dtype, 67, 0, 3);
    for (std::size_t bit = 0; bit < same.old_bytes.size() * 8; ++bit) {
      ChunkPair pair = same;
      pair.name += " bit " + std::to_string(bit);
      pair.new_bytes[bit / 8] ^= std::byte{1} << (bit % 8);
      expect_changes(pair, 1);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, BitEquality, ::testing::ValuesIn(available_kernels()),
                         [](const auto& set) { return std::string(set.param->name); });

}  // namespace
}  // namespace weft::codec
