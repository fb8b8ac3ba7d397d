// SPDX-License-Identifier: Apache-2.0
// Builds safetensors headers from text and reads them the way a file is read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "codec/safetensors/header.hpp"
#include "weft/wire/byte_io.hpp"

namespace weft::codec::testing {

inline std::span<const std::byte> as_bytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}

// Length field (of `length` if given, else of the text) and text, then a body of body_bytes: both
// parsers in turn, as a reader of the file would call them.
inline Result<FileHeader> read_header(const std::string& text, std::uint64_t body_bytes,
                                      std::uint64_t length) {
  std::byte first[8];
  wire::store_le(first, length);
  const std::uint64_t file_bytes = 8 + text.size() + body_bytes;
  WEFT_TRY(const std::uint64_t header_bytes, parse_header_length(first, file_bytes, "f"));
  return parse_header(as_bytes(text).first(header_bytes), file_bytes, "f");
}
inline Result<FileHeader> read_header(const std::string& text, std::uint64_t body_bytes = 0) {
  return read_header(text, body_bytes, text.size());
}

// {"name":{"dtype":...}} without the braces around it.
inline std::string entry(const std::string& name, const std::string& dtype,
                         const std::string& shape, const std::string& offsets) {
  return "\"" + name + R"(":{"dtype":")" + dtype + R"(","shape":[)" + shape +
         R"(],"data_offsets":[)" + offsets + "]}";
}

}  // namespace weft::codec::testing
