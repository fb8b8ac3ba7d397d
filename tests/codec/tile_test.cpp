// SPDX-License-Identifier: Apache-2.0
#include "codec/project/tile.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <set>

#include "codec/project/cover.hpp"
#include "codec/project/tensor_box.hpp"
#include "codec/projection_cases.hpp"
#include "weft/wire/byte_io.hpp"

namespace weft::codec::test {
namespace {

constexpr TensorIndex kW{0};

Tile column(std::uint32_t producer, std::uint64_t rows, std::uint64_t row_elements,
            std::uint64_t begin, std::uint64_t end) {
  return {kW, {producer}, begin, rows * (end - begin), {{{rows, row_elements}}}};
}

std::string refusal(const Schema& schema, std::vector<Tile> tiles, std::uint32_t producers) {
  const auto lattice = Lattice::from_tiles(schema, std::move(tiles), producers);
  return lattice ? "accepted" : lattice.error().message();
}

TEST(Tile, RunsOfAChunkAreItsElementsInOrder) {
  const Schema schema = schema_of({{"w", DType::kBF16, {3000, 7, 50}}});
  // Columns [10, 47) of planes 2 to 5 of the middle dimension, in all rows.
  const Tile middle{kW, {1}, 2 * 50 + 10, 3000 * 4 * 37, {{{3000, 350}, {4, 50}}}};
  const std::vector<Tile> tiles = {middle,
                                   {kW, {0}, 0, 3000 * 100, {{{3000, 350}}}},
                                   {kW, {0}, 100, 3000 * 4 * 10, {{{3000, 350}, {4, 50}}}},
                                   {kW, {0}, 147, 3000 * 4 * 3, {{{3000, 350}, {4, 50}}}},
                                   {kW, {0}, 300, 3000 * 50, {{{3000, 350}}}}};
  const auto lattice = Lattice::from_tiles(schema, tiles, 2);
  ASSERT_TRUE(lattice) << lattice.error().message();
  std::set<std::uint64_t> seen;
  for (std::uint32_t c = 0; c < lattice->chunk_count(); ++c) {
    const ChunkPlace place = lattice->place({c});
    ChunkRuns runs(place);
    ChunkRun run;
    std::uint32_t offset = 0;
    while (runs.next(run)) {
      ASSERT_EQ(run.offset, offset);
      for (std::uint32_t i = 0; i < run.element_count; ++i) {
        ASSERT_EQ(place.element_at(offset + i), run.first_element + i);
        ASSERT_TRUE(seen.insert(run.first_element + i).second);
      }
      offset += run.element_count;
    }
    ASSERT_EQ(offset, place.element_count);
  }
  EXPECT_EQ(seen.size(), 3000U * 7U * 50U);
  const auto bytes = lattice->encode();
  const auto again = Lattice::decode(schema, bytes);
  ASSERT_TRUE(again) << again.error().message();
  EXPECT_EQ(again->digest(), lattice->digest());
  EXPECT_EQ(again->tiles(), lattice->tiles());
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_FALSE(Lattice::decode(schema, std::span(bytes).first(length)));
  }
}

TEST(Tile, EveryDamagedByteIsRefusedOrMeansAnotherLattice) {
  const Schema schema = schema_of({{"w", DType::kBF16, {6, 8}}});
  const auto lattice =
      Lattice::from_tiles(schema, {column(0, 6, 8, 0, 3), column(1, 6, 8, 3, 8)}, 2);
  ASSERT_TRUE(lattice);
  auto bytes = lattice->encode();
  for (std::byte& byte : bytes) {
    for (int bit = 0; bit < 8; ++bit) {
      byte ^= static_cast<std::byte>(1 << bit);
      const auto decoded = Lattice::decode(schema, bytes);
      EXPECT_FALSE(decoded && decoded->digest() == lattice->digest());
      byte ^= static_cast<std::byte>(1 << bit);
    }
  }
}

// Written once from the first released layout; these bytes are in decision logs and frames.
TEST(Tile, LatticesOfRunsKeepTheFirstVersionsBytes) {
  const Schema schema = schema_of({{"a", DType::kBF16, {600'000}}, {"b", DType::kF32, {3, 7}}});
  const auto lattice = Lattice::default_for(schema);
  wire::ByteWriter expected;
  expected.write(std::uint32_t{0x544C'4657});
  expected.write(std::uint32_t{1});
  expected.write_bits128(schema.digest());
  expected.write(std::uint32_t{262'144});
  expected.write(std::uint32_t{524'288});
  expected.write(std::uint32_t{1});
  expected.write(std::uint32_t{2});
  for (const auto& [tensor, count] : {std::pair{0U, 600'000U}, {1U, 21U}}) {
    expected.write(std::uint32_t{tensor});
    expected.write(std::uint32_t{0});
    expected.write(std::uint64_t{0});
    expected.write(std::uint64_t{count});
  }
  EXPECT_EQ(lattice->encode(), std::move(expected).take());
  EXPECT_EQ(to_hex(lattice->digest()), "bf3073fcc92e3c3a991119ad5ccf4123");
}

TEST(Tile, TakesTheShortestFormOfWhatItIsGiven) {
  const Schema schema = schema_of({{"w", DType::kBF16, {6, 8}}});
  // Rows 0 to 3 as rows of eight are one run of the tensor.
  const auto lattice = Lattice::from_tiles(
      schema, {{kW, {0}, 0, 32, {{{4, 8}}}}, {kW, {1}, 32, 16, {{{1, 48}, {2, 8}}}}}, 2);
  ASSERT_TRUE(lattice) << lattice.error().message();
  EXPECT_TRUE(lattice->tiles()[0].is_one_run());
  EXPECT_TRUE(lattice->tiles()[1].is_one_run());
}

// What a trainer has handed over so far is no whole checkpoint yet.
TEST(Tile, GapsAreNoErrorWhereElementsAreCoveredAtMostOnce) {
  const Schema schema = schema_of({{"u", DType::kBF16, {5}}, {"w", DType::kBF16, {6, 8}}});
  const TensorIndex w = *schema.find("w");
  const auto check = [&](std::vector<Tile> tiles) {
    for (Tile& tile : tiles) tile.tensor = w;
    const Status covered = check_cover(schema, tiles, Cover::kAtMostOnce);
    return covered ? std::string() : covered.error().detail;
  };
  EXPECT_EQ(check({}), "");
  EXPECT_EQ(check({{w, {0}, 3, 5}, {w, {0}, 30, 10}}), "");
  EXPECT_EQ(check({column(0, 6, 8, 0, 3), column(1, 5, 8, 4, 7)}), "");
  EXPECT_NE(check({{w, {0}, 3, 5}, {w, {0}, 7, 10}}).find("overlap in tensor w elements [7, 8)"),
            std::string::npos);
  EXPECT_NE(check({column(0, 6, 8, 0, 4), column(1, 5, 8, 3, 7)}).find("elements [3, 4)"),
            std::string::npos);
  EXPECT_NE(check({{w, {0}, 40, 9}}).find("out of range"), std::string::npos);
}

// B-031: what two producers may not both send.
TEST(Tile, NamesTensorAndRangeOfGapsAndOverlaps) {
  const Schema schema = schema_of({{"w", DType::kBF16, {6, 8}}});
  EXPECT_NE(refusal(schema, {column(0, 6, 8, 0, 3), column(1, 6, 8, 4, 8)}, 2)
                .find("a gap in tensor w elements [3, 4)"),
            std::string::npos);
  EXPECT_NE(refusal(schema, {column(0, 6, 8, 0, 4), column(1, 6, 8, 3, 8)}, 2)
                .find("an overlap in tensor w elements [3, 4)"),
            std::string::npos);
  EXPECT_NE(refusal(schema, {column(0, 6, 8, 0, 3), column(1, 5, 8, 3, 8)}, 2)
                .find("a gap in tensor w elements [43, 48)"),
            std::string::npos);
  // A run that is not of whole rows, beside a box.
  EXPECT_NE(refusal(schema, {column(0, 3, 8, 0, 3), column(1, 3, 8, 3, 8), {kW, {0}, 25, 23}}, 2)
                .find("a gap in tensor w elements [24, 25)"),
            std::string::npos);
}

TEST(Tile, RefusesWhatIsNeitherBoxNorRun) {
  const Schema schema = schema_of({{"w", DType::kBF16, {6, 8}}});
  for (const Tile& tile : std::vector<Tile>{{kW, {0}, 0, 6, {{{3, 5}}}},   // no dimension's step
                                            {kW, {0}, 6, 24, {{{6, 8}}}},  // around the edge
                                            {kW, {0}, 0, 56, {{{7, 8}}}},  // beyond the end
                                            {kW, {0}, 0, 7, {{{2, 8}}}},   // not whole runs
                                            {kW, {0}, 0, 0, {{{2, 8}}}},
                                            {kW, {0}, 0, 48, {{{~std::uint64_t{0}, 8}}}},
                                            {kW, {0}, 48, 2, {{{2, 8}}}}}) {
    EXPECT_EQ(refusal(schema, {tile}, 1).find("accepted"), std::string::npos);
  }
}

TEST(Tile, RefusesMoreThanFourTilesPerTensorAndProducer) {
  const Schema schema = schema_of({{"w", DType::kBF16, {6, 10}}});
  std::vector<Tile> tiles;
  for (std::uint32_t i = 0; i < 10; ++i) tiles.push_back(column(i % 2, 6, 10, i, i + 1));
  EXPECT_NE(refusal(schema, tiles, 2).find("tiles of tensor w"), std::string::npos);
}

TEST(Tile, EveryFlatRunIsAtMostTwiceItsRankBoxes) {
  const Schema schema = schema_of({{"w", DType::kBF16, {4, 1, 3, 5}}});
  const TensorDims dims = TensorDims::of(schema.tensor(kW));
  EXPECT_EQ(dims.rank, 3U);
  for (std::uint64_t begin = 0; begin < 60; ++begin) {
    for (std::uint64_t end = begin + 1; end <= 60; ++end) {
      std::vector<TensorBox> boxes;
      ASSERT_TRUE(boxes_of(dims, {kW, {0}, begin, end - begin}, boxes));
      ASSERT_LE(boxes.size(), 5U);
      std::set<std::uint64_t> elements;
      for (const TensorBox& box : boxes) {
        const auto tile = tile_of(dims, box);
        ASSERT_TRUE(tile);
        for (std::uint64_t i = 0; i < tile->element_count; ++i) {
          ASSERT_TRUE(elements.insert(tile->element_at(i)).second);
        }
      }
      ASSERT_EQ(elements.size(), end - begin);
      ASSERT_EQ(*elements.begin(), begin);
      ASSERT_EQ(*elements.rbegin(), end - 1);
    }
  }
}

TEST(Tile, ChecksAMillionTilesOfManyTensorsInSeconds) {
  std::vector<NamedShape> shapes;
  for (std::uint32_t i = 0; i < 200'000; ++i) {
    shapes.push_back({"t" + std::to_string(i), DType::kU8, {4, 10}});
  }
  const Schema schema = schema_of(shapes);
  std::vector<Tile> tiles;
  for (std::uint32_t t = 0; t < shapes.size(); ++t) {
    for (std::uint32_t p = 0; p < 5; ++p) {
      Tile tile = column(p, 4, 10, p * 2, p * 2 + 2);
      tile.tensor.value = t;
      tiles.push_back(tile);
    }
  }
  const auto begun = std::chrono::steady_clock::now();
  const auto lattice = Lattice::from_tiles(schema, tiles, 5);
  ASSERT_TRUE(lattice) << lattice.error().message();
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(30));
  tiles[777'777].element_count -= 2;
  tiles[777'777].outer[0].extent = 3;
  EXPECT_NE(refusal(schema, tiles, 5).find("a gap"), std::string::npos);
}

TEST(Tile, BoundsTheWorkOnAPatchwork) {
  // Staircases: every box has a row of its own to begin at.
  const Schema schema = schema_of({{"w", DType::kU8, {8192, 8192}}});
  std::vector<Tile> tiles;
  for (std::uint32_t i = 0; i < 8192; ++i) {
    if (i > 0) tiles.push_back({kW, {i}, i, i, {{{i, 8192}}}});
    tiles.push_back({kW, {i}, std::uint64_t{i} * 8192 + i, 8192 - i, {{{8192 - i, 8192}}}});
  }
  const auto begun = std::chrono::steady_clock::now();
  const std::string answer = refusal(schema, tiles, 8192);
  EXPECT_TRUE(answer == "accepted" || answer.find("too irregular") != std::string::npos) << answer;
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(30));
}

}  // namespace
}  // namespace weft::codec::test
