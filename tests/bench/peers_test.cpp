// SPDX-License-Identifier: Apache-2.0
// The peers' methods give back every bit: what a comparison with them rests on.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "bench/peers/nemo_rl.hpp"
#include "bench/peers/pulse.hpp"
#include "bench/peers/slime.hpp"

namespace weft::bench {
namespace {

using Words = std::vector<std::uint16_t>;

std::span<const std::byte> bytes_of(const Words& words) { return std::as_bytes(std::span(words)); }

template <typename Method>
class Peers : public ::testing::Test {
 protected:
  // Encodes the pair, applies it to a copy of the old values, expects the new ones.
  static void expect_round_trip(const std::vector<Words>& before, const std::vector<Words>& after) {
    std::vector<PeerTensor> tensors;
    std::vector<Words> live = before;
    std::vector<std::span<std::byte>> live_bytes;
    for (std::size_t t = 0; t < before.size(); ++t) {
      tensors.push_back({bytes_of(before[t]), bytes_of(after[t])});
      live_bytes.push_back(std::as_writable_bytes(std::span(live[t])));
    }
    Method method;
    EXPECT_GT(method.encode(tensors), 0U);
    method.decode(live_bytes);
    EXPECT_EQ(live, after);
    // Encoding again starts anew.
    live = before;
    for (std::size_t t = 0; t < live.size(); ++t) {
      live_bytes[t] = std::as_writable_bytes(std::span(live[t]));
    }
    method.encode(tensors);
    method.decode(live_bytes);
    EXPECT_EQ(live, after);
  }
};

using Methods = ::testing::Types<NemoRl, Slime, Pulse>;
TYPED_TEST_SUITE(Peers, Methods);

TYPED_TEST(Peers, GiveBackEveryBitAtEveryDensity) {
  std::mt19937 random(11);
  for (const unsigned per_mille : {0U, 1U, 30U, 500U, 1000U}) {
    std::vector<Words> before(3);
    before[0].resize(200'001);
    before[1].resize(1);
    before[2].resize(4'096);
    for (Words& tensor : before) {
      for (auto& word : tensor) word = static_cast<std::uint16_t>(random());
    }
    std::vector<Words> after = before;
    for (Words& tensor : after) {
      for (auto& word : tensor) {
        if (random() % 1000 < per_mille) word = static_cast<std::uint16_t>(random());
      }
    }
    this->expect_round_trip(before, after);
  }
}

TYPED_TEST(Peers, GiveBackChangesAtTheEndsAndFarApart) {
  const Words before(300'000, 0x3C00);
  for (const std::vector<std::size_t>& places : {std::vector<std::size_t>{0},
                                                 {299'999},
                                                 {0, 299'999},
                                                 {254, 509, 510, 766},
                                                 {65'535, 65'536}}) {
    Words after = before;
    for (const std::size_t place : places) after[place] = 0x8000;
    this->expect_round_trip({before}, {after});
  }
}

TEST(NemoRl, TakesTheSmallestWidthOfGaps) {
  Words before(200'000, 7);
  Words after = before;
  after[65'535] = 8;  // a gap of 65,535 still fits 16 bits
  NemoRl narrow;
  const std::size_t narrow_bytes = narrow.encode(bytes_of(before), bytes_of(after)).size();
  after[65'535] = 7;
  after[65'536] = 8;
  NemoRl wide;
  EXPECT_GT(wide.encode(bytes_of(before), bytes_of(after)).size(), narrow_bytes);
}

}  // namespace
}  // namespace weft::bench
