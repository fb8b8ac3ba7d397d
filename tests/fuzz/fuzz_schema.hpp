// SPDX-License-Identifier: Apache-2.0
// The checkpoint that fuzzed lattices and boxes are about.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <optional>
#include <utility>
#include <vector>

#include "codec/safetensors/schema.hpp"

namespace weft::fuzz {

// Matrices, a run of bytes, three axes, an odd count in two chunks, a scalar, nothing at all.
inline const codec::Schema& fuzz_schema() {
  static const codec::Schema schema = [] {
    std::vector<codec::HeaderTensor> tensors;
    std::uint64_t at = 0;
    const auto add = [&](const char* name, codec::DType dtype, std::vector<std::uint64_t> shape,
                         std::uint64_t element_bytes) {
      std::uint64_t bytes = element_bytes;
      for (const std::uint64_t extent : shape) bytes *= extent;
      tensors.push_back({name, dtype, std::move(shape), at, at + bytes});
      at += bytes;
    };
    add("a", codec::DType::kBF16, {6, 4}, 2);
    add("b", codec::DType::kU8, {7}, 1);
    add("c", codec::DType::kF32, {3, 2, 2}, 4);
    add("long", codec::DType::kBF16, {521, 509}, 2);
    add("none", codec::DType::kF64, {0, 3}, 8);
    add("one \"q\" \\", codec::DType::kF64, {}, 8);
    auto made =
        codec::build_schema({{"model.safetensors", at + 8, {8, std::move(tensors)}}}, std::nullopt);
    if (!made) std::abort();
    return *std::move(made);
  }();
  return schema;
}

}  // namespace weft::fuzz
