// SPDX-License-Identifier: Apache-2.0
#include "agent/lib/units.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <limits>
#include <optional>
#include <span>

#include "weft/base/units.hpp"

namespace weft::agent {
namespace {

struct Unit {
  std::string_view name;
  std::uint64_t factor;
};

// The first of equal factors is the one that is printed. Binary units first: they print sizes.
constexpr std::array kByteUnits = {Unit{"TiB", kGiB * 1024},
                                   Unit{"GiB", kGiB},
                                   Unit{"MiB", kMiB},
                                   Unit{"KiB", kKiB},
                                   Unit{"TB", 1'000'000'000'000},
                                   Unit{"GB", 1'000'000'000},
                                   Unit{"MB", 1'000'000},
                                   Unit{"kB", 1000},
                                   Unit{"B", 1}};
constexpr std::array kDurationUnits = {Unit{"h", 3'600'000}, Unit{"min", 60'000}, Unit{"s", 1000},
                                       Unit{"ms", 1}};
constexpr std::array kBitRateUnits = {Unit{"Gbit", 1'000'000'000}, Unit{"Mbit", 1'000'000},
                                      Unit{"kbit", 1000}, Unit{"bit", 1}};

// Digits, then exactly one of the units (or none when `bare` gives its factor).
std::optional<std::uint64_t> parse(std::string_view text, std::span<const Unit> units,
                                   std::optional<std::uint64_t> bare) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || text.empty() || text[0] < '0' || text[0] > '9') return std::nullopt;
  const std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
  std::uint64_t factor = 0;
  if (unit.empty()) {
    factor = bare.value_or(0);
  } else {
    const auto found =
        std::find_if(units.begin(), units.end(), [&](const Unit& u) { return u.name == unit; });
    if (found != units.end()) factor = found->factor;
  }
  if (factor == 0 || number > std::numeric_limits<std::uint64_t>::max() / factor) {
    return std::nullopt;
  }
  return number * factor;
}

Error wrong(std::string_view text, const char* expected) {
  return make_error(ErrorCode::kConfig, Stage::kConfig,
                    "'" + std::string(text) + "' is not " + expected);
}

std::string format(std::uint64_t value, std::span<const Unit> units) {
  for (const Unit& unit : units) {
    if (value % unit.factor == 0 && value >= unit.factor) {
      return std::to_string(value / unit.factor) + std::string(unit.name);
    }
  }
  return "0" + std::string(units.back().name);
}

}  // namespace

Result<std::uint64_t> parse_bytes(std::string_view text) {
  const auto value = parse(text, kByteUnits, 1);
  if (!value) {
    return wrong(text,
                 "a size: a whole number and B, KiB, MiB, GiB, TiB (powers of two) or kB, MB, GB, "
                 "TB (powers of ten), such as 64MiB");
  }
  return *value;
}

Result<std::chrono::milliseconds> parse_duration(std::string_view text) {
  const auto value = parse(text, kDurationUnits, std::nullopt);
  constexpr std::uint64_t kYear = 366ULL * 24 * 3'600'000;
  if (!value || *value > kYear) {
    return wrong(text,
                 "a duration: a whole number and ms, s, min or h, at most a year, such as 250ms");
  }
  return std::chrono::milliseconds(*value);
}

Result<double> parse_bit_rate(std::string_view text) {
  const auto value = parse(text, kBitRateUnits, std::nullopt);
  if (!value || *value == 0) {
    return wrong(text, "a rate: a whole number and bit, kbit, Mbit or Gbit, such as 200Mbit");
  }
  return static_cast<double>(*value);
}

std::string format_bytes(std::uint64_t bytes) { return format(bytes, kByteUnits); }

std::string format_duration(std::chrono::milliseconds duration) {
  return format(static_cast<std::uint64_t>(duration.count()), kDurationUnits);
}

std::string human_bytes(std::uint64_t bytes) {
  constexpr std::array kNames = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < kNames.size()) {
    value /= 1024;
    ++unit;
  }
  char text[32];
  std::snprintf(text, sizeof(text), unit == 0 ? "%.0f %s" : "%.1f %s", value, kNames[unit]);
  return text;
}

}  // namespace weft::agent
