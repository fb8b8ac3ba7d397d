// SPDX-License-Identifier: Apache-2.0
// The one parser for sizes and the one for durations, of configuration files and command lines.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "weft/base/result.hpp"

namespace weft::agent {

// A whole number and a unit: B, KiB, MiB, GiB, TiB (powers of two) or kB, MB, GB, TB (powers of
// ten); a bare number is bytes. No spaces, signs, fractions or other spellings: `4G` and `4g` are
// refused because people read them in two ways. Errors: kConfig.
Result<std::uint64_t> parse_bytes(std::string_view text);

// A whole number and a unit: ms, s, min, h. The unit is required. Errors: kConfig.
Result<std::chrono::milliseconds> parse_duration(std::string_view text);

// Bits per second: bit, kbit, Mbit, Gbit (powers of ten). Errors: kConfig.
Result<double> parse_bit_rate(std::string_view text);

// Each parses to the same value again: the largest unit that divides it.
std::string format_bytes(std::uint64_t bytes);
std::string format_duration(std::chrono::milliseconds duration);

// For people: "12.3 MiB".
std::string human_bytes(std::uint64_t bytes);

}  // namespace weft::agent
