// SPDX-License-Identifier: Apache-2.0
// Verdicts of the published reference reader on crafted headers, duplicates apart (cases B-001 to
// B-009, B-089).
#include "codec/safetensors/header.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <string>
#include <vector>

#include "safetensors_text.hpp"

namespace weft::codec {
namespace {

using testing::as_bytes;
using testing::entry;
using testing::read_header;

struct Verdict {
  const char* what;
  std::string text;
  std::uint64_t body_bytes;
  bool accepted;
  const char* detail = "";  // must be part of the error
};

std::string braced(const std::string& inner) { return "{" + inner + "}"; }
std::string one_u8(const std::string& name) { return braced(entry(name, "U8", "4", "0,4")); }
std::string offsets(const std::string& text) { return braced(entry("a", "U8", "4", text)); }
std::string shape(const std::string& text, const std::string& dtype = "U8") {
  return braced(entry("a", dtype, text, "0,0"));
}

std::vector<Verdict> names_and_fields() {
  const std::string a4 = entry("a", "U8", "4", "0,4");
  return {
      {"same name twice, same range (ours: refused)", braced(a4 + "," + a4), 4, false, "twice"},
      {"same name twice, second longer (ours: refused)",
       braced(a4 + "," + entry("a", "U8", "8", "0,8")), 8, false, "twice"},
      {"same name twice, two ranges", braced(a4 + "," + entry("a", "U8", "4", "4,8")), 8, false},
      {"plain and escaped spelling of one name",
       braced(a4 + "," + entry("\\u0061", "U8", "4", "4,8")), 8, false, "twice"},
      {"__metadata__ twice", R"({"__metadata__":{},"__metadata__":{}})", 0, false},
      {"field twice", R"({"a":{"dtype":"U8","dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 4,
       false},
      {"shape twice", R"({"a":{"dtype":"U8","shape":[4],"shape":[4],"data_offsets":[0,4]}})", 4,
       false},
      {"key twice inside __metadata__", R"({"__metadata__":{"k":"1","k":"2"}})", 0, true},
      {"unknown field",
       R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4],"x":[1,{"y":-0.5e3,"z":null}]}})", 4,
       true},
      {"unknown field with a number of no type",
       R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4],"x":123456789012345678901234567890}})",
       4, true},
      {"unknown field that is broken",
       R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4],"x":[1 2]}})", 4, false},
      {"unknown field with a broken word",
       R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4],"x":nul}})", 4, false},
      {"missing shape", R"({"a":{"dtype":"U8","data_offsets":[0,4]}})", 4, false, "shape"},
      {"missing dtype", R"({"a":{"shape":[4],"data_offsets":[0,4]}})", 4, false, "dtype"},
      {"missing offsets", R"({"a":{"dtype":"U8","shape":[4]}})", 4, false, "data_offsets"},
      {"__metadata__ null", R"({"__metadata__":null})", 0, true},
      {"__metadata__ empty", R"({"__metadata__":{}})", 0, true},
      {"__metadata__ with int", R"({"__metadata__":{"k":1}})", 0, false},
      {"__metadata__ nested", R"({"__metadata__":{"k":{}}})", 0, false},
      {"__metadata__ like a tensor", braced(entry("__metadata__", "U8", "4", "0,4")), 4, false},
      {"empty name", one_u8(""), 4, true},
      {"name that looks like a path", one_u8("../../etc/x"), 4, true},
      {"name with escaped NUL", one_u8("a\\u0000b"), 4, true},
      {"lone high surrogate", one_u8("\\ud800"), 4, false},
      {"lone low surrogate", one_u8("\\udc00"), 4, false},
      {"composed and decomposed accent",
       braced(entry("\xC3\xA9", "U8", "2", "0,2") + "," + entry("e\xCC\x81", "U8", "2", "2,4")), 4,
       true},
  };
}

