// SPDX-License-Identifier: Apache-2.0
#include "codec/project/lattice.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "codec/decode/decode_chunk.hpp"
#include "codec/digest/digest_table.hpp"
#include "codec/encode/encode_chunk.hpp"

namespace weft::codec {
namespace {

Schema schema_of(std::vector<HeaderTensor> tensors) {
  std::vector<FileInput> files(1);
  files[0] = {"f", 8, {8, std::move(tensors)}};
  return *build_schema(std::move(files), std::nullopt);
}
Schema two_tensors() {
  return schema_of({{"a", DType::kBF16, {600'000}, 0, 1'200'000},
                    {"b", DType::kF32, {131'073}, 1'200'000, 1'724'292},
                    {"empty", DType::kF32, {0}, 1'724'292, 1'724'292}});
}
constexpr TensorIndex kA{0};
constexpr TensorIndex kB{1};

TEST(Lattice, DefaultCutsWholeTensorsIntoFullChunks) {
  const auto lattice = Lattice::default_for(two_tensors());
  ASSERT_TRUE(lattice);
  ASSERT_EQ(lattice->chunk_count(), 5U);
  EXPECT_EQ(lattice->place({0}).element_count, 262'144U);
  EXPECT_EQ(lattice->place({2}).first_element, 524'288U);
  EXPECT_EQ(lattice->place({2}).element_count, 600'000U - 524'288U);
  EXPECT_EQ(lattice->place({3}).tensor, kB);
  EXPECT_EQ(lattice->place({3}).bytes(), 512U * 1024U);
  EXPECT_EQ(lattice->place({4}).element_count, 1U);
  EXPECT_EQ(lattice->chunks_of({0}).count, 5U);
}

TEST(Lattice, PlacesAreExactBeyondFourGiB) {
  const std::uint64_t count = (std::uint64_t{5} << 30) + 3;
  const auto lattice = Lattice::default_for(schema_of({{"a", DType::kU8, {count}, 0, count}}));
  ASSERT_TRUE(lattice);
  std::uint64_t next = 0;
  for (std::uint32_t c = 0; c < lattice->chunk_count(); ++c) {
    const ChunkPlace place = lattice->place({c});
    ASSERT_EQ(place.first_element, next);
    next += place.element_count;
  }
  EXPECT_EQ(next, count);
}

// Case B-014: positions beyond 32 bits survive encode and decode, also in a chunk across 2^32.
TEST(Lattice, ChangesBeyondFourGiBKeepTheirPlace) {
  const std::uint64_t count = std::uint64_t{5} << 30;
  const std::uint64_t top = std::uint64_t{1} << 32;
  const Schema schema = schema_of({{"a", DType::kU8, {count}, 0, count}});
  const auto lattice =
      Lattice::from_tiles(schema, {{kA, {0}, 0, 77}, {kA, {0}, 77, count - 77}}, 1);
  ASSERT_TRUE(lattice);
  EncodeWorkspace encoder;
  DecodeWorkspace decoder;
  for (const std::uint64_t position :
       {std::uint64_t{0}, top / 2, top - 1, top, top + 1, count - 1}) {
    ChunkIndex chunk{0};
    while (lattice->place(chunk).first_element + lattice->place(chunk).element_count <= position) {
      ++chunk.value;
    }
    const ChunkPlace place = lattice->place(chunk);
    const std::vector<std::byte> old_bytes(place.bytes());
    std::vector<std::byte> new_bytes = old_bytes;
    new_bytes[position - place.first_element] = std::byte{9};
    for (const auto type : {wire::ChunkType::kXor, wire::ChunkType::kOverwrite}) {
      EncodeChoice choice;
      choice.force = type;
      const auto coded = encode_chunk({old_bytes, new_bytes, place.format}, choice, encoder);
      ASSERT_TRUE(coded);
      std::vector<std::byte> arrived(place.bytes());
      ASSERT_TRUE(decode_chunk({{chunk, type, static_cast<std::uint32_t>(coded->payload.size()),
                                 coded->changed_count, coded->new_digest},
                                coded->payload,
                                old_bytes,
                                place.format,
                                std::nullopt,
                                true,
                                nullptr},
                               decoder, arrived));
      const auto offsets = changed_offsets(old_bytes, arrived, 1, decoder);
      ASSERT_EQ(offsets.size(), 1U);
      EXPECT_EQ(place.first_element + offsets[0], position);
    }
  }
}

TEST(Lattice, NumbersEachProducersChunksInOneRun) {
  const auto lattice = Lattice::from_tiles(
      two_tensors(), {{kB, {0}, 0, 131'073}, {kA, {1}, 300'000, 300'000}, {kA, {0}, 0, 300'000}},
      3);
  ASSERT_TRUE(lattice) << lattice.error().message();
  EXPECT_EQ(lattice->chunks_of({0}).count, 4U);
  EXPECT_EQ(lattice->chunks_of({1}).first.value, 4U);
  EXPECT_EQ(lattice->chunks_of({2}).count, 0U);
  EXPECT_EQ(lattice->place({4}).first_element, 300'000U);
  EXPECT_EQ(lattice->place({4}).producer.value, 1U);
}

TEST(Lattice, RefusesGapsOverlapsAndStrays) {
  const Schema schema = two_tensors();
  const Tile b{kB, {0}, 0, 131'073};
  for (const std::vector<Tile>& tiles :
       std::vector<std::vector<Tile>>{{b},
                                      {b, {kA, {0}, 0, 599'999}},
                                      {b, {kA, {0}, 1, 599'999}},
                                      {b, {kA, {0}, 0, 600'001}},
                                      {b, {kA, {0}, 0, ~std::uint64_t{0}}},
                                      {b, {kA, {0}, 0, 600'000}, {kA, {0}, 0, 600'000}},
                                      {b, {kA, {0}, 0, 300'001}, {kA, {0}, 300'000, 300'000}},
                                      {b, {kA, {1}, 0, 600'000}},
                                      {b, {kA, {0}, 0, 600'000}, {{7}, {0}, 0, 1}},
                                      {b, {kA, {0}, 0, 600'000}, {kA, {0}, 600'000, 0}}}) {
    EXPECT_FALSE(Lattice::from_tiles(schema, tiles, 1));
  }
}

// The extents behind an empty axis would be counted: a tile of 0 elements per run divides by zero.
TEST(Lattice, RefusesAxesBehindAnEmptyOne) {
  const Schema schema = two_tensors();
  const Tile hidden{kA, {0}, 0, 600'000, {{{0, 0}, {~std::uint64_t{0}, 1}}}};
  const Tile stride_alone{kA, {0}, 0, 600'000, {{{0, 0}, {0, 1}}}};
  const Tile behind_one{kA, {0}, 0, 600'000, {{{2, 300'000}, {0, 0}, {3, 1}}}};
  for (const Tile& tile : {hidden, stride_alone, behind_one}) {
    const auto refused = Lattice::from_tiles(schema, {{kB, {0}, 0, 131'073}, tile}, 1);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::kConfig);
  }
}

TEST(Lattice, DecodesToWhatWasEncoded) {
  const Schema schema = two_tensors();
  const auto lattice = Lattice::default_for(schema);
  const auto bytes = lattice->encode();
  const auto again = Lattice::decode(schema, bytes);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->digest(), lattice->digest());
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_FALSE(Lattice::decode(schema, std::span(bytes).first(length)));
  }
}

TEST(DigestTable, FoldsToARootThatEveryEntryChanges) {
  const auto lattice = *Lattice::default_for(two_tensors());
  DigestTable table(lattice.chunk_count());
  const Digest before = table.root(lattice);
  for (std::uint32_t c = 0; c < lattice.chunk_count(); ++c) {
    DigestTable changed = table;
    changed.set({c}, 1);
    EXPECT_NE(changed.root(lattice), before);
    EXPECT_NE(changed.part(lattice, {0}), table.part(lattice, {0}));
  }
}

TEST(DigestTable, RefusesEveryFlippedByte) {
  const auto lattice = *Lattice::default_for(two_tensors());
  DigestTable table(lattice.chunk_count());
  table.set({1}, 42);
  auto bytes = table.encode(lattice);
  const auto decoded = DigestTable::decode(lattice, bytes);
  ASSERT_TRUE(decoded);
  EXPECT_EQ(*decoded, table);
  for (std::byte& byte : bytes) {
    byte ^= std::byte{1};
    EXPECT_FALSE(DigestTable::decode(lattice, bytes));
    byte ^= std::byte{1};
  }
}

}  // namespace
}  // namespace weft::codec
