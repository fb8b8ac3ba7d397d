// SPDX-License-Identifier: Apache-2.0
// Strict reading with simdjson's on-demand parser, which by itself looks at neither skipped values
// nor the end of the text: every value is walked here, and the end is checked.
#pragma once

#include <simdjson.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "weft/base/result.hpp"

namespace weft::codec::internal {

namespace ondemand = simdjson::ondemand;

// `text` for an error message: control and non-ASCII bytes escaped, at most 120 bytes.
std::string shown_name(std::string_view text);

// Consumes any value and checks all of it, to a bounded depth.
simdjson::error_code walk_value(ondemand::value value, std::uint32_t depth_left);

// A non-negative integer in plain digits below 2^64.
simdjson::error_code read_unsigned(ondemand::value value, std::uint64_t& number);

// Parses `text` (copied, as simdjson needs padding) whose root must be an object, calls
// on_field(name, value) for each field, and checks that nothing but blanks follows. on_field
// returns a Status and must consume the value.
template <typename OnField>
Status for_each_root_field(std::span<const std::byte> text, const std::string& where,
                           OnField&& on_field) {
  const auto broken = [&where](simdjson::error_code code) {
    return failure(ErrorCode::kFormat, Stage::kOpen,
                   where + ": not JSON: " + simdjson::error_message(code));
  };
  const simdjson::padded_string padded(reinterpret_cast<const char*>(text.data()), text.size());
  ondemand::parser parser(text.size() + 1);
  ondemand::document document;
  if (const auto code = parser.iterate(padded).get(document)) return broken(code);
  ondemand::object root;
  if (const auto code = document.get_object().get(root)) return broken(code);
  for (auto each : root) {
    ondemand::field field;
    if (const auto code = std::move(each).get(field)) return broken(code);
    std::string_view name;
    if (const auto code = field.unescaped_key().get(name)) return broken(code);
    WEFT_TRY_STATUS(on_field(name, field.value()));
  }
  const char* location = nullptr;  // of the next token; there must be none
  if (document.current_location().get(location) != simdjson::OUT_OF_BOUNDS) {
    return broken(simdjson::TRAILING_CONTENT);
  }
  return ok();
}

}  // namespace weft::codec::internal
