// SPDX-License-Identifier: Apache-2.0
#include "codec/project/derive.hpp"

#include <gtest/gtest.h>

#include <numeric>

#include "codec/projection_cases.hpp"

namespace weft::codec::test {
namespace {

constexpr TensorIndex kW{0};

// Boxes are right when they lead every element back to its number.
std::vector<std::uint64_t> numbers_of(const Projection& projection, std::uint64_t count) {
  std::vector<std::uint64_t> numbers(count, ~std::uint64_t{0});
  std::vector<std::uint64_t> begins;
  std::uint64_t total = 0;
  for (const ShardTensor& source : projection.sources) {
    begins.push_back(total);
    total += source.element_count;
  }
  for (const Box& box : projection.boxes) {
    std::vector<std::uint64_t> at(box.rank);
    for (std::uint64_t n = 0; n < box.element_count(); ++n) {
      std::uint64_t from = box.source_offset + begins[box.source];
      std::uint64_t to = box.target_offset;
      for (std::uint32_t a = 0; a < box.rank; ++a) {
        from += at[a] * box.axes[a].source_stride;
        to += at[a] * box.axes[a].target_stride;
      }
      EXPECT_EQ(numbers[to], ~std::uint64_t{0});
      numbers[to] = from;
      for (std::uint32_t a = box.rank; a-- > 0;) {
        if (++at[a] < box.axes[a].extent) break;
        at[a] = 0;
      }
    }
  }
  return numbers;
}

// Derives, checks, and gives the number of boxes.
std::size_t boxes_of_export(const std::vector<std::uint64_t>& exported,
                            std::vector<std::uint64_t> source_sizes = {}) {
  if (source_sizes.empty()) source_sizes = {exported.size()};
  Projection projection;
  for (const std::uint64_t size : source_sizes) projection.sources.push_back({"s", size});
  const Schema schema = schema_of({{"w", DType::kBF16, {exported.size()}}});
  const Status derived = derive_boxes(schema, kW, 0, exported, projection);
  EXPECT_TRUE(derived) << derived.error().message();
  EXPECT_EQ(numbers_of(projection, exported.size()), exported);
  return projection.boxes.size();
}

template <typename F>
std::vector<std::uint64_t> export_of(std::uint64_t count, F&& source_of) {
  std::vector<std::uint64_t> numbers(count);
  for (std::uint64_t i = 0; i < count; ++i) numbers[i] = source_of(i);
  return numbers;
}

TEST(DeriveBoxes, FindsOneBoxForTheUsualMaps) {
  EXPECT_EQ(boxes_of_export(export_of(5000, [](auto i) { return i; })), 1U);
  // A transpose of [50, 100].
  EXPECT_EQ(boxes_of_export(export_of(5000, [](auto i) { return i % 50 * 100 + i / 50; })), 1U);
  // Two halves that alternate, element by element and in rows of 10.
  EXPECT_EQ(boxes_of_export(export_of(5000, [](auto i) { return i % 2 * 2500 + i / 2; })), 1U);
  EXPECT_EQ(boxes_of_export(
                export_of(5000, [](auto i) { return i / 10 % 2 * 2500 + i / 20 * 10 + i % 10; })),
            1U);
  // [10, 20, 25] with dimensions in the order 2, 0, 1.
  EXPECT_EQ(boxes_of_export(export_of(
                5000, [](auto i) { return i / 200 + (i / 20 % 10) * 500 + i % 20 * 25; })),
            1U);
  // Every element ten times.
  EXPECT_EQ(boxes_of_export(export_of(5000, [](auto i) { return i / 10; })), 1U);
}

TEST(DeriveBoxes, KeepsSourcesApart) {
  // Two sources, one behind the other: not one run.
  EXPECT_EQ(boxes_of_export(export_of(100, [](auto i) { return i; }), {60, 40}), 2U);
}

TEST(DeriveBoxes, IsRightForAnyPermutation) {
  std::mt19937 random(3);
  std::vector<std::uint64_t> numbers(2000);
  std::iota(numbers.begin(), numbers.end(), std::uint64_t{0});
  for (int i = 0; i < 20; ++i) {
    std::shuffle(numbers.begin() + i * 100, numbers.end(), random);
    boxes_of_export(numbers);
  }
}

TEST(DeriveBoxes, RefusesNumbersThatNoSourceHas) {
  const Schema schema = schema_of({{"w", DType::kBF16, {4}}});
  Projection projection{{{"s", 4}}, {}};
  const std::vector<std::uint64_t> beyond = {0, 1, 4, 3};
  const Status refused = derive_boxes(schema, kW, 0, beyond, projection);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message().find("tensor w element 2"), std::string::npos);
  const std::vector<std::uint64_t> longer = {0, 1, 2, 3, 3};
  EXPECT_FALSE(derive_boxes(schema, kW, 0, longer, projection));
  EXPECT_FALSE(derive_boxes(schema, kW, 1, std::span(longer).first(4), projection));
  EXPECT_TRUE(projection.boxes.empty());
}

TEST(SelfTest, NamesTheFirstElementThatDiffers) {
  const Schema schema = schema_of({{"w", DType::kBF16, {10, 6}}});
  const auto lattice = Lattice::from_tiles(
      schema, {{kW, {0}, 0, 30, {{{10, 6}}}}, {kW, {1}, 3, 30, {{{10, 6}}}}}, 2);
  ASSERT_TRUE(lattice) << lattice.error().message();
  const ChunkPlace place = lattice->place({1});
  auto exported = values_of(schema, kW);
  std::vector<std::byte> gathered;
  for (std::uint32_t i = 0; i < 30; ++i) {
    const std::size_t at = static_cast<std::size_t>(place.element_at(i)) * 2;
    gathered.insert(gathered.end(), exported.begin() + static_cast<std::ptrdiff_t>(at),
                    exported.begin() + static_cast<std::ptrdiff_t>(at + 2));
  }
  EXPECT_TRUE(compare_export(schema, place, gathered, exported));
  exported[2 * 0] ^= std::byte{1};  // of the other producer
  EXPECT_TRUE(compare_export(schema, place, gathered, exported));
  exported[2 * 10 + 1] ^= std::byte{1};
  const Status refused = compare_export(schema, place, gathered, exported);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message().find("tensor w than the export, first at element 10"),
            std::string::npos);
}

}  // namespace
}  // namespace weft::codec::test
