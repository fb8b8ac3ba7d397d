// SPDX-License-Identifier: Apache-2.0
// Reads model.safetensors.index.json: which file owns which tensor.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/result.hpp"

namespace weft::codec {

// Invariant: every file is a plain base name (is_plain_file_name).
// Threads: a value; one at a time.
struct IndexFile {
  std::map<std::string, std::string, std::less<>> weight_map;  // tensor name -> file name
  std::vector<std::string> files;                              // each once, sorted by bytes
};

// A name that is safe beneath a directory: not empty, "." or "..", at most 255 bytes, without '/',
// '\\' and control bytes.
bool is_plain_file_name(std::string_view name);

// Errors: kFormat (not JSON, no weight_map, a name given twice, a value that is no plain file
// name), kResourceLimit.
Result<IndexFile> parse_index(std::span<const std::byte> text);

}  // namespace weft::codec
