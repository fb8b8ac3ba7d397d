// SPDX-License-Identifier: Apache-2.0
// Encode and decode of single chunks: every type, every element size, every kernel set.
#include <gtest/gtest.h>
#include <pmmintrin.h>
#include <xmmintrin.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <iterator>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "chunk_cases.hpp"
#include "codec/decode/decode_chunk.hpp"
#include "codec/encode/encode_chunk.hpp"
#include "weft/wire/byte_io.hpp"
#include "weft/wire/digest.hpp"

namespace weft::codec {
namespace {

using testing::adversarial;
using testing::ChunkPair;
using testing::random_changes;
using wire::ChunkType;

constexpr DType kTypes[] = {DType::kU8,  DType::kF8E4M3, DType::kF8E5M2, DType::kBF16,
                            DType::kF16, DType::kI16,    DType::kF32,    DType::kF64};
constexpr ChunkType kSent[] = {ChunkType::kClassed,   ChunkType::kSparse, ChunkType::kXor,
                               ChunkType::kOverwrite, ChunkType::kPlanes, ChunkType::kRaw,
                               ChunkType::kBytes};

struct Coded {
  wire::IndexEntry entry;
  std::vector<std::byte> payload;
};

// Payloads and chunks are handed over in vectors of exactly their size, so that a sanitizer sees
// any read or write beside them.
Coded encode(const ChunkPair& pair, const EncodeChoice& choice) {
  static EncodeWorkspace workspace;
  const auto encoded =
      encode_chunk({pair.old_bytes, pair.new_bytes, pair.format}, choice, workspace);
  EXPECT_TRUE(encoded) << pair.name;
  Coded coded;
  if (!encoded) return coded;
  coded.entry.type = encoded->type;
  coded.entry.changed_count = encoded->changed_count;
  coded.entry.new_digest = encoded->new_digest;
  coded.entry.payload_bytes = static_cast<std::uint32_t>(encoded->payload.size());
  coded.payload.assign(encoded->payload.begin(), encoded->payload.end());
  return coded;
}

Status decode(const ChunkPair& pair, const Coded& coded, std::vector<std::byte>& new_bytes,
              const KernelSet* kernel_set = nullptr) {
  static DecodeWorkspace workspace;
  new_bytes.assign(pair.old_bytes.size(), std::byte{0xEE});
  return decode_chunk({coded.entry, coded.payload, pair.old_bytes, pair.format,
                       wire::digest64(pair.old_bytes), true, kernel_set},
                      workspace, new_bytes);
}

std::uint32_t count_changes(const ChunkPair& pair) {
  std::uint32_t count = 0;
  const std::size_t size = pair.format.element_bytes;
  for (std::size_t at = 0; at < pair.old_bytes.size(); at += size) {
    count += std::memcmp(pair.old_bytes.data() + at, pair.new_bytes.data() + at, size) != 0;
  }
  return count;
}

void expect_round_trip(const ChunkPair& pair, const EncodeChoice& choice) {
  const Coded coded = encode(pair, choice);
  ASSERT_EQ(coded.entry.changed_count, count_changes(pair)) << pair.name;
  ASSERT_EQ(coded.entry.new_digest, wire::digest64(pair.new_bytes)) << pair.name;
  if (coded.entry.type == ChunkType::kSame) {
    ASSERT_EQ(coded.entry.changed_count, 0U) << pair.name;
    return;
  }
  ASSERT_LE(coded.payload.size(),
            payload_bytes_max(static_cast<std::uint32_t>(pair.old_bytes.size())));
  for (const KernelSet* set : available_kernels()) {
    std::vector<std::byte> new_bytes;
    const auto status = decode(pair, coded, new_bytes, set);
    ASSERT_TRUE(status) << pair.name << " " << set->name << ": " << status.error().message();
    ASSERT_EQ(new_bytes, pair.new_bytes) << pair.name << " " << set->name;
  }
}

// Typed over the kernel sets: number in available_kernels().
class Kernels : public ::testing::TestWithParam<const KernelSet*> {
 protected:
  EncodeChoice choice(std::optional<ChunkType> force = std::nullopt) const {
    EncodeChoice made;
    made.force = force;
    made.kernel_set = GetParam();
    return made;
  }
  static bool possible(ChunkType type, const ChunkPair& pair) {
    return type != ChunkType::kClassed || pair.format.exponent_bits != 0;
  }
};

TEST_P(Kernels, RoundTripEveryDensity) {
  for (const DType dtype : kTypes) {
    for (const double density : {0.0, 0.001, 0.01, 0.03, 0.1, 0.5, 0.97, 1.0}) {
      expect_round_trip(random_changes(dtype, 20'000, density, 7), choice());
    }
  }
}

TEST_P(Kernels, RoundTripEveryType) {
  for (const DType dtype : kTypes) {
    for (const double density : {0.0005, 0.03, 0.6}) {
      const ChunkPair pair = random_changes(dtype, 9'001, density, 11);
      for (const ChunkType type : kSent) {
        if (possible(type, pair)) expect_round_trip(pair, choice(type));
      }
    }
  }
}

TEST_P(Kernels, RoundTripEveryPatternAndOddLength) {
  for (const DType dtype : kTypes) {
    for (const std::uint32_t count : {1U, 2U, 7U, 31U, 63U, 64U, 65U, 127U, 4095U, 4096U, 4097U}) {
      for (const ChunkPair& pair : adversarial(dtype, count)) {
        expect_round_trip(pair, choice());
        for (const ChunkType type : kSent) {
          if (possible(type, pair)) expect_round_trip(pair, choice(type));
        }
      }
    }
  }
}

TEST_P(Kernels, RoundTripTheLargestChunk) {
  for (const DType dtype : {DType::kF8E4M3, DType::kBF16, DType::kF32, DType::kF64}) {
    const std::uint32_t count =
        std::min(limits::kChunkElementsMax, limits::kChunkBytesMax / element_bytes(dtype));
    for (const double density : {0.03, 1.0}) {
      expect_round_trip(random_changes(dtype, count, density, 3), choice());
    }
    for (const ChunkPair& pair : adversarial(dtype, count)) expect_round_trip(pair, choice());
  }
}

TEST_P(Kernels, ScanAgreesWithCompare) {
  for (const DType dtype : {DType::kU8, DType::kBF16, DType::kF32, DType::kF64}) {
    for (std::uint32_t count = 1; count < 200; ++count) {
      const ChunkPair pair = random_changes(dtype, count, 0.2, count);
      std::vector<std::uint32_t> positions(count + 64);
      const std::size_t size = pair.format.element_bytes;
      positions.resize(GetParam()->scan(pair.old_bytes.data(), pair.new_bytes.data(), count,
                                        pair.format.element_bytes, positions.data()));
      std::vector<std::uint32_t> expected;
      for (std::uint32_t i = 0; i < count; ++i) {
        if (std::memcmp(&pair.old_bytes[i * size], &pair.new_bytes[i * size], size) != 0) {
          expected.push_back(i);
        }
      }
      ASSERT_EQ(positions, expected) << pair.name;
    }
  }
}

TEST_P(Kernels, PayloadsAreThoseOfScalar) {
  for (const DType dtype : kTypes) {
    for (const double density : {0.003, 0.04, 0.4}) {
      const ChunkPair pair = random_changes(dtype, 30'011, density, 5);
      EncodeChoice scalar;
      scalar.kernel_set = available_kernels().front();
      const Coded expected = encode(pair, scalar);
      const Coded coded = encode(pair, choice());
      EXPECT_EQ(coded.entry.type, expected.entry.type);
      EXPECT_EQ(coded.payload, expected.payload);
    }
  }
}

// Large chunks choose their classes from a part of them; that part must not hang on the kernels.
TEST_P(Kernels, LargePayloadsAreThoseOfScalar) {
  EncodeChoice scalar;
  scalar.force = ChunkType::kClassed;
  scalar.kernel_set = available_kernels().front();
  std::vector<ChunkPair> pairs{testing::optimizer_step(262'144, 2e-6F, 4),
                               testing::optimizer_step(262'081, 2e-5F, 5)};
  for (const DType dtype : {DType::kF16, DType::kF8E4M3, DType::kF8E5M2}) {
    pairs.push_back(random_changes(dtype, 200'003, 0.05, 6));
  }
  for (const ChunkPair& pair : pairs) {
    const Coded coded = encode(pair, choice(ChunkType::kClassed));
    EXPECT_EQ(coded.entry.type, ChunkType::kClassed) << pair.name;
    EXPECT_EQ(coded.payload, encode(pair, scalar).payload) << pair.name;
    expect_round_trip(pair, choice(ChunkType::kClassed));
    expect_round_trip(pair, choice());
  }
}

TEST_P(Kernels, RoundTripWhereAPartIsLikeNoOther) {
  const ChunkPair step = testing::optimizer_step(262'144, 2e-5F, 8);
  const std::size_t quarter = step.old_bytes.size() / 4;
  for (std::size_t changed = 0; changed < 4; ++changed) {
    ChunkPair pair = step;
    pair.name = "changes in quarter " + std::to_string(changed);
    pair.new_bytes = pair.old_bytes;
    std::memcpy(pair.new_bytes.data() + changed * quarter,
                step.new_bytes.data() + changed * quarter, quarter);
    expect_round_trip(pair, choice());
    // The same, and everything else is new: what the start promised does not hold.
    pair.name = "noise but in quarter " + std::to_string(changed);
    for (std::size_t i = 0; i < pair.new_bytes.size(); ++i) {
      if (i / quarter != changed) pair.new_bytes[i] ^= static_cast<std::byte>(1 + i * 37 % 255);
    }
    expect_round_trip(pair, choice());
  }
}

INSTANTIATE_TEST_SUITE_P(All, Kernels, ::testing::ValuesIn(available_kernels()),
                         [](const auto& set) { return std::string(set.param->name); });

// Case B-017: equality is equality of bits, whatever the float unit is told.
TEST(Chunk, SeesBitsAndNotFloats) {
  ChunkPair pair{"floats", element_format(DType::kBF16), {}, {}};
  const std::uint16_t old_words[] = {0x8000, 0x7FC0, 0x7FC1, 0x0001, 0x0000, 0x3F80};
  const std::uint16_t new_words[] = {0x0000, 0x7FC1, 0x7FC1, 0x0002, 0x8001, 0x3F80};
  pair.old_bytes.resize(sizeof(old_words));
  pair.new_bytes.resize(sizeof(new_words));
  std::memcpy(pair.old_bytes.data(), old_words, sizeof(old_words));
  std::memcpy(pair.new_bytes.data(), new_words, sizeof(new_words));
  const unsigned control = _mm_getcsr();
  _MM_SET_FLUSH_ZERO_MODE(_MM_FLUSH_ZERO_ON);
  _MM_SET_DENORMALS_ZERO_MODE(_MM_DENORMALS_ZERO_ON);
  const Coded coded = encode(pair, {});
  std::vector<std::byte> new_bytes;
  const auto status = decode(pair, coded, new_bytes);
  _mm_setcsr(control);
  EXPECT_EQ(coded.entry.changed_count, 4U);
  ASSERT_TRUE(status);
  EXPECT_EQ(new_bytes, pair.new_bytes);
}

TEST(Chunk, KeepsIdenticalNanOfEverySize) {
  for (const DType dtype : {DType::kBF16, DType::kF32, DType::kF64}) {
    ChunkPair pair{"nan", element_format(dtype), {}, {}};
    pair.old_bytes.assign(64 * pair.format.element_bytes, std::byte{0xFF});
    pair.new_bytes = pair.old_bytes;
    EXPECT_EQ(encode(pair, {}).entry.type, ChunkType::kSame);
  }
}

TEST(Chunk, TellsAWrongBaseFromACorruptPayload) {
  const ChunkPair pair = random_changes(DType::kBF16, 50'000, 0.03, 1);
  static DecodeWorkspace workspace;
  for (const ChunkType type : {ChunkType::kClassed, ChunkType::kSparse, ChunkType::kXor}) {
    EncodeChoice choice;
    choice.force = type;
    Coded coded = encode(pair, choice);
    std::vector<std::byte> new_bytes(pair.old_bytes.size());
    std::vector<std::byte> wrong_base = pair.old_bytes;
    for (std::size_t i = 0; i < 100; ++i) wrong_base[i * 997] ^= std::byte{0x40};
    const auto on_wrong_base = decode_chunk({coded.entry, coded.payload, wrong_base, pair.format,
                                             wire::digest64(pair.old_bytes), true, nullptr},
                                            workspace, new_bytes);
    ASSERT_FALSE(on_wrong_base);
    EXPECT_EQ(on_wrong_base.error().code, ErrorCode::kBaseMismatch);
    coded.payload[coded.payload.size() / 2] ^= std::byte{0x10};
    const auto corrupt = decode(pair, coded, new_bytes);
    ASSERT_FALSE(corrupt);
    EXPECT_EQ(corrupt.error().code, ErrorCode::kCorruptPayload);
  }
}

TEST(Chunk, OverwriteNeedsNoBaseAndCanBeRepeated) {
  const ChunkPair pair = random_changes(DType::kBF16, 5'000, 0.05, 1);
  EncodeChoice choice;
  choice.force = ChunkType::kOverwrite;
  const Coded coded = encode(pair, choice);
  ChunkPair again = pair;
  again.old_bytes = pair.new_bytes;
  std::vector<std::byte> new_bytes;
  ASSERT_TRUE(decode(again, coded, new_bytes));
  EXPECT_EQ(new_bytes, pair.new_bytes);
}

TEST(Chunk, FullSendsUntouchedChunksAndNeedsNoOldBytes) {
  const ChunkPair pair = random_changes(DType::kBF16, 5'000, 0.0, 1);
  EncodeWorkspace workspace;
  EncodeChoice choice;
  choice.full = true;
  const auto encoded = encode_chunk({{}, pair.new_bytes, pair.format}, choice, workspace);
  ASSERT_TRUE(encoded);
  EXPECT_EQ(encoded->type, ChunkType::kRaw);
  EXPECT_LT(encoded->payload.size(), pair.new_bytes.size() * 9 / 10);
  DecodeWorkspace decoder;
  std::vector<std::byte> new_bytes(pair.new_bytes.size());
  const wire::IndexEntry entry{{0},
                               encoded->type,
                               static_cast<std::uint32_t>(encoded->payload.size()),
                               encoded->changed_count,
                               encoded->new_digest};
  ASSERT_TRUE(decode_chunk({entry, encoded->payload, {}, pair.format, std::nullopt, true, nullptr},
                           decoder, new_bytes));
  EXPECT_EQ(new_bytes, pair.new_bytes);
}

TEST(Chunk, FastProfileTakesBytesAndRoundTrips) {
  EncodeChoice choice;
  choice.profile = Profile::kFast;
  for (const DType dtype : kTypes) {
    expect_round_trip(random_changes(dtype, 30'000, 0.03, 3), choice);
  }
  EXPECT_EQ(encode(random_changes(DType::kBF16, 30'000, 0.03, 3), choice).entry.type,
            ChunkType::kBytes);
}

TEST(Chunk, CompactTakesClassedOnWeights) {
  const ChunkPair pair = testing::optimizer_step(262'144, 2e-6F, 3);
  const Coded coded = encode(pair, {});
  EXPECT_EQ(coded.entry.type, ChunkType::kClassed);
  EncodeChoice sparse;
  sparse.force = ChunkType::kSparse;
  EXPECT_LT(coded.payload.size() * 4, encode(pair, sparse).payload.size() * 3);
  expect_round_trip(pair, {});
}

TEST(Chunk, RefusesEveryTruncationAndEveryFlippedBit) {
  const ChunkPair pair = random_changes(DType::kBF16, 600, 0.05, 9);
  for (const ChunkType type : kSent) {
    EncodeChoice choice;
    choice.force = type;
    const Coded whole = encode(pair, choice);
    std::vector<std::byte> new_bytes;
    for (std::size_t length = 0; length < whole.payload.size(); ++length) {
      Coded cut = whole;
      cut.payload.resize(length);
      cut.entry.payload_bytes = static_cast<std::uint32_t>(length);
      EXPECT_FALSE(decode(pair, cut, new_bytes)) << wire::to_string(type) << " " << length;
    }
    for (std::size_t bit = 0; bit < whole.payload.size() * 8; ++bit) {
      Coded flipped = whole;
      flipped.payload[bit / 8] ^= std::byte{1} << (bit % 8);
      // Bits of no meaning do not exist, apart from those inside a zstd frame.
      const auto status = decode(pair, flipped, new_bytes);
      EXPECT_TRUE(!status || new_bytes == pair.new_bytes) << wire::to_string(type) << " " << bit;
    }
  }
}

TEST(Chunk, RefusesCountsBeyondTheChunk) {
  const ChunkPair pair = random_changes(DType::kBF16, 1000, 0.05, 9);
  const Coded whole = encode(pair, {});
  std::vector<std::byte> new_bytes;
  for (const std::uint32_t count : {0U, 1001U, 0xFFFF'FFFFU, whole.entry.changed_count + 1}) {
    Coded wrong = whole;
    wrong.entry.changed_count = count;
    EXPECT_FALSE(decode(pair, wrong, new_bytes));
  }
  Coded same = whole;
  same.entry.type = ChunkType::kSame;
  EXPECT_FALSE(decode(pair, same, new_bytes));
  same.entry.type = static_cast<ChunkType>(8);
  EXPECT_FALSE(decode(pair, same, new_bytes));
  Coded long_payload = whole;
  long_payload.payload.resize(pair.old_bytes.size() + 65);
  long_payload.entry.payload_bytes = static_cast<std::uint32_t>(long_payload.payload.size());
  const auto status = decode(pair, long_payload, new_bytes);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kDecodeLimit);
}

// The most gap bytes that the index allows: they must fit the reader's room, and be refused.
TEST(Chunk, SurvivesAsManyGapsAsAChunkCanClaim) {
  const std::uint32_t count = limits::kChunkElementsMax;
  const ChunkPair pair = random_changes(DType::kU8, count, 0, 1);
  Coded claim;
  claim.entry.type = ChunkType::kBytes;
  claim.entry.changed_count = count;
  claim.payload.assign(6, std::byte{0});
  wire::store_le(claim.payload.data(), count + count / 255);
  claim.payload[4] = std::byte{1};  // a filled plane of zero gaps
  claim.entry.payload_bytes = static_cast<std::uint32_t>(claim.payload.size());
  std::vector<std::byte> new_bytes;
  EXPECT_FALSE(decode(pair, claim, new_bytes));
}

// What a few bytes can claim must not take longer than what an honest payload of a chunk can: all
// work is bounded by the chunk and the payload.
TEST(Chunk, ReadsFewHostileBytesAsFastAsAFullChunk) {
  const std::uint32_t count = limits::kChunkElementsMax;
  const ChunkPair pair = random_changes(DType::kBF16, count, 0.5, 1);
  std::vector<std::byte> new_bytes(pair.old_bytes.size());
  static DecodeWorkspace workspace;
  const auto best_seconds = [&](const Coded& coded) {
    double best = 1e9;
    for (int i = 0; i < 5; ++i) {
      const auto start = std::chrono::steady_clock::now();
      (void)decode_chunk(
          {coded.entry, coded.payload, pair.old_bytes, pair.format, std::nullopt, true, nullptr},
          workspace, new_bytes);
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
      best = std::min(best, took.count());
    }
    return best;
  };
  EncodeChoice classed;
  classed.force = ChunkType::kClassed;
  const double honest = best_seconds(encode(pair, classed));
  std::mt19937_64 random(3);
  for (std::size_t round = 0; round < 300; ++round) {
    Coded claim;
    claim.entry.type = kSent[round % std::size(kSent)];
    claim.entry.changed_count = 1 + static_cast<std::uint32_t>(random() % count);
    claim.payload.resize(1 + random() % 64);
    // Long counts: few bits of which many are set.
    for (std::byte& byte : claim.payload) byte = static_cast<std::byte>(random() | random());
    if (round % 3 == 0) claim.payload[0] = std::byte{0x7F};  // eight classes
    claim.entry.payload_bytes = static_cast<std::uint32_t>(claim.payload.size());
    EXPECT_LT(best_seconds(claim), 20 * honest) << wire::to_string(claim.entry.type) << round;
  }
}

TEST(Chunk, ChangedOffsetsListWhatDiffers) {
  const ChunkPair pair = random_changes(DType::kBF16, 5'000, 0.05, 2);
  DecodeWorkspace workspace;
  const auto offsets = changed_offsets(pair.old_bytes, pair.new_bytes, 2, workspace);
  EXPECT_EQ(offsets.size(), count_changes(pair));
  for (const std::uint32_t offset : offsets) {
    EXPECT_NE(testing::word_at(pair.old_bytes, offset, 2),
              testing::word_at(pair.new_bytes, offset, 2));
  }
}

}  // namespace
}  // namespace weft::codec
