// SPDX-License-Identifier: Apache-2.0
#include "agent/lib/units.hpp"

#include <gtest/gtest.h>

#include "weft/base/units.hpp"

namespace weft::agent {
namespace {

using std::chrono::milliseconds;

TEST(ParseBytes, AcceptedSpellingsPrintAndParseBack) {
  struct Case {
    const char* text;
    std::uint64_t bytes;
  };
  for (const Case& c : {Case{"0", 0},
                        {"1", 1},
                        {"512B", 512},
                        {"4KiB", 4096},
                        {"64MiB", 64 * kMiB},
                        {"4GiB", 4 * kGiB},
                        {"2TiB", 2048 * kGiB},
                        {"4kB", 4000},
                        {"4MB", 4'000'000},
                        {"4GB", 4'000'000'000},
                        {"1TB", 1'000'000'000'000},
                        {"18446744073709551615", ~std::uint64_t{0}}}) {
    const auto parsed = parse_bytes(c.text);
    ASSERT_TRUE(parsed) << c.text;
    EXPECT_EQ(*parsed, c.bytes) << c.text;
    EXPECT_EQ(*parse_bytes(format_bytes(*parsed)), c.bytes) << format_bytes(*parsed);
  }
}

TEST(ParseBytes, AmbiguousAndBrokenSpellingsAreConfigErrors) {
  for (const char* text : {"",
                           " ",
                           "4G",
                           "4g",
                           "4K",
                           "4k",
                           "4M",
                           "4Gi",
                           "4gib",
                           "4 GiB",
                           "4GiB ",
                           " 4GiB",
                           "-1",
                           "+1",
                           "1.5GiB",
                           "1e3",
                           "0x10",
                           "GiB",
                           "4GiBs",
                           "4KB",
                           "18446744073709551616",
                           "16777216TiB",
                           "auto",
                           "1\n"}) {
    const auto parsed = parse_bytes(text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_EQ(parsed.error().code, ErrorCode::kConfig);
    EXPECT_NE(parsed.error().detail.find("'" + std::string(text) + "'"), std::string::npos);
  }
}

TEST(ParseDuration, AcceptedSpellingsPrintAndParseBack) {
  struct Case {
    const char* text;
    milliseconds duration;
  };
  for (const Case& c : {Case{"0ms", milliseconds(0)},
                        {"250ms", milliseconds(250)},
                        {"3s", milliseconds(3000)},
                        {"90s", milliseconds(90'000)},
                        {"10min", milliseconds(600'000)},
                        {"2h", milliseconds(7'200'000)}}) {
    const auto parsed = parse_duration(c.text);
    ASSERT_TRUE(parsed) << c.text;
    EXPECT_EQ(*parsed, c.duration) << c.text;
    EXPECT_EQ(*parse_duration(format_duration(*parsed)), c.duration);
  }
}

TEST(ParseDuration, OtherSpellingsAreConfigErrors) {
  for (const char* text : {"", "0", "3", "3 s", "3s ", "-3s", "1.5s", "3m", "3sec", "3S", "3us",
                           "1h30min", "99999999999h", "8785h", "forever"}) {
    const auto parsed = parse_duration(text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_EQ(parsed.error().code, ErrorCode::kConfig);
  }
}

TEST(ParseBitRate, NeedsAUnitAndIsNotZero) {
  EXPECT_EQ(*parse_bit_rate("200Mbit"), 200e6);
  EXPECT_EQ(*parse_bit_rate("25Gbit"), 25e9);
  for (const char* text : {"", "200", "0Mbit", "200MB", "200mbit", "-1Mbit"}) {
    EXPECT_FALSE(parse_bit_rate(text)) << text;
  }
}

TEST(HumanBytes, RoundsToOneDigit) {
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(1023), "1023 B");
  EXPECT_EQ(human_bytes(1536), "1.5 KiB");
  EXPECT_EQ(human_bytes(~std::uint64_t{0}), "16.0 EiB");
}

}  // namespace
}  // namespace weft::agent