std::vector<Verdict> text_around() {
  return {
      {"byte order mark", "\xEF\xBB\xBF" + one_u8("a"), 4, false},
      {"NUL behind", one_u8("a") + std::string(1, '\0'), 4, false},
      {"second object", one_u8("a") + "{}", 4, false},
      {"comma behind", one_u8("a") + ",", 4, false},
      {"root array", "[]", 0, false},
      {"root string", "\"a\"", 0, false},
      {"empty", "", 0, false},
      {"leading blanks", "   " + one_u8("a"), 4, true},
      {"blanks all around", "\t\n{}\r ", 0, true},
      {"trailing blanks of every kind", "{}\r \t\n", 0, true},
      {"open brace only", "{", 0, false},
      {"not UTF-8", "\xFF", 0, false},
      {"name that is not UTF-8", one_u8("\xC3"), 4, false},
      {"trailing comma in an object", R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4],}})",
       4, false},
      {"control byte in a name", one_u8("a\nb"), 4, false},
  };
}

std::vector<Verdict> numbers() {
  return {
      {"offset 0.0", offsets("0.0,4"), 4, false},
      {"offset 4e0", offsets("0,4e0"), 4, false},
      {"offset -0", offsets("-0,4"), 4, false},
      {"offset -1", offsets("-1,4"), 4, false},
      {"offset as string", offsets("\"0\",4"), 4, false},
      {"offset 00", offsets("00,4"), 4, false},
      {"offset 2^64", offsets("0,18446744073709551616"), 4, false},
      {"offset 2^64-1", offsets("0,18446744073709551615"), 4, false},
      {"three offsets", offsets("0,4,4"), 4, false},
      {"one offset", offsets("4"), 4, false},
      {"shape with -0", shape("-0"), 0, false},
      {"shape with 0.0", shape("0.0"), 0, false},
      {"shape [2^64-1, 0]", shape("18446744073709551615,0"), 0, true},
      {"shape [0, 2^64-1, 2^64-1]", shape("0,18446744073709551615,18446744073709551615"), 0, true},
      {"shape [2^64-1, 2, 0]", shape("18446744073709551615,2,0"), 0, false, "overflow"},
      {"I32 [2, 2^64-2]", shape("2,18446744073709551614", "I32"), 0, false, "overflow"},
      {"I32 [2, 2^63-1]", shape("2,9223372036854775807", "I32"), 0, false, "overflow"},
  };
}

std::vector<Verdict> ranges() {
  const auto two = [](const std::string& first, const std::string& second) {
    return braced(entry("a", "U8", "4", first) + "," + entry("b", "U8", "4", second));
  };
  return {
      {"end before begin", offsets("4,0"), 4, false, "offset"},
      {"hole at the start", offsets("2,6"), 6, false, "offset"},
      {"hole in the middle", two("0,4", "6,10"), 10, false, "offset"},
      {"overlap", two("0,4", "2,6"), 6, false, "offset"},
      {"identical alias", two("0,4", "0,4"), 4, false, "offset"},
      {"one byte too many", one_u8("a"), 5, false, "trailing"},
      {"one byte too few", one_u8("a"), 3, false, "truncated"},
      {"header order differs from offset order", two("4,8", "0,4"), 8, true},
      {"zero-size tensor in the middle",
       braced(entry("a", "U8", "4", "0,4") + "," + entry("z", "U8", "0", "4,4") + "," +
              entry("b", "U8", "4", "4,8")),
       8, true},
      {"two zero-size tensors at 0",
       braced(entry("a", "I32", "2,0", "0,0") + "," + entry("b", "I32", "2,0", "0,0")), 0, true},
      {"zero-size tensor past the end",
       braced(entry("a", "U8", "4", "0,4") + "," + entry("z", "U8", "0", "8,8")), 4, false},
      {"range shorter than type and shape", braced(entry("a", "I32", "2,2", "0,4")), 4, false,
       "need 16"},
  };
}

