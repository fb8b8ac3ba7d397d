// SPDX-License-Identifier: Apache-2.0
#include "codec/safetensors/json_walk.hpp"

namespace weft::codec::internal {

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::string_view without_trailing_blanks(std::string_view text) {
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\n' ||
                           text.back() == '\r')) {
    text.remove_suffix(1);
  }
  return text;
}

std::size_t digits_from(std::string_view text, std::size_t at) {
  std::size_t count = 0;
  while (at + count < text.size() && is_digit(text[at + count])) ++count;
  return count;
}

// The number grammar of JSON, whatever the value's size.
bool is_number(std::string_view text) {
  std::size_t at = text.starts_with('-') ? 1 : 0;
  const std::size_t whole = digits_from(text, at);
  if (whole == 0 || (whole > 1 && text[at] == '0')) return false;
  at += whole;
  if (at < text.size() && text[at] == '.') {
    const std::size_t fraction = digits_from(text, at + 1);
    if (fraction == 0) return false;
    at += 1 + fraction;
  }
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    ++at;
    if (at < text.size() && (text[at] == '+' || text[at] == '-')) ++at;
    const std::size_t exponent = digits_from(text, at);
    if (exponent == 0) return false;
    at += exponent;
  }
  return at == text.size();
}

simdjson::error_code walk_array(ondemand::array array, std::uint32_t depth_left) {
  for (auto each : array) {
    ondemand::value value;
    if (const auto code = std::move(each).get(value)) return code;
    if (const auto code = walk_value(value, depth_left)) return code;
  }
  return simdjson::SUCCESS;
}

simdjson::error_code walk_object(ondemand::object object, std::uint32_t depth_left) {
  for (auto each : object) {
    ondemand::field field;
    if (const auto code = std::move(each).get(field)) return code;
    std::string_view name;
    if (const auto code = field.unescaped_key().get(name)) return code;
    if (const auto code = walk_value(field.value(), depth_left)) return code;
  }
  return simdjson::SUCCESS;
}

// A number, true, false or null. Only the spelling is checked: the enclosing loop skips the token,
// and a number may be one that no type of ours holds.
simdjson::error_code walk_scalar(ondemand::value value) {
  const std::string_view token = without_trailing_blanks(value.raw_json_token());
  if (token == "true" || token == "false" || token == "null") return simdjson::SUCCESS;
  return is_number(token) ? simdjson::SUCCESS : simdjson::NUMBER_ERROR;
}

}  // namespace

std::string shown_name(std::string_view text) {
  constexpr std::size_t kShownMax = 120;
  constexpr char kDigits[] = "0123456789abcdef";
  std::string shown = "\"";
  for (const char c : text.substr(0, kShownMax)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7F && c != '"' && c != '\\') {
      shown += c;
    } else {
      shown += "\\x";
      shown += kDigits[byte >> 4];
      shown += kDigits[byte & 0xF];
    }
  }
  return shown + (text.size() > kShownMax ? "...\"" : "\"");
}

// NOLINTNEXTLINE(misc-no-recursion): depth_left bounds it.
simdjson::error_code walk_value(ondemand::value value, std::uint32_t depth_left) {
  if (depth_left == 0) return simdjson::DEPTH_ERROR;
  ondemand::json_type type{};
  if (const auto code = value.type().get(type)) return code;
  switch (type) {
    case ondemand::json_type::array: {
      ondemand::array array;
      if (const auto code = value.get_array().get(array)) return code;
      return walk_array(array, depth_left - 1);
    }
    case ondemand::json_type::object: {
      ondemand::object object;
      if (const auto code = value.get_object().get(object)) return code;
      return walk_object(object, depth_left - 1);
    }
    case ondemand::json_type::string: {
      std::string_view unused;
      return value.get_string().get(unused);
    }
    default:
      return walk_scalar(value);
  }
}

simdjson::error_code read_unsigned(ondemand::value value, std::uint64_t& number) {
  const std::string_view token = without_trailing_blanks(value.raw_json_token());
  if (!is_number(token) || digits_from(token, 0) != token.size()) return simdjson::NUMBER_ERROR;
  return value.get_uint64().get(number);
}

}  // namespace weft::codec::internal
