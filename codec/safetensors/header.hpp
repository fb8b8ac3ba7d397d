// SPDX-License-Identifier: Apache-2.0
// Reads the header of one safetensors file: lengths, names, types, shapes and ranges. Trusts
// nothing; the verdicts are those of the published reference reader, except that a name given twice
// is an error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "codec/safetensors/dtype.hpp"
#include "weft/base/result.hpp"

namespace weft::codec {

inline constexpr std::uint64_t kHeaderLengthBytes = 8;

// One tensor of a file. begin and end count bytes from the file's data_start.
// Threads: a value; one at a time.
struct HeaderTensor {
  std::string name;
  DType dtype = DType::kU8;
  std::vector<std::uint64_t> shape;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

// Tensors in offset order; together they cover the bytes behind the header exactly once.
// Threads: a value; one at a time.
struct FileHeader {
  std::uint64_t data_start = 0;  // header length field and header text
  std::vector<HeaderTensor> tensors;
};

// The length of the header text, from the file's first 8 bytes (fewer if the file is shorter).
// Errors: kFormat, with file name and claimed length.
Result<std::uint64_t> parse_header_length(std::span<const std::byte> first_bytes,
                                          std::uint64_t file_bytes, std::string_view file_name);

// `text` is the header without its length field; file_bytes is the size of the whole file.
// Errors: kFormat (also: tensors and file size do not add up, "truncated" and "trailing" told
// apart); kResourceLimit when a limit of base/limits.hpp is met.
Result<FileHeader> parse_header(std::span<const std::byte> text, std::uint64_t file_bytes,
                                std::string_view file_name);

}  // namespace weft::codec
