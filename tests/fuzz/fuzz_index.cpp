// SPDX-License-Identifier: Apache-2.0
// Any bytes as an index file: what is accepted names plain files only.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "codec/safetensors/index.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const auto index = weft::codec::parse_index(std::as_bytes(std::span(bytes, size)));
  if (!index) return 0;
  for (const auto& [tensor, file] : index->weight_map) {
    if (!weft::codec::is_plain_file_name(file)) std::abort();
  }
  return 0;
}
