// SPDX-License-Identifier: Apache-2.0
#include "agent/lib/residual_marks.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace weft::agent {
namespace {

constexpr std::uint64_t kElements = 12;
const std::vector<ElementRange> kRanges{{0, 4}, {4, 4}, {8, 4}};

// A residual's source in two parts, FP32 and bytes.
struct Sample {
  std::vector<float> master = std::vector<float>(kElements, 1.0F);
  std::vector<std::uint8_t> scales = std::vector<std::uint8_t>(kElements, 3);
  ResidualMarks marks{2};

  std::vector<bool> changed(bool elementwise, std::uint32_t tensor = 0) {
    ResidualSource source;
    source.parts = {std::as_bytes(std::span(master)), std::as_bytes(std::span(scales))};
    source.elementwise = elementwise;
    return marks.changed(tensor, kElements, kRanges, source);
  }
};

const std::vector<bool> kAll{true, true, true};
const std::vector<bool> kNone{false, false, false};

TEST(ResidualMarks, SameSourceIsSkippedOnceItsValuesAreCommitted) {
  for (const bool elementwise : {false, true}) {
    Sample sample;
    EXPECT_EQ(sample.changed(elementwise), kAll);
    EXPECT_EQ(sample.changed(elementwise), kAll);  // not in the baseline yet
    sample.marks.move();
    EXPECT_EQ(sample.changed(elementwise), kNone);
    EXPECT_EQ(sample.changed(elementwise, 1), kAll);  // another tensor's
  }
}

TEST(ResidualMarks, WhatWasAbortedIsConvertedAgain) {
  for (const bool elementwise : {false, true}) {
    Sample sample;
    sample.changed(elementwise);
    sample.marks.move();
    sample.master[5] = 2;
    EXPECT_NE(sample.changed(elementwise), kNone);
    sample.marks.drop();
    EXPECT_NE(sample.changed(elementwise), kNone);
    sample.master[5] = 1;
    EXPECT_EQ(sample.changed(elementwise), kNone);  // what is in the baseline
  }
}

TEST(ResidualMarks, ElementwiseChangesTouchTheirRangesAlone) {
  Sample sample;
  sample.changed(true);
  sample.marks.move();
  sample.master[4] = 2;
  EXPECT_EQ(sample.changed(true), (std::vector<bool>{false, true, false}));
  sample.marks.move();
  sample.scales[11] = 4;
  EXPECT_EQ(sample.changed(true), (std::vector<bool>{false, false, true}));
}

TEST(ResidualMarks, AnyChangeOfAWholeSourceTouchesAllRanges) {
  Sample sample;
  sample.changed(false);
  sample.marks.move();
  sample.scales[11] = 4;
  EXPECT_EQ(sample.changed(false), kAll);
}

TEST(ResidualMarks, OtherCutOfTheSameBytesIsAnotherSource) {
  Sample sample;
  const std::vector<std::byte> bytes(2 * kElements);
  const auto changed = [&](std::size_t first, bool elementwise = false) {
    ResidualSource source;
    source.parts = {std::span(bytes).first(first), std::span(bytes).subspan(first)};
    source.elementwise = elementwise;
    return sample.marks.changed(0, kElements, kRanges, source);
  };
  changed(kElements);
  sample.marks.move();
  EXPECT_EQ(changed(4), kAll);
  EXPECT_EQ(changed(kElements, true), kAll);
  EXPECT_EQ(changed(kElements), kNone);
}

TEST(ResidualMarks, NothingIsKnownWithoutASourceOrAfterAnotherWayOfPutting) {
  Sample sample;
  sample.changed(true);
  sample.marks.move();
  sample.marks.forget(0);
  sample.marks.move();
  EXPECT_EQ(sample.changed(true), kAll);
  sample.marks.move();
  EXPECT_EQ(sample.marks.changed(0, kElements, kRanges, {}), kAll);
  sample.marks.move();
  EXPECT_EQ(sample.changed(true), kAll);
}

TEST(ResidualMarks, FloatsAreComparedAsBits) {
  Sample sample;
  sample.master[0] = 0.0F;
  sample.changed(true);
  sample.marks.move();
  sample.master[0] = -0.0F;
  EXPECT_EQ(sample.changed(true), (std::vector<bool>{true, false, false}));
}

}  // namespace
}  // namespace weft::agent
