// SPDX-License-Identifier: Apache-2.0
#include "agent/lib/box_source.hpp"

#include <gtest/gtest.h>

#include <cstring>

#include "support/refit_builder.hpp"

namespace weft::agent {
namespace {

using namespace test_support;  // NOLINT(google-build-using-namespace)

constexpr std::uint64_t kRows = 700;
constexpr std::uint64_t kColumns = 1000;  // of both producers
constexpr std::uint64_t kMine = 500;
constexpr ProducerIndex kSecond{1};

// Two producers share the columns of a matrix; what the second one has been given of its own.
struct Sample {
  std::shared_ptr<MemoryDisk> disk = MemoryDisk::make();
  std::optional<apply::CheckpointDir> base;
  codec::Lattice lattice;
  std::unique_ptr<ShardBaseline> baseline;
  codec::Gather no_gather;
  PutTensors none{0};
  std::optional<ShardSource> note;
  std::optional<BoxSource> boxed;
  std::vector<std::uint16_t> values = std::vector<std::uint16_t>(kRows * kMine);

  Sample() {
    TestCheckpoint checkpoint;
    auto& tensors = checkpoint["m.safetensors"];
    tensors.push_back({"a", "BF16", {kRows, kColumns}, std::vector<std::byte>(1'400'000)});
    tensors.push_back({"b", "F32", {1000}, std::vector<std::byte>(4'000)});
    tensors.push_back({"c", "F32", {1000}, std::vector<std::byte>(4'000)});
    auto root = disk->open();
    write_checkpoint(**root->open_directory("weights", true), checkpoint, false);
    base = open_checkpoint(*disk, "weights");
    lattice = column_cut_of(base->schema(), 2);
    baseline = *ShardBaseline::open(lattice, kSecond, {&*base, nullptr, 1});
    note.emplace(base->schema(), lattice, no_gather, *baseline, none);
    boxed.emplace(base->schema(), lattice, kSecond, *baseline, *note);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::uint16_t>(i + 1);
  }
  // Rows [begin, end) of the second producer's columns of `a`, as they lie in `values`.
  static ShardBox rows(std::uint64_t begin, std::uint64_t end, std::uint64_t first_column = kMine) {
    return {"a",
            begin * kMine,
            begin * kColumns + first_column,
            {{end - begin, kMine, kColumns}, {kMine, 1, 1}}};
  }
  ShardView view() const { return {ShardType::kSame, std::as_bytes(std::span(values)), {}}; }
  std::string refusal(const std::vector<ShardBox>& boxes, const ShardView& wanted) {
    const Status opened = boxed->open(boxes, wanted);
    return opened ? std::string() : opened.error().detail;
  }
  std::vector<ChunkIndex> give(const ShardBox& box) {
    const std::vector<ShardBox> boxes{box};
    EXPECT_EQ(refusal(boxes, view()), "");
    auto whole = boxed->take();
    EXPECT_TRUE(whole);
    return *std::move(whole);
  }
};

void expect_has(const std::string& text, const std::string& wanted) {
  EXPECT_NE(text.find(wanted), std::string::npos) << text;
}

TEST(BoxSource, OneViewOfEverythingIsReadWhereItLies) {
  Sample sample;
  const auto whole = sample.give(Sample::rows(0, kRows));
  ASSERT_EQ(whole.size(), 2U);
  EXPECT_TRUE(sample.boxed->unfinished().empty());
  const auto second = sample.boxed->in_place(whole[1]);
  ASSERT_TRUE(second);
  EXPECT_EQ(static_cast<const void*>(second->new_bytes.data()), &sample.values[262'144]);
  EXPECT_EQ(second->old_bytes.data(), sample.baseline->old_bytes(whole[1]).data());
}

TEST(BoxSource, ChunksArePutTogetherFromViewsInAnyOrder) {
  Sample sample;
  EXPECT_TRUE(sample.give(Sample::rows(600, kRows)).empty());
  EXPECT_EQ(sample.boxed->unfinished().size(), 1U);
  sample.boxed->release({});
  EXPECT_TRUE(sample.give(Sample::rows(0, 400)).empty());
  sample.boxed->release({});
  const auto whole = sample.give(Sample::rows(400, 600));
  ASSERT_EQ(whole.size(), 2U);
  std::uint64_t at = 0;
  for (const ChunkIndex chunk : whole) {
    const auto given = sample.boxed->in_place(chunk);
    ASSERT_TRUE(given);
    EXPECT_EQ(std::memcmp(given->new_bytes.data(), &sample.values[at], given->new_bytes.size()), 0);
    at += given->new_bytes.size() / 2;
  }
  sample.boxed->release(whole);
  EXPECT_TRUE(sample.boxed->unfinished().empty());
}

TEST(BoxSource, WhatAChunkLacksIsItsOldValues) {
  Sample sample;
  sample.give(Sample::rows(10, 20));
  const auto unfinished = sample.boxed->unfinished();
  ASSERT_EQ(unfinished.size(), 1U);
  const auto given = sample.boxed->in_place(unfinished[0]);
  ASSERT_TRUE(given);
  for (std::uint64_t i = 0; i < given->new_bytes.size() / 2; ++i) {
    std::uint16_t value = 0;
    std::memcpy(&value, &given->new_bytes[i * 2], 2);
    const bool within = i >= 10 * kMine && i < 20 * kMine;
    ASSERT_EQ(value, within ? sample.values[i] : 0) << i;
  }
}

TEST(BoxSource, OverlapsAreRefusedByTensorAndRange) {
  Sample sample;
  sample.give(Sample::rows(0, 3));
  sample.boxed->release({});
  expect_has(sample.refusal({Sample::rows(2, 5)}, sample.view()),
             "put_shard: an overlap with what was given before in tensor a elements [2500, 3000)");
  expect_has(sample.refusal({Sample::rows(5, 7), Sample::rows(6, 8)}, sample.view()),
             "in tensor a elements [6500, 7000)");
  // A refusal takes nothing.
  sample.give(Sample::rows(3, kRows));
}

TEST(BoxSource, ElementsOfAnotherProducerAreRefusedByTensorAndRange) {
  Sample sample;
  expect_has(sample.refusal({Sample::rows(0, 2, kMine - 1)}, sample.view()),
             "put_shard: another producer's elements in tensor a elements [499, 500)");
  expect_has(sample.refusal({{"c", 0, 0, {{1000, 1, 1}}}},
                            {ShardType::kFloat32, std::as_bytes(std::span(sample.values)), {}}),
             "another producer's elements in tensor c elements [0, 1000)");
}

TEST(BoxSource, GapsAreNamedByTensorAndRange) {
  Sample sample;
  const codec::Projection nothing;
  sample.give(Sample::rows(0, 100));
  sample.boxed->release({});
  const std::vector<std::uint32_t> numbers(1000);
  const std::vector<ShardBox> all_of_b{{"b", 0, 0, {{1000, 1, 1}}}};
  ASSERT_EQ(sample.refusal(all_of_b, {ShardType::kSame, std::as_bytes(std::span(numbers)), "F32"}),
            "");
  sample.boxed->release(*sample.boxed->take());
  const Status gap = sample.boxed->check_complete(nothing);
  ASSERT_FALSE(gap);
  EXPECT_EQ(gap.error().code, ErrorCode::kConfig);
  expect_has(gap.error().detail, "put_shard: a gap in tensor a elements [100500, 101000)");
  sample.give(Sample::rows(100, kRows));
  EXPECT_TRUE(sample.boxed->check_complete(nothing));
}

TEST(BoxSource, MistakesAreNamed) {
  Sample sample;
  expect_has(sample.refusal({}, sample.view()), "no boxes");
  expect_has(sample.refusal({{"x", 0, 0, {}}}, sample.view()), "x is no tensor of the checkpoint");
  expect_has(sample.refusal({{"a", 0, 0, std::vector<ShardBoxAxis>(9)}}, sample.view()), "axes");
  ShardView half = sample.view();
  half.bytes = half.bytes.first(999);
  expect_has(sample.refusal({Sample::rows(0, 1)}, half), "999 bytes");
  half.bytes = half.bytes.first(998);
  expect_has(sample.refusal({Sample::rows(0, 1)}, half), "reaches source element 499 of 499");
  ShardView other = sample.view();
  other.dtype = "F16";
  expect_has(sample.refusal({Sample::rows(0, 1)}, other), "the view is F16, tensor a has BF16");
  expect_has(sample.refusal({Sample::rows(0, 1), {"b", 0, 0, {}}}, sample.view()),
             "tensor b has F32");
}

TEST(BoxSource, Float32IsCastToTheTensorsType) {
  Sample sample;
  std::vector<float> wide(kMine);
  for (std::size_t i = 0; i < wide.size(); ++i) wide[i] = 1.0F + static_cast<float>(i);
  ASSERT_EQ(sample.refusal({Sample::rows(0, 1)},
                           {ShardType::kFloat32, std::as_bytes(std::span(wide)), "F32"}),
            "");
  ASSERT_TRUE(sample.boxed->take());
  const auto given = sample.boxed->in_place(sample.boxed->unfinished().front());
  std::uint16_t value = 0;
  std::memcpy(&value, given->new_bytes.data(), 2);
  EXPECT_EQ(value, 0x3F80);
  std::memcpy(&value, &given->new_bytes[2], 2);
  EXPECT_EQ(value, 0x4000);
}

}  // namespace
}  // namespace weft::agent