std::vector<Verdict> dtypes() {
  const auto of = [](const std::string& dtype, const std::string& dims, int bytes) {
    return braced(entry("a", dtype, dims, "0," + std::to_string(bytes)));
  };
  std::string ones = "1";
  for (int i = 1; i < 1000; ++i) ones += ",1";
  return {
      {"rank 0 with 8 bytes", of("I64", "", 8), 8, true},
      {"rank 0 with 0 bytes", of("I64", "", 0), 0, false},
      {"rank 1000 of ones", of("U8", ones, 1), 1, true},
      {"BF16 at an odd offset",
       braced(entry("a", "U8", "1", "0,1") + "," + entry("b", "BF16", "2", "1,5")), 5, true},
      {"bf16", of("bf16", "2", 4), 4, false, "bf16"},
      {"F128", of("F128", "1", 16), 16, false, "F128"},
      {"BOOL", of("BOOL", "4", 4), 4, true},
      {"F8_E8M0", of("F8_E8M0", "4", 4), 4, true},
      {"F8_E4M3FNUZ", of("F8_E4M3FNUZ", "4", 4), 4, true},
      {"F8_E5M2FNUZ", of("F8_E5M2FNUZ", "4", 4), 4, true},
      {"C64", of("C64", "4", 32), 32, true},
      {"U16", of("U16", "4", 8), 8, true},
      {"U64", of("U64", "4", 32), 32, true},
      {"F4 [4]", of("F4", "4", 2), 2, true},
      {"F6 [4]", of("F6_E2M3", "4", 3), 3, true},
      {"F6 [8]", of("F6_E3M2", "8", 6), 6, true},
      {"F4 [3]", of("F4", "3", 2), 2, false, "misaligned"},
      {"F6 [2]", of("F6_E2M3", "2", 2), 2, false, "misaligned"},
      {"F4 [1,2] over two bytes", of("F4", "1,2", 2), 2, false},
  };
}

class HeaderVerdicts : public ::testing::TestWithParam<Verdict> {};

TEST_P(HeaderVerdicts, EqualTheReference) {
  const Verdict& row = GetParam();
  const auto header = read_header(row.text, row.body_bytes);
  ASSERT_EQ(header.has_value(), row.accepted)
      << row.what << ": " << (header ? std::string("accepted") : header.error().message());
  if (header) return;
  EXPECT_EQ(header.error().code, ErrorCode::kFormat) << row.what;
  EXPECT_NE(header.error().detail.find(row.detail), std::string::npos)
      << row.what << ": " << header.error().detail;
}

INSTANTIATE_TEST_SUITE_P(NamesAndFields, HeaderVerdicts, ::testing::ValuesIn(names_and_fields()));
INSTANTIATE_TEST_SUITE_P(TextAround, HeaderVerdicts, ::testing::ValuesIn(text_around()));
INSTANTIATE_TEST_SUITE_P(Numbers, HeaderVerdicts, ::testing::ValuesIn(numbers()));
INSTANTIATE_TEST_SUITE_P(Ranges, HeaderVerdicts, ::testing::ValuesIn(ranges()));
INSTANTIATE_TEST_SUITE_P(DTypes, HeaderVerdicts, ::testing::ValuesIn(dtypes()));

TEST(HeaderLength, RefusesEveryLieAboutTheFile) {
  const auto parse = [](std::uint64_t length, std::uint64_t file_bytes) {
    std::byte first[8];
    wire::store_le(first, length);
    const std::size_t have = std::min<std::uint64_t>(8, file_bytes);
    return parse_header_length(std::span<const std::byte>(first, have), file_bytes, "model");
  };
  const std::uint64_t kTop = ~std::uint64_t{0};
  for (const auto& [length, file_bytes] :
       std::vector<std::pair<std::uint64_t, std::uint64_t>>{{0, 0},
                                                            {0, 7},
                                                            {1, 8},
                                                            {1000, 100},
                                                            {100'000'001, 200'000'000},
                                                            {1ULL << 63, 100},
                                                            {kTop, 100},
                                                            {kTop - 4, 100},
                                                            {100'000'000, 100}}) {
    const auto parsed = parse(length, file_bytes);
    ASSERT_FALSE(parsed) << length << " in " << file_bytes;
    EXPECT_EQ(parsed.error().code, ErrorCode::kFormat);
    EXPECT_NE(parsed.error().detail.find("model"), std::string::npos);
  }
  EXPECT_TRUE(parse(0, 8));
  EXPECT_TRUE(parse(100'000'000, 100'000'008));
}

