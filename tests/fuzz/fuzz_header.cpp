// SPDX-License-Identifier: Apache-2.0
// Any bytes as a safetensors file: what is accepted covers the file exactly.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "codec/project/lattice.hpp"
#include "codec/safetensors/header.hpp"
#include "codec/safetensors/schema.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  using namespace weft::codec;
  const auto input = std::as_bytes(std::span(bytes, size));
  const auto length =
      parse_header_length(input.first(std::min<std::size_t>(8, size)), size, "fuzzed");
  if (!length) return 0;
  auto header = parse_header(input.subspan(8, *length), size, "fuzzed");
  if (!header) return 0;
  std::uint64_t end = header->data_start;
  for (const HeaderTensor& tensor : header->tensors) {
    if (header->data_start + tensor.begin != end) std::abort();
    end = header->data_start + tensor.end;
  }
  if (end != size) std::abort();
  std::vector<FileInput> files;
  files.push_back({"fuzzed", size, std::move(*header)});
  const auto schema = build_schema(std::move(files), std::nullopt);
  if (!schema || !Lattice::default_for(*schema)) std::abort();
  return 0;
}
