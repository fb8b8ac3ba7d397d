// SPDX-License-Identifier: Apache-2.0
#include "codec/flow/part_encoder.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "codec/decode/decode_chunk.hpp"
#include "codec/frame/frame_view.hpp"
#include "codec/projection_cases.hpp"
#include "support/memory_slots.hpp"
#include "weft/wire/digest.hpp"

namespace weft::codec::test {
namespace {

constexpr ProducerIndex kOnly{0};

// Old and new bytes of every chunk, and what has arrived at the other side.
struct Pair {
  Schema schema = schema_of({{"a", DType::kBF16, {700'000}},
                             {"b", DType::kBF16, {3}},
                             {"c", DType::kF32, {200'000}},
                             {"d", DType::kU8, {900'000}}});
  Lattice lattice = *Lattice::default_for(schema);
  std::vector<std::vector<std::byte>> old_bytes;
  std::vector<std::vector<std::byte>> new_bytes;
  DigestTable base{lattice.chunk_count()};

  Pair() {
    std::mt19937 random(5);
    for (std::uint32_t c = 0; c < lattice.chunk_count(); ++c) {
      std::vector<std::byte> bytes(lattice.place({c}).bytes());
      for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
      base.set({c}, wire::digest64(bytes));
      old_bytes.push_back(bytes);
      for (std::size_t i = c % 7; i < bytes.size(); i += 97) bytes[i] ^= std::byte{1};
      new_bytes.push_back(bytes);
    }
  }
};

// Threads: any.
class PairSource final : public ChunkSource {
 public:
  explicit PairSource(const Pair& pair) : pair_(pair) {}
  Status read(ChunkIndex chunk, std::span<std::byte> old_bytes,
              std::span<std::byte> new_bytes) override {
    if (fail_at && *fail_at == chunk) {
      return failure(ErrorCode::kIoFailed, Stage::kScan, "as asked for");
    }
    std::copy_n(pair_.old_bytes[chunk.value].begin(), old_bytes.size(), old_bytes.begin());
    std::copy_n(pair_.new_bytes[chunk.value].begin(), new_bytes.size(), new_bytes.begin());
    return ok();
  }
  std::optional<ChunkIndex> fail_at;

 private:
  const Pair& pair_;
};

// Threads: one at a time.
class Receiver final : public FrameSink {
 public:
  explicit Receiver(const Pair& pair) : pair_(pair), bytes(pair.old_bytes) {}
  Status take(SharedSlot slot, const wire::FrameHeader&) override {
    WEFT_TRY(const FrameView view,
             FrameView::open(slot.frame(), {{}, {}, &pair_.lattice, {}, true}));
    for (std::uint32_t i = 0; i < view.chunk_count(); ++i) {
      auto& live = bytes[view.entries()[i].chunk.value];
      std::vector<std::byte> arrived(live.size());
      WEFT_TRY_STATUS(decode_chunk({view.entries()[i], view.payload(i), live,
                                    pair_.lattice.place(view.entries()[i].chunk).format,
                                    wire::digest64(live), true, nullptr},
                                   workspace_, arrived));
      live = arrived;
    }
    return ok();
  }

 private:
  const Pair& pair_;
  DecodeWorkspace workspace_;

 public:
  std::vector<std::vector<std::byte>> bytes;
};

std::vector<ChunkIndex> shuffled_chunks(const Pair& pair, std::uint32_t seed) {
  std::vector<ChunkIndex> chunks;
  for (std::uint32_t c = 0; c < pair.lattice.chunk_count(); ++c) chunks.push_back({c});
  std::shuffle(chunks.begin(), chunks.end(), std::mt19937(seed));
  return chunks;
}

TEST(PartEncoder, PartsInAnyOrderArriveBitForBit) {
  const Pair pair;
  for (std::uint32_t seed = 1; seed <= 5; ++seed) {
    PairSource source(pair);
    Receiver receiver(pair);
    test_support::MemorySlots slots(2);
    EncodeFlowOptions options;
    options.threads = seed % 3 + 1;
    PartEncoder encoder(pair.lattice, kOnly, slots, receiver, options);
    auto chunks = shuffled_chunks(pair, seed);
    while (!chunks.empty()) {
      const std::size_t count = std::min<std::size_t>(chunks.size(), seed);
      std::vector<ChunkIndex> part(chunks.end() - static_cast<std::ptrdiff_t>(count), chunks.end());
      std::sort(part.begin(), part.end());
      const Status encoded = encoder.encode(part, source);
      ASSERT_TRUE(encoded) << encoded.error().message();
      chunks.resize(chunks.size() - count);
    }
    const auto summary = encoder.finish(pair.base);
    ASSERT_TRUE(summary);
    EXPECT_EQ(receiver.bytes, pair.new_bytes);
    const auto table = digest_flow(pair.lattice, source, 2);
    EXPECT_EQ(summary->seal.part, table->part(pair.lattice, kOnly));
  }
}

TEST(PartEncoder, WhatIsInNoPartIsUnchanged) {
  const Pair pair;
  PairSource source(pair);
  Receiver receiver(pair);
  test_support::MemorySlots slots(2);
  const EncodeFlowOptions options;
  PartEncoder encoder(pair.lattice, kOnly, slots, receiver, options);
  ASSERT_TRUE(encoder.encode(std::vector<ChunkIndex>{{1}, {3}}, source));
  const auto summary = encoder.finish(pair.base);
  ASSERT_TRUE(summary);
  DigestTable expected = pair.base;
  for (const std::uint32_t chunk : {1U, 3U}) {
    expected.set({chunk}, wire::digest64(pair.new_bytes[chunk]));
    EXPECT_EQ(receiver.bytes[chunk], pair.new_bytes[chunk]);
  }
  EXPECT_EQ(receiver.bytes[0], pair.old_bytes[0]);
  EXPECT_EQ(summary->seal.part, expected.part(pair.lattice, kOnly));
  EXPECT_EQ(summary->table, expected);
}

TEST(PartEncoder, GivesTheSourcesError) {
  const Pair pair;
  PairSource source(pair);
  source.fail_at = ChunkIndex{2};
  Receiver receiver(pair);
  test_support::MemorySlots slots(2);
  const EncodeFlowOptions options;
  PartEncoder encoder(pair.lattice, kOnly, slots, receiver, options);
  const Status failed = encoder.encode(std::vector<ChunkIndex>{{0}, {1}, {2}, {3}}, source);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, ErrorCode::kIoFailed);
}

}  // namespace
}  // namespace weft::codec::test
