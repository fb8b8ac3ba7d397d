// SPDX-License-Identifier: Apache-2.0
// The conditional bound: against counts by hand, in pieces, and from several threads.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "codec/scan/bound_table.hpp"
#include "codec/scan/conditional_bound.hpp"
#include "support/memory_checkpoint.hpp"

namespace weft::codec {
namespace {

const ElementFormat kFormat = element_format(DType::kBF16);

std::vector<std::byte> bytes_of(const std::vector<std::uint16_t>& words) {
  std::vector<std::byte> bytes(words.size() * 2);
  std::memcpy(bytes.data(), words.data(), bytes.size());
  return bytes;
}

double bits_of(const std::vector<std::uint16_t>& before, const std::vector<std::uint16_t>& after) {
  ConditionalBound bound(kFormat);
  bound.add(bytes_of(before), bytes_of(after));
  return bound.bits();
}

TEST(ConditionalBound, IsTheFormulaOnCountsByHand) {
  // Sixteen elements of one exponent: four change, three by one step away from zero, one towards.
  std::vector<std::uint16_t> before(16, 0x3C00);
  before[1] = 0xBC00;  // negative: away from zero is one more on the pattern all the same
  std::vector<std::uint16_t> after = before;
  after[0] = 0x3C01;
  after[1] = 0xBC01;
  after[2] = 0x3C01;
  after[3] = 0x3BFF;
  const double positions = 4 * std::log2(4.0) + 12 * std::log2(16.0 / 12);
  const double steps = 3 * std::log2(4.0 / 3) + std::log2(4.0);
  const double parameters = 0.5 * std::log2(16.0) + 0.5 * std::log2(4.0);
  EXPECT_NEAR(bits_of(before, after), positions + steps + parameters, 1e-9);
}

TEST(ConditionalBound, NothingChangedCostsNothing) {
  const std::vector<std::uint16_t> words(1000, 0x3C00);
  EXPECT_EQ(bits_of(words, words), 0);
}

TEST(ConditionalBound, HasNoOpinionOfWordsWithoutExponents) {
  ConditionalBound bound(element_format(DType::kF32));
  const std::vector<std::byte> before(64), after(64, std::byte{1});
  bound.add(before, after);
  EXPECT_FALSE(bound.known());
  EXPECT_EQ(bound.bits(), 0);
}

TEST(ConditionalBound, GivesUpOnMoreStepsThanItMayKeep) {
  // From one word of every exponent to every word there is.
  ConditionalBound bound(kFormat);
  std::vector<std::uint16_t> before(65'536), after(65'536);
  for (std::uint32_t base = 0; bound.known() && base < 0x8000; base += 128) {
    for (std::uint32_t i = 0; i < 65'536; ++i) {
      before[i] = static_cast<std::uint16_t>(base);
      after[i] = static_cast<std::uint16_t>(i);
    }
    bound.add(bytes_of(before), bytes_of(after));
  }
  EXPECT_FALSE(bound.known());
  EXPECT_EQ(bound.bits(), 0);
}

// Old and new words with steps near and far, signs, zeros and infinities among them.
struct Words {
  std::vector<std::uint16_t> before;
  std::vector<std::uint16_t> after;
};
Words random_words(std::size_t count) {
  std::mt19937 random(7);
  Words words;
  for (std::size_t i = 0; i < count; ++i) {
    const auto before = static_cast<std::uint16_t>(random());
    const auto step = static_cast<std::uint16_t>(random() % 8 == 0   ? random()
                                                 : random() % 2 == 0 ? 1
                                                                     : 0);
    words.before.push_back(before);
    words.after.push_back(static_cast<std::uint16_t>(before + step));
  }
  return words;
}

TEST(ConditionalBound, OfPartsMergedIsThatOfTheWhole) {
  const Words words = random_words(200'000);
  const auto before = bytes_of(words.before);
  const auto after = bytes_of(words.after);
  ConditionalBound whole(kFormat);
  whole.add(before, after);
  ConditionalBound merged(kFormat);
  ConditionalBound part(element_format(DType::kF16));
  for (std::size_t at = 0; at < before.size(); at += 34'566) {
    const std::size_t here = std::min<std::size_t>(34'566, before.size() - at);
    part.reset(kFormat);
    part.add(std::span(before).subspan(at, here), std::span(after).subspan(at, here));
    merged.merge(part);
  }
  EXPECT_EQ(merged.changed_count(), whole.changed_count());
  EXPECT_NEAR(merged.bits(), whole.bits(), 1e-6 * whole.bits());
}

TEST(BoundTable, FromSeveralThreadsIsTheBoundOfEachTensor) {
  const auto folder = test_support::shared_folder() / "data" / "policy-gradient-lr3e-6";
  const auto base = test_support::MemoryCheckpoint::load(folder / "step-10");
  const auto target = test_support::MemoryCheckpoint::load(folder / "step-11");
  const Lattice lattice = *Lattice::default_for(base.schema);
  BoundTable table(lattice);
  const auto work = [&](std::uint32_t first) {
    for (std::uint32_t i = first; i < lattice.chunk_count(); i += 3) {
      const ChunkPlace place = lattice.place({i});
      table.add({i}, base.chunk(place), target.chunk(place));
    }
  };
  std::vector<std::thread> threads;
  for (std::uint32_t first = 0; first < 3; ++first) threads.emplace_back(work, first);
  for (std::thread& thread : threads) thread.join();
  std::vector<ConditionalBound> bounds(base.schema.tensors().size(), ConditionalBound(kFormat));
  for (std::uint32_t i = 0; i < lattice.chunk_count(); ++i) {
    const ChunkPlace place = lattice.place({i});
    bounds[place.tensor.value].add(base.chunk(place), target.chunk(place));
  }
  for (std::uint32_t t = 0; t < bounds.size(); ++t) {
    ASSERT_TRUE(table.bits({t}));
    EXPECT_NEAR(*table.bits({t}), bounds[t].bits(), 1e-6);
  }
}

}  // namespace
}  // namespace weft::codec
