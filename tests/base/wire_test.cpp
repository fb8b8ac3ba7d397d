// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <vector>

#include "weft/base/lease.hpp"
#include "weft/wire/frame.hpp"
#include "weft/wire/manifest.hpp"
#include "weft/wire/messages.hpp"

namespace weft::wire {
namespace {

TEST(Manifest, DecodesToWhatWasEncoded) {
  Manifest manifest;
  manifest.refit = {{7, ProcessId{9}}, 3};
  manifest.target.version.value = 12;
  manifest.target.root = Digest{{1, 2}};
  manifest.producers.push_back({5, Digest{{3, 4}}, Digest{{5, 6}}, 7, 8});
  const auto decoded = Manifest::decode(manifest.encode());
  ASSERT_TRUE(decoded);
  EXPECT_EQ(*decoded, manifest);
}

TEST(Manifest, RefusesEveryTruncation) {
  Manifest manifest;
  manifest.producers.resize(2);
  const auto bytes = manifest.encode();
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    const auto decoded = Manifest::decode(std::span(bytes).first(length));
    ASSERT_FALSE(decoded) << length;
    EXPECT_EQ(decoded.error().code, ErrorCode::kProtocol);
  }
}

TEST(FrameHeader, RefusesEveryLengthThatDoesNotAddUp) {
  FrameHeader header;
  header.chunk_count = 1;
  header.index_bytes = kIndexEntryBytes;
  header.payload_bytes = 0xFFFF'FFFF;  // wraps a 32-bit sum
  std::vector<std::byte> frame(1024);
  std::memcpy(frame.data(), &header, sizeof(header));
  const auto loaded = load_frame_header(frame);
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().code, ErrorCode::kCorruptPayload);
}

TEST(IndexEntry, SurvivesStoreAndLoad) {
  std::byte raw[kIndexEntryBytes];
  store_index_entry(raw, {ChunkIndex{77}, ChunkType::kRaw, 0x0FFF'FFFF, 5, 0x0123'4567'89AB'CDEF});
  const IndexEntry entry = load_index_entry(raw);
  EXPECT_EQ(entry.chunk.value, 77U);
  EXPECT_EQ(entry.type, ChunkType::kRaw);
  EXPECT_EQ(entry.payload_bytes, 0x0FFF'FFFFU);
  EXPECT_EQ(entry.new_digest, 0x0123'4567'89AB'CDEFU);
}

TEST(ErrorCode, EveryCodeHasANameOfItsOwn) {
  for (int code = 1; code <= kErrorCodeCount; ++code) {
    EXPECT_NE(to_string(static_cast<ErrorCode>(code)), "unknown");
  }
}

}  // namespace
}  // namespace weft::wire
