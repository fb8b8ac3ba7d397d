// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace weft::agent {

// Writes one JSON value, compact, keys in the order of the calls. Text that is no UTF-8 is written
// with '?' in place of the wrong bytes. Numbers that JSON cannot hold (NaN, infinity) become null.
// Invariant: begin_ and end_ calls match, and every member of an object has a key; the destructor's
//            caller has taken a whole value.
// Threads:   one at a time.
class JsonWriter {
 public:
  JsonWriter& begin_object();
  JsonWriter& end_object();
  JsonWriter& begin_array();
  JsonWriter& end_array();
  JsonWriter& key(std::string_view name);
  JsonWriter& value(std::string_view text);
  JsonWriter& value(const char* text) { return value(std::string_view(text)); }
  JsonWriter& value(const std::string& text) { return value(std::string_view(text)); }
  JsonWriter& value(bool flag);
  JsonWriter& value(double number);
  template <std::integral Number>
  JsonWriter& value(Number number) {
    return raw(std::to_string(number));
  }
  JsonWriter& null();

  template <typename Value>
  JsonWriter& member(std::string_view name, const Value& member_value) {
    return key(name).value(member_value);
  }

  // The text; the writer is empty afterwards.
  std::string take();

 private:
  JsonWriter& raw(std::string_view text);
  void separate();

  std::string text_;
  std::vector<bool> filled_;  // per open container: has a member already
  bool after_key_ = false;
};

}  // namespace weft::agent
