// SPDX-License-Identifier: Apache-2.0
#include "codec/project/box.hpp"

#include <gtest/gtest.h>

#include "codec/projection_cases.hpp"

namespace weft::codec::test {
namespace {

constexpr std::uint64_t kFar = ~std::uint64_t{0};

Projection with(std::vector<BoxAxis> axes, std::uint64_t source_offset = 0,
                std::uint64_t target_offset = 0) {
  Projection projection{{{"shard", 48}}, {}};
  Box box;
  box.source_offset = source_offset;
  box.target_offset = target_offset;
  box.rank = static_cast<std::uint32_t>(axes.size());
  std::copy(axes.begin(), axes.end(), box.axes.begin());
  projection.boxes.push_back(box);
  return projection;
}

Status check(const Projection& projection) {
  static const Schema schema = schema_of({{"w", DType::kBF16, {6, 8}}});
  return check_box(schema, projection, projection.boxes[0]);
}

TEST(Box, AcceptsWhatStaysInsideAndApart) {
  EXPECT_TRUE(check(with({{6, 8, 8}, {8, 1, 1}})));
  EXPECT_TRUE(check(with({{8, 6, 1}, {6, 1, 8}})));
  EXPECT_TRUE(check(with({{3, 1, 16}, {8, 3, 1}}, 24, 8)));
  EXPECT_TRUE(check(with({}, 47, 47)));
  EXPECT_TRUE(check(with({{48, 0, 1}})));
}

TEST(Box, RefusesWhatLeavesItsTensors) {
  EXPECT_FALSE(check(with({{49, 0, 1}})));
  EXPECT_FALSE(check(with({{48, 1, 1}}, 1)));
  EXPECT_FALSE(check(with({}, 48, 0)));
  EXPECT_FALSE(check(with({}, 0, 48)));
}

TEST(Box, RefusesSizesThatWrap) {
  EXPECT_FALSE(check(with({{kFar, kFar, 1}})));
  EXPECT_FALSE(check(with({{3, 0, kFar / 2 + 1}})));
  EXPECT_FALSE(check(with({{kFar, 0, 0}, {kFar, 0, 0}})));
  EXPECT_FALSE(check(with({{2, 1, 1}}, kFar, kFar)));
}

TEST(Box, RefusesEmptyExtentsAndStrangers) {
  EXPECT_FALSE(check(with({{0, 1, 1}})));
  Projection stranger = with({{2, 1, 1}});
  stranger.boxes[0].source = 1;
  EXPECT_FALSE(check(stranger));
  stranger = with({{2, 1, 1}});
  stranger.boxes[0].target = TensorIndex{1};
  EXPECT_FALSE(check(stranger));
}

TEST(Box, RefusesTargetsThatOverlapThemselves) {
  EXPECT_FALSE(check(with({{2, 1, 0}})));
  EXPECT_FALSE(check(with({{3, 3, 4}, {5, 1, 1}})));
  EXPECT_FALSE(check(with({{3, 8, 8}, {3, 1, 8}})));
  const auto refused = check(with({{2, 1, 0}}));
  EXPECT_NE(refused.error().message().find("to w"), std::string::npos);
}

TEST(Box, JoinsAxesThatContinueEachOther) {
  const Box box = shortest_form(with({{8, 1, 1}, {1, 7, 7}, {6, 8, 8}}).boxes[0]);
  ASSERT_EQ(box.rank, 1U);
  EXPECT_EQ(box.axes[0], (BoxAxis{48, 1, 1}));
}

TEST(Tiles, OfNeighbouringBoxesAreOne) {
  const Schema schema = schema_of({{"w", DType::kBF16, {6, 8}}});
  // Columns 2 to 5 row by row, out of order.
  Projection rows{{{"shard", 48}}, {}};
  for (const std::uint64_t row : {3U, 0U, 5U, 1U, 4U, 2U}) {
    Box box;
    box.source_offset = row * 4;
    box.target_offset = row * 8 + 2;
    box.rank = 1;
    box.axes[0] = {4, 1, 1};
    rows.boxes.push_back(box);
  }
  const auto tiles = tiles_of(schema, rows, ProducerIndex{3});
  ASSERT_TRUE(tiles);
  ASSERT_EQ(tiles->size(), 1U);
  EXPECT_EQ(tiles->front(), (Tile{{0}, {3}, 2, 24, {{{6, 8}}}}));
}

TEST(Tiles, OfAFlatRunAreOne) {
  const Schema schema = schema_of({{"w", DType::kBF16, {6, 4, 8}}});
  Projection run{{{"shard", 200}}, {}};
  for (const auto& [begin, count] : {std::pair{5U, 100U}, {105U, 80U}}) {
    Box box;
    box.source_offset = begin;
    box.target_offset = begin;
    box.rank = 1;
    box.axes[0] = {count, 1, 1};
    run.boxes.push_back(box);
  }
  const auto tiles = tiles_of(schema, run, ProducerIndex{0});
  ASSERT_TRUE(tiles);
  ASSERT_EQ(tiles->size(), 1U);
  EXPECT_EQ(tiles->front(), (Tile{{0}, {0}, 5, 180}));
}

TEST(Tiles, TooScatteredNameTheTensor) {
  const Schema schema = schema_of({{"scattered.weight", DType::kBF16, {12, 8}}});
  Projection every_second{{{"shard", 48}}, {}};
  Box box;
  box.rank = 2;
  box.axes[0] = {6, 8, 16};
  box.axes[1] = {8, 1, 1};
  every_second.boxes.push_back(box);
  const auto tiles = tiles_of(schema, every_second, ProducerIndex{0});
  ASSERT_FALSE(tiles);
  EXPECT_EQ(tiles.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(tiles.error().message().find("scattered.weight"), std::string::npos);
}

}  // namespace
}  // namespace weft::codec::test
