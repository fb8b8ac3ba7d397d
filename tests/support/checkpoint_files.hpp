// SPDX-License-Identifier: Apache-2.0
// Small checkpoints for tests: safetensors files from tensors, into any store.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "apply/store/store.hpp"

namespace weft::test_support {

struct TestTensor {
  std::string name;
  std::string dtype;  // as in the format
  std::vector<std::uint64_t> shape;
  std::vector<std::byte> bytes;
};

// File name to tensors, in the order in which their bytes lie in the file.
using TestCheckpoint = std::map<std::string, std::vector<TestTensor>>;

std::vector<std::byte> safetensors_bytes(const std::vector<TestTensor>& tensors,
                                         std::size_t header_padding = 0);
std::string index_text(const TestCheckpoint& checkpoint);

// Existing files are overwritten; with `with_index` the index file is written as well.
void write_checkpoint(apply::Store& store, const TestCheckpoint& checkpoint, bool with_index);
void write_whole(apply::Store& store, const std::string& name, std::span<const std::byte> bytes);

// Two files with tensors of 1, 2, 4 and 8 byte elements at odd places; about `bytes` in all, random
// content.
TestCheckpoint make_checkpoint(std::uint64_t bytes, std::uint64_t seed);
// A copy in which about `density` of the elements have other bits.
TestCheckpoint change_elements(const TestCheckpoint& from, double density, std::uint64_t seed);

}  // namespace weft::test_support
