// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/pybind11.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace weft::python {

// Array is memory of weft's that Python may look at as an array: buffer protocol, DLPack, numpy,
// torch. Nothing is copied.
// Owns:    a share of what keeps the memory; every array made from it has one too.
// Threads: immutable.
struct Array {
  std::shared_ptr<const void> owner;
  std::byte* begin = nullptr;
  std::string dtype;  // as in a safetensors header
  std::uint32_t element_bytes = 1;
  std::vector<std::int64_t> shape;  // elements; sub-byte types: bytes
  bool writable = false;

  std::size_t element_count() const;
  std::size_t byte_count() const { return element_count() * element_bytes; }
};

void define_array(pybind11::module_& module);

}  // namespace weft::python
