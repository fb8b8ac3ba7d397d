// SPDX-License-Identifier: Apache-2.0
// What bytes from a disk or a peer can make the codec allocate, counted in this program's operator
// new.
#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#include "chunk_cases.hpp"
#include "codec/decode/decode_chunk.hpp"
#include "codec/encode/encode_chunk.hpp"
#include "codec/frame/frame_view.hpp"
#include "codec/safetensors/header.hpp"
#include "safetensors_text.hpp"
#include "weft/wire/frame.hpp"

namespace {

std::atomic<std::size_t> held_bytes{0};
std::atomic<std::size_t> peak_bytes{0};
std::atomic<std::size_t> call_count{0};

void* counted(void* memory) {
  if (memory == nullptr) return nullptr;
  ++call_count;
  const std::size_t held = held_bytes += ::malloc_usable_size(memory);
  if (held > peak_bytes.load()) peak_bytes = held;
  return memory;
}

void* counted_or_thrown(std::size_t bytes) {
  void* const memory = counted(std::malloc(bytes == 0 ? 1 : bytes));
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void freed(void* memory) {
  if (memory != nullptr) held_bytes -= ::malloc_usable_size(memory);
  std::free(memory);
}

}  // namespace

void* operator new(std::size_t bytes) { return counted_or_thrown(bytes); }
void* operator new[](std::size_t bytes) { return counted_or_thrown(bytes); }
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return counted(std::malloc(bytes == 0 ? 1 : bytes));
}
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept {
  return counted(std::malloc(bytes == 0 ? 1 : bytes));
}
void operator delete(void* memory) noexcept { freed(memory); }
void operator delete[](void* memory) noexcept { freed(memory); }
void operator delete(void* memory, std::size_t) noexcept { freed(memory); }
void operator delete[](void* memory, std::size_t) noexcept { freed(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { freed(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { freed(memory); }

namespace weft::codec {
namespace {

// The most bytes held at once during the call, beyond those before it.
template <typename Call>
std::size_t peak_of(Call&& call) {
  const std::size_t before = held_bytes;
  peak_bytes = before;
  call();
  return peak_bytes - before;
}

TEST(MemoryBound, DecodingAChunkAllocatesNothing) {
  EncodeWorkspace encoder;
  DecodeWorkspace decoder;
  for (const DType dtype : {DType::kF8E4M3, DType::kBF16, DType::kF32}) {
    for (const auto type :
         {wire::ChunkType::kClassed, wire::ChunkType::kSparse, wire::ChunkType::kXor,
          wire::ChunkType::kOverwrite, wire::ChunkType::kPlanes, wire::ChunkType::kRaw,
          wire::ChunkType::kBytes}) {
      const auto pair = testing::random_changes(dtype, 50'000, 0.2, 3);
      if (type == wire::ChunkType::kClassed && pair.format.exponent_bits == 0) continue;
      EncodeChoice choice;
      choice.force = type;
      const auto coded =
          encode_chunk({pair.old_bytes, pair.new_bytes, pair.format}, choice, encoder);
      ASSERT_TRUE(coded);
      const wire::IndexEntry entry{{0},
                                   coded->type,
                                   static_cast<std::uint32_t>(coded->payload.size()),
                                   coded->changed_count,
                                   coded->new_digest};
      std::vector<std::byte> arrived(pair.old_bytes.size());
      bool read = false;
      const std::size_t calls = call_count;
      read = static_cast<bool>(decode_chunk(
          {entry, coded->payload, pair.old_bytes, pair.format, std::nullopt, true, nullptr},
          decoder, arrived));
      EXPECT_EQ(call_count, calls) << wire::to_string(type) << " " << name(dtype);
      EXPECT_TRUE(read);
    }
  }
}

// Payloads that claim as much as the index can say: room for the words of an error, no more.
TEST(MemoryBound, APayloadOfNoiseAllocatesAnErrorAndNoMore) {
  const auto pair = testing::random_changes(DType::kBF16, limits::kChunkElementsMax, 0, 1);
  std::mt19937_64 random(7);
  DecodeWorkspace decoder;
  std::vector<std::byte> arrived(pair.old_bytes.size());
  for (int round = 0; round < 100; ++round) {
    std::vector<std::byte> payload(1 + random() % 300);
    for (std::byte& byte : payload) byte = static_cast<std::byte>(random() | random());
    const wire::IndexEntry entry{{0},
                                 static_cast<wire::ChunkType>(1 + round % 7),
                                 static_cast<std::uint32_t>(payload.size()),
                                 limits::kChunkElementsMax,
                                 random()};
    const std::size_t peak = peak_of([&] {
      EXPECT_FALSE(
          decode_chunk({entry, payload, pair.old_bytes, pair.format, std::nullopt, true, nullptr},
                       decoder, arrived));
    });
    EXPECT_LT(peak, 4096U) << wire::to_string(entry.type);
  }
}

TEST(MemoryBound, AFrameAllocatesFromItsOwnLengthAndNotFromItsClaims) {
  wire::FrameHeader header;
  header.chunk_count = limits::kFrameChunksMax;
  header.index_bytes = header.chunk_count * static_cast<std::uint32_t>(wire::kIndexEntryBytes);
  header.payload_bytes = 0xFFFF'FFFF - header.index_bytes;
  std::vector<std::byte> frame(limits::kFrameHeaderBytes + 100);
  const auto peak = [&] {
    std::memcpy(frame.data(), &header, sizeof(header));
    return peak_of([&] { EXPECT_FALSE(FrameView::open(frame, {{}, {}, nullptr, {}, false})); });
  };
  EXPECT_LT(peak(), 4096U);
  header.payload_bytes = 0;
  EXPECT_LT(peak(), 4096U);
  // Counts whose product with an entry's size wraps to what is there.
  header.chunk_count = 0xCCCC'CCD2;
  header.index_bytes = header.chunk_count * static_cast<std::uint32_t>(wire::kIndexEntryBytes);
  EXPECT_LT(peak(), 4096U);
}

// Case B-089: a header of nothing but tensors without elements takes less than ten times its
// length.
TEST(MemoryBound, AHeaderOfEmptyTensorsTakesLessThanTenTimesItsLength) {
  using testing::entry;
  std::string text = "{";
  for (int i = 0; i < 100'000; ++i) {
    text += (i == 0 ? "" : ",") + entry("t." + std::to_string(i), "U8", "0", "0,0");
  }
  text += "}";
  const std::size_t peak = peak_of([&] {
    const auto header = testing::read_header(text);
    EXPECT_TRUE(header) << header.error().message();
  });
  EXPECT_LT(peak, 10 * text.size());
}

// Two characters per dimension, eight bytes to hold it: the worst a header can ask for.
TEST(MemoryBound, AHeaderOfDimensionsTakesLessThanElevenTimesItsLength) {
  std::string shape = "0";
  for (int i = 0; i < 400'000; ++i) shape += ",0";
  const std::string text = "{" + testing::entry("t", "U8", shape, "0,0") + "}";
  const std::size_t peak = peak_of([&] {
    const auto header = testing::read_header(text);
    EXPECT_TRUE(header) << header.error().message();
  });
  EXPECT_LT(peak, 11 * text.size());
}

}  // namespace
}  // namespace weft::codec