TEST(Header, AcceptsTheLargestHeaderOfMostlyBlanks) {
  std::string text = one_u8("a");
  text.resize(100'000'000, ' ');
  const auto header = read_header(text, 4);
  ASSERT_TRUE(header) << header.error().message();
  EXPECT_EQ(header->data_start, 100'000'008U);
}

TEST(Header, PutsTensorsInOffsetOrder) {
  const auto header =
      read_header(braced(entry("b", "BF16", "2", "4,8") + "," + entry("a", "U8", "4", "0,4")), 8);
  ASSERT_TRUE(header);
  ASSERT_EQ(header->tensors.size(), 2U);
  EXPECT_EQ(header->tensors[0].name, "a");
  EXPECT_EQ(header->tensors[1].begin, 4U);
  EXPECT_EQ(header->tensors[1].dtype, DType::kBF16);
  EXPECT_EQ(header->tensors[1].shape, std::vector<std::uint64_t>{2});
}

TEST(Header, KnowsAllTwentyTwoTypes) {
  for (const auto& row : internal::kDTypes) {
    const std::string dims = row.bits < 8 ? "8" : "2";
    const std::uint64_t bytes = (row.bits < 8 ? 8 : 2) * std::uint64_t{row.bits} / 8;
    const auto header = read_header(
        braced(entry("a", std::string(row.name), dims, "0," + std::to_string(bytes))), bytes);
    ASSERT_TRUE(header) << row.name;
    EXPECT_EQ(header->tensors[0].dtype, row.dtype);
  }
}

TEST(Header, RefusesDeepNestingOfAnUnknownField) {
  const auto nested = [](int depth) {
    return R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0],"x":)" +
           std::string(static_cast<std::size_t>(depth), '[') +
           std::string(static_cast<std::size_t>(depth), ']') + "}}";
  };
  EXPECT_TRUE(read_header(nested(20)));
  EXPECT_FALSE(read_header(nested(200)));
  EXPECT_FALSE(read_header(nested(100'000)));
}

TEST(Header, RefusesANameBeyondItsLimit) {
  const auto header = read_header(braced(entry(std::string(50'000'000, 'n'), "U8", "0", "0,0")));
  ASSERT_FALSE(header);
  EXPECT_EQ(header.error().code, ErrorCode::kResourceLimit);
  EXPECT_LT(header.error().detail.size(), 1000U);
}

// Case B-089: a legal header of a million entries, then one whose ranges all overlap.
// CPU seconds of this process (the machine may be busy) to refuse a header of so many entries.
double seconds_to_refuse(int entries, bool overlapping) {
  std::string text = "{";
  for (int i = 0; i < entries; ++i) {
    if (i > 0) text += ",";
    text +=
        entry("t." + std::to_string(i), "U8", overlapping ? "1" : "0", overlapping ? "0,1" : "0,0");
  }
  text += "}";
  const std::clock_t start = std::clock();
  const auto header = read_header(text, 1);
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  EXPECT_FALSE(header);
  if (!header) {
    EXPECT_NE(header.error().detail.find(overlapping ? "overlaps" : "trailing"), std::string::npos);
  }
  return seconds;
}

TEST(Header, ReadsManyEntriesInLinearTime) {
  constexpr int kEntries = 300'000;
  for (const bool overlapping : {false, true}) {
    const double tenth = seconds_to_refuse(kEntries / 10, overlapping);
    const double all = seconds_to_refuse(kEntries, overlapping);
    // Ten times the entries; a pass over all pairs would take a hundred times as long.
    EXPECT_LT(all, 50 * (tenth + 0.01)) << tenth << " s for a tenth";
  }
}

}  // namespace
}  // namespace weft::codec
