// SPDX-License-Identifier: Apache-2.0
#include "agent/lib/json_writer.hpp"

#include <charconv>
#include <cmath>
#include <utility>

#include "transport/control/message_codec.hpp"
#include "weft/base/assert.hpp"

namespace weft::agent {
namespace {

void append_escaped(std::string& to, std::string_view text) {
  constexpr char kDigits[] = "0123456789abcdef";
  to += '"';
  for (const char c : text) {
    switch (c) {
      case '"':
        to += "\\\"";
        break;
      case '\\':
        to += "\\\\";
        break;
      case '\n':
        to += "\\n";
        break;
      case '\t':
        to += "\\t";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
          to += "\\u00";
          to += kDigits[static_cast<unsigned char>(c) >> 4];
          to += kDigits[static_cast<unsigned char>(c) & 0xF];
        } else {
          to += c;
        }
    }
  }
  to += '"';
}

}  // namespace

void JsonWriter::separate() {
  if (std::exchange(after_key_, false) || filled_.empty()) return;
  if (filled_.back()) text_ += ',';
  filled_.back() = true;
}

JsonWriter& JsonWriter::raw(std::string_view text) {
  separate();
  text_ += text;
  return *this;
}

JsonWriter& JsonWriter::begin_object() {
  raw("{");
  filled_.push_back(false);
  return *this;
}

JsonWriter& JsonWriter::end_object() {
  WEFT_ASSERT(!filled_.empty());
  filled_.pop_back();
  text_ += '}';
  return *this;
}

JsonWriter& JsonWriter::begin_array() {
  raw("[");
  filled_.push_back(false);
  return *this;
}

JsonWriter& JsonWriter::end_array() {
  WEFT_ASSERT(!filled_.empty());
  filled_.pop_back();
  text_ += ']';
  return *this;
}

JsonWriter& JsonWriter::key(std::string_view name) {
  separate();
  append_escaped(text_, name);
  text_ += ':';
  after_key_ = true;
  return *this;
}

JsonWriter& JsonWriter::value(std::string_view text) {
  separate();
  append_escaped(text_, transport::clean_text(text, text.size()));
  return *this;
}

JsonWriter& JsonWriter::value(bool flag) { return raw(flag ? "true" : "false"); }

JsonWriter& JsonWriter::value(double number) {
  if (!std::isfinite(number)) return null();
  char text[32];
  const auto [end, error] = std::to_chars(text, text + sizeof(text), number);
  WEFT_ASSERT(error == std::errc{});
  return raw(std::string_view(text, static_cast<std::size_t>(end - text)));
}

JsonWriter& JsonWriter::null() { return raw("null"); }

std::string JsonWriter::take() {
  WEFT_ASSERT(filled_.empty());
  return std::exchange(text_, std::string());
}

}  // namespace weft::agent
