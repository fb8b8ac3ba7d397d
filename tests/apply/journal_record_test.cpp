// SPDX-License-Identifier: Apache-2.0
#include "apply/journal/journal_record.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <random>

#include "weft/wire/byte_io.hpp"
#include "weft/wire/digest.hpp"

namespace weft::apply {
namespace {

constexpr std::array<std::uint8_t, 4> kElementSizes = {1, 2, 4, 8};

struct Change {
  std::vector<std::byte> old_bytes;
  std::vector<std::byte> new_bytes;
  std::vector<std::uint32_t> changed;
  std::vector<std::byte> record;
};

Change make_change(std::uint32_t element_count, std::uint8_t element_bytes, double density,
                   std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Change change;
  change.old_bytes.resize(std::size_t{element_count} * element_bytes);
  for (std::byte& byte : change.old_bytes) byte = static_cast<std::byte>(random());
  change.new_bytes = change.old_bytes;
  for (std::uint32_t i = 0; i < element_count; ++i) {
    if (std::generate_canonical<double, 30>(random) >= density) continue;
    change.changed.push_back(i);
    change.new_bytes[std::size_t{i} * element_bytes] ^= std::byte{1};
  }
  if (change.changed.empty()) {
    change.changed.push_back(element_count - 1);
    change.new_bytes[std::size_t{element_count - 1} * element_bytes] ^= std::byte{1};
  }
  encode_record(TensorIndex{3}, 1000, element_bytes, change.changed, change.new_bytes,
                change.record);
  return change;
}

TEST(JournalRecord, AppliesToTheNewBytesForEveryDensityAndElementSize) {
  for (const std::uint8_t element_bytes : kElementSizes) {
    for (const double density : {0.0, 0.0005, 0.003, 0.03, 0.2, 0.6, 1.0}) {
      const std::uint32_t count = 60'000 / element_bytes + 3;
      Change change = make_change(count, element_bytes, density, 7);
      ASSERT_TRUE(check_record(change.record)) << int{element_bytes} << " " << density;
      auto bytes = change.old_bytes;
      apply_record({change.record, 0, 0}, bytes);
      ASSERT_EQ(bytes, change.new_bytes) << int{element_bytes} << " " << density;
      // Absolute values: a second time changes nothing.
      apply_record({change.record, 0, 0}, bytes);
      ASSERT_EQ(bytes, change.new_bytes);
      EXPECT_LE(change.record.size(), kRecordHeaderBytes + change.new_bytes.size());
    }
  }
}

// Two ways to the same elements: listed, and scattered over a window with a bit per element.
TEST(JournalRecord, ListsWhatItScattersForEveryDensityAndElementSize) {
  for (const std::uint8_t element_bytes : kElementSizes) {
    for (const double density : {0.0, 0.0005, 0.03, 0.2, 0.6, 1.0}) {
      const std::uint32_t count = 60'000 / element_bytes + 3;
      const Change change = make_change(count, element_bytes, density, 5);
      const auto header = load_record_header(change.record);
      ASSERT_TRUE(header);
      std::vector<std::uint64_t> offsets(header->changed_count);
      std::vector<std::byte> values(offsets.size() * element_bytes);
      list_record(change.record, offsets, values);
      std::vector<std::uint64_t> touched((count + 63) / 64);
      std::vector<std::byte> window(change.old_bytes);
      scatter_record(change.record, {1000, count, touched, window});
      ASSERT_EQ(window, change.new_bytes);
      auto listed = change.old_bytes;
      std::vector<std::uint64_t> named((count + 63) / 64);
      for (std::size_t i = 0; i < offsets.size(); ++i) {
        const std::uint64_t place = offsets[i] - 1000;
        ASSERT_LT(place, count);
        named[place / 64] |= std::uint64_t{1} << (place % 64);
        std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(i * element_bytes), element_bytes,
                    listed.begin() + static_cast<std::ptrdiff_t>(place * element_bytes));
      }
      EXPECT_EQ(listed, change.new_bytes) << int{element_bytes} << " " << density;
      EXPECT_EQ(named, touched) << int{element_bytes} << " " << density;
      EXPECT_TRUE(std::is_sorted(offsets.begin(), offsets.end()));
    }
  }
}

TEST(JournalRecord, IsAboutThreeBytesPerChangeAtThreePercent) {
  const Change change = make_change(262'144, 2, 0.03, 1);
  const double per_change =
      static_cast<double>(change.record.size()) / static_cast<double>(change.changed.size());
  EXPECT_LT(per_change, 3.1);
  EXPECT_GT(per_change, 2.9);
}

// B-058, B-060: blocks cut records, and elements, anywhere; each byte is written by its own block.
TEST(JournalRecord, ManyBlocksOfAnySizeGiveTheSameAsOne) {
  for (const std::uint8_t element_bytes : kElementSizes) {
    for (const double density : {0.004, 0.05, 0.3, 1.0}) {
      const Change change = make_change(5'000, element_bytes, density, 11);
      for (const std::uint64_t block_bytes : {17U, 64U, 1000U, 4096U}) {
        constexpr std::uint64_t kRecordBegin = 13;  // no tensor need begin at an aligned place
        const auto around = [&](const std::vector<std::byte>& bytes) {
          std::vector<std::byte> file(kRecordBegin, std::byte{0x5A});
          file.insert(file.end(), bytes.begin(), bytes.end());
          file.resize(file.size() + 29, std::byte{0x5A});
          return file;
        };
        auto file = around(change.old_bytes);
        const auto expected = around(change.new_bytes);
        for (std::uint64_t begin = 0; begin < file.size(); begin += block_bytes) {
          const auto bytes = std::min<std::uint64_t>(block_bytes, file.size() - begin);
          apply_record({change.record, kRecordBegin, begin}, std::span(file).subspan(begin, bytes));
        }
        ASSERT_EQ(file, expected) << int{element_bytes} << " " << density << " " << block_bytes;
      }
    }
  }
}

TEST(JournalRecord, MarksEveryPageThatChangesAndNoPageBesideTheRecord) {
  for (const double density : {0.0, 0.0002, 0.02, 0.5}) {
    const Change change = make_change(40'000, 2, density, 5);
    constexpr std::uint64_t kRecordBegin = 5'001;
    constexpr std::uint64_t kBlockBegin = 4'096;
    std::vector<std::uint8_t> touched(24);
    mark_record_pages({change.record, kRecordBegin, kBlockBegin}, 4096, touched);
    for (const std::uint32_t offset : change.changed) {
      for (const std::uint64_t byte : {0U, 1U}) {
        const std::uint64_t page = (kRecordBegin + offset * 2ULL + byte - kBlockBegin) / 4096;
        if (page < touched.size()) {
          EXPECT_EQ(touched[page], 1);
        }
      }
    }
    for (std::size_t page = 21; page < touched.size(); ++page) EXPECT_EQ(touched[page], 0);
    if (density < 0.001) {
      EXPECT_LT(std::accumulate(touched.begin(), touched.end(), 0), 12);
    }
  }
}

TEST(JournalRecord, EveryChangedByteIsFound) {
  const Change change = make_change(500, 2, 0.05, 9);
  for (std::size_t at = 0; at < change.record.size(); ++at) {
    auto bytes = change.record;
    bytes[at] ^= std::byte{4};
    const Status status = check_record(bytes);
    ASSERT_FALSE(status) << at;
    EXPECT_EQ(status.error().code, ErrorCode::kNeedsReseed);
  }
  for (std::size_t length = 0; length < change.record.size(); ++length) {
    ASSERT_FALSE(check_record(std::span(change.record).first(length))) << length;
  }
}

// The record with its check made right again.
std::vector<std::byte> resealed(std::vector<std::byte> record) {
  std::vector<std::byte> checked(record.begin(), record.begin() + 32);
  checked.insert(checked.end(), record.begin() + kRecordHeaderBytes, record.end());
  wire::store_le(record.data() + 32, wire::digest64(checked));
  return record;
}

TEST(JournalRecord, PositionsThatLieAreFoundBehindARightCheck) {
  for (const double density : {0.002, 0.05, 0.4}) {
    const Change change = make_change(5'003, 2, density, 3);
    const auto header = load_record_header(change.record);
    ASSERT_TRUE(header);
    ASSERT_TRUE(check_record(resealed(change.record)));
    const std::size_t positions = header->payload_bytes - header->changed_count * 2ULL;
    ASSERT_GT(positions, 9U);
    // One gap or bit more or less anywhere: too far, too few, too many, or elsewhere but sound.
    std::size_t refused = 0;
    for (std::size_t i = 0; i < positions; ++i) {
      for (const int value : {0, 1, 254, 255}) {
        auto bytes = change.record;
        if (bytes[kRecordHeaderBytes + i] == static_cast<std::byte>(value)) continue;
        bytes[kRecordHeaderBytes + i] = static_cast<std::byte>(value);
        bytes = resealed(std::move(bytes));
        if (!check_record(bytes)) {
          ++refused;
          continue;
        }
        // Accepted: every position is inside, in every window.
        std::vector<std::uint64_t> offsets(header->changed_count);
        std::vector<std::byte> values(offsets.size() * 2);
        list_record(bytes, offsets, values);
        EXPECT_TRUE(std::is_sorted(offsets.begin(), offsets.end()));
        ASSERT_LT(offsets.back(), 1000U + 5'003U);
        std::vector<std::byte> room(5'003 * 2);
        apply_record({bytes, 0, 0}, room);
      }
    }
    EXPECT_GT(refused, positions / 2) << density;
    // One value less than positions, and one more.
    for (const int more : {-1, 1}) {
      auto bytes = change.record;
      wire::store_le(bytes.data() + 20,
                     static_cast<std::uint32_t>(static_cast<int>(header->changed_count) + more));
      EXPECT_FALSE(check_record(resealed(std::move(bytes)))) << more;
    }
    // An element fewer than the last position needs.
    auto bytes = change.record;
    wire::store_le(bytes.data() + 16, change.changed.back());
    EXPECT_FALSE(check_record(resealed(std::move(bytes))));
  }
}

}  // namespace
}  // namespace weft::apply
