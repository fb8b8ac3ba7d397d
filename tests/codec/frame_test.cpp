// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "codec/encode/encode_chunk.hpp"
#include "codec/frame/frame_builder.hpp"
#include "codec/frame/frame_view.hpp"
#include "support/memory_slots.hpp"

namespace weft::codec {
namespace {

using weft::test_support::MemorySlots;
using wire::ChunkType;

const FrameIds kIds{FleetId{{1, 2}}, RefitId{{3, ProcessId{4}}, 5}, Digest{{6, 7}}, {0}};

wire::IndexEntry entry(std::uint32_t chunk, std::uint32_t payload_bytes) {
  return {{chunk}, ChunkType::kSparse, payload_bytes, 3, 0x1122'3344'5566'7788};
}
std::vector<std::byte> payload(std::size_t size, int seed) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) {
    bytes[i] = static_cast<std::byte>(i * 7 + static_cast<std::size_t>(seed));
  }
  return bytes;
}

// A frame of `count` chunks of 100 bytes each, out of its slot.
std::vector<std::byte> frame_of(std::uint32_t count) {
  MemorySlots slots(1);
  FrameBuilder builder(*slots.try_acquire(), kIds, limits::kFrameBytesMax);
  for (std::uint32_t i = 0; i < count; ++i) {
    EXPECT_TRUE(builder.add(entry(i * 2, 100), payload(100, static_cast<int>(i))));
  }
  const auto [slot, header] = std::move(builder).close({9});
  return {slot.frame().begin(), slot.frame().end()};
}

// Sets the checksum right again after a change to header or body.
void seal(std::vector<std::byte>& frame) {
  wire::FrameHeader header;
  std::memcpy(&header, frame.data(), sizeof(header));
  const Digest checksum =
      wire::frame_checksum(header, std::span(frame).subspan(limits::kFrameHeaderBytes));
  header.checksum_low = checksum.low;
  header.checksum_high = checksum.high;
  std::memcpy(frame.data(), &header, sizeof(header));
}

TEST(Frame, HoldsWhatWasAdded) {
  for (const std::uint32_t count : {1U, 15U, 16U, 17U, 300U}) {
    const auto frame = frame_of(count);
    const auto view = FrameView::open(frame, {kIds.fleet, kIds.refit, nullptr, kIds.producer});
    ASSERT_TRUE(view) << view.error().message();
    EXPECT_EQ(view->header().sequence, 9U);
    EXPECT_EQ(view->header().frame_bytes(), frame.size());
    ASSERT_EQ(view->chunk_count(), count);
    for (std::uint32_t i = 0; i < count; ++i) {
      EXPECT_EQ(view->entries()[i].chunk.value, i * 2);
      const auto expected = payload(100, static_cast<int>(i));
      EXPECT_TRUE(std::equal(expected.begin(), expected.end(), view->payload(i).begin(),
                             view->payload(i).end()));
    }
  }
}

TEST(Frame, TakesAnyOneChunkAndThenStopsAtItsCeiling) {
  MemorySlots slots(1);
  FrameBuilder builder(*slots.try_acquire(), kIds, 64 * 1024);
  const std::uint32_t largest = payload_bytes_max(limits::kChunkBytesMax);
  EXPECT_TRUE(builder.add(entry(0, largest), payload(largest, 1)));
  EXPECT_FALSE(builder.add(entry(1, 1), payload(1, 1)));
  const auto [slot, header] = std::move(builder).close({0});
  EXPECT_TRUE(FrameView::open(slot.frame(), {}));
}

TEST(Frame, GivesItsSlotBackWhenDropped) {
  MemorySlots slots(1);
  {
    FrameBuilder builder(*slots.try_acquire(), kIds, 64 * 1024);
    EXPECT_EQ(slots.free_count(), 0U);
  }
  EXPECT_EQ(slots.free_count(), 1U);
}

TEST(Frame, RefusesEveryFlippedByteAndTruncation) {
  auto frame = frame_of(3);
  for (std::size_t i = 0; i < frame.size(); ++i) {
    frame[i] ^= std::byte{0x20};
    EXPECT_FALSE(FrameView::open(frame, {})) << i;
    frame[i] ^= std::byte{0x20};
    EXPECT_FALSE(FrameView::open(std::span(frame).first(i), {}));
  }
  EXPECT_TRUE(FrameView::open(frame, {}));
}

TEST(Frame, RefusesAnotherFleetRefitOrProducer) {
  const auto frame = frame_of(1);
  for (const FrameExpected& expected :
       std::vector<FrameExpected>{{FleetId{{1, 3}}, {}, nullptr, {}, true},
                                  {{}, RefitId{{3, ProcessId{4}}, 6}, nullptr, {}, true},
                                  {{}, {}, nullptr, ProducerIndex{1}, true}}) {
    const auto view = FrameView::open(frame, expected);
    ASSERT_FALSE(view);
    EXPECT_EQ(view.error().code, ErrorCode::kProtocol);
  }
}

// With a right checksum only the content can be at fault.
TEST(Frame, RefusesAnIndexThatLies) {
  const auto with = [](auto&& change) {
    auto frame = frame_of(3);
    change(frame.data() + limits::kFrameHeaderBytes);
    seal(frame);
    const auto view = FrameView::open(frame, {});
    return view.has_value();
  };
  EXPECT_TRUE(with([](std::byte*) {}));
  EXPECT_FALSE(with([](std::byte* index) { wire::store_index_entry(index + 20, entry(0, 100)); }));
  EXPECT_FALSE(with([](std::byte* index) { wire::store_index_entry(index + 20, entry(9, 100)); }));
  EXPECT_FALSE(with([](std::byte* index) { wire::store_index_entry(index, entry(0, 101)); }));
  EXPECT_FALSE(with([](std::byte* index) { wire::store_index_entry(index, entry(0, 99)); }));
  EXPECT_FALSE(
      with([](std::byte* index) { wire::store_index_entry(index, entry(0, 0x0FFF'FFFF)); }));
  for (const std::uint32_t type : {0U, 8U, 15U}) {
    EXPECT_FALSE(with([type](std::byte* index) {
      wire::IndexEntry wrong = entry(0, 100);
      wrong.type = static_cast<ChunkType>(type);
      wire::store_index_entry(index, wrong);
    }));
  }
}

TEST(Frame, RefusesChunksThatAreNotTheProducers) {
  std::vector<FileInput> files(1);
  files[0] = {"f", 8, {8, {{"a", DType::kU8, {40}, 0, 40}, {"b", DType::kU8, {40}, 40, 80}}}};
  const Schema schema = *build_schema(std::move(files), std::nullopt);
  const Lattice lattice = *Lattice::from_tiles(schema, {{{0}, {0}, 0, 40}, {{1}, {1}, 0, 40}}, 2);
  FrameIds ids = kIds;
  ids.lattice = lattice.digest();
  const auto open = [&](std::uint32_t producer, const wire::IndexEntry& one) {
    MemorySlots slots(1);
    ids.producer = {producer};
    FrameBuilder builder(*slots.try_acquire(), ids, limits::kFrameBytesMax);
    EXPECT_TRUE(builder.add(one, payload(one.payload_bytes, 0)));
    const auto [slot, header] = std::move(builder).close({0});
    const auto view = FrameView::open(slot.frame(), {{}, {}, &lattice, {}, true});
    return view ? ErrorCode{} : view.error().code;
  };
  EXPECT_EQ(open(0, entry(0, 10)), ErrorCode{});
  EXPECT_EQ(open(1, entry(1, 10)), ErrorCode{});
  EXPECT_EQ(open(0, entry(1, 10)), ErrorCode::kProtocol);
  EXPECT_EQ(open(1, entry(0, 10)), ErrorCode::kProtocol);
  EXPECT_EQ(open(1, entry(2, 10)), ErrorCode::kProtocol);
  EXPECT_EQ(open(2, entry(0, 10)), ErrorCode::kProtocol);
  EXPECT_EQ(open(0, entry(0, 105)), ErrorCode::kDecodeLimit);
  wire::IndexEntry crowded = entry(0, 10);
  crowded.changed_count = 41;
  EXPECT_EQ(open(0, crowded), ErrorCode::kDecodeLimit);
}

}  // namespace
}  // namespace weft::codec
