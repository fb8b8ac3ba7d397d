// SPDX-License-Identifier: Apache-2.0
// What a producer has sent stays readable until the decision, in memory and beyond it.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <vector>

#include "agent/lib/kept_frames.hpp"
#include "support/temp_directory.hpp"
#include "weft/wire/frame.hpp"

namespace weft::agent {
namespace {

const RefitId kRefit{{3, ProcessId{4}}, 5};

std::vector<std::byte> frame(std::uint32_t sequence, std::size_t payload_bytes) {
  wire::FrameHeader header;
  header.set_refit(kRefit);
  header.sequence = sequence;
  header.chunk_count = 1;
  header.index_bytes = wire::kIndexEntryBytes;
  header.payload_bytes = static_cast<std::uint32_t>(payload_bytes);
  std::vector<std::byte> bytes(header.frame_bytes(), static_cast<std::byte>(sequence + 1));
  const auto body = std::span(bytes).subspan(sizeof(header));
  const Digest checksum = wire::frame_checksum(header, body);
  header.checksum_low = checksum.low;
  header.checksum_high = checksum.high;
  std::memcpy(bytes.data(), &header, sizeof(header));
  return bytes;
}

KeptFramesOptions options(const std::string& directory, std::uint64_t memory_bytes) {
  return {kRefit, ProducerIndex{0}, 1, memory_bytes, directory};
}

bool is_empty(const std::string& directory) {
  return std::filesystem::directory_iterator(directory) == std::filesystem::directory_iterator();
}

void expect_all(const KeptFrames& kept, std::uint32_t count) {
  std::vector<std::byte> room(64 * 1024);
  for (std::uint32_t i = 0; i < count; ++i) {
    const auto bytes = kept.read(FrameSequence{i}, room);
    ASSERT_TRUE(bytes) << bytes.error().message();
    EXPECT_EQ(std::vector<std::byte>(room.begin(), room.begin() + *bytes), frame(i, 10'000));
  }
}

TEST(KeptFrames, StayInMemoryWhileThereIsRoomAndTouchNoDisk) {
  test_support::TempDirectory disk;
  NullEventSink events;
  KeptFrames kept(options(disk.path(), 1 << 20), events);
  for (std::uint32_t i = 0; i < 20; ++i) {
    ASSERT_TRUE(kept.keep(FrameSequence{i}, frame(i, 10'000)));
  }
  expect_all(kept, 20);
  EXPECT_TRUE(is_empty(disk.path()));
  EXPECT_EQ(kept.spool_bytes(), 0U);
}

TEST(KeptFrames, GoToASpoolBeyondTheMemoryAndAreGoneAtTheEnd) {
  test_support::TempDirectory disk;
  NullEventSink events;
  {
    KeptFrames kept(options(disk.path(), 50'000), events);
    for (std::uint32_t i = 0; i < 20; ++i) {
      ASSERT_TRUE(kept.keep(FrameSequence{i}, frame(i, 10'000)));
    }
    expect_all(kept, 20);
    EXPECT_LE(kept.memory_bytes(), 50'000U);
    EXPECT_GT(kept.spool_bytes(), 100'000U);
    EXPECT_FALSE(is_empty(disk.path()));
  }
  EXPECT_TRUE(is_empty(disk.path()));
}

TEST(KeptFrames, OneThatWasNeverKeptIsAnError) {
  test_support::TempDirectory disk;
  NullEventSink events;
  KeptFrames kept(options(disk.path(), 0), events);
  std::vector<std::byte> room(64 * 1024);
  EXPECT_FALSE(kept.read(FrameSequence{0}, room));
  ASSERT_TRUE(kept.keep(FrameSequence{1}, frame(1, 100)));
  EXPECT_FALSE(kept.read(FrameSequence{0}, room));
  EXPECT_TRUE(kept.read(FrameSequence{1}, room));
}

TEST(KeptFrames, ADirectoryThatIsNotThereIsNamed) {
  NullEventSink events;
  KeptFrames kept(options("/nonexistent/weft", 0), events);
  const Status status = kept.keep(FrameSequence{0}, frame(0, 100));
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message().find("/nonexistent/weft"), std::string::npos);
}

}  // namespace
}  // namespace weft::agent
