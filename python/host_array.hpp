// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/pybind11.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace weft::python {

// HostArray borrows the memory of a Python object: buffer protocol, else DLPack.
// Owns:    a reference that keeps the memory where it is; taken and given up with the
//          interpreter's lock.
// Threads: one at a time; bytes() and dtype() need no lock.
class HostArray {
 public:
  // Throws TypeError (has no memory to borrow), BufferError (not contiguous, not on the CPU).
  explicit HostArray(pybind11::handle object);

  std::span<const std::byte> bytes() const { return bytes_; }
  // As in a safetensors header; "word" and the width for what has no name there.
  const std::string& dtype() const { return dtype_; }
  // Integers and raw words: bits whose meaning the caller knows.
  bool is_opaque() const { return opaque_; }
  std::uint32_t element_bytes() const { return element_bytes_; }

 private:
  void borrow_buffer(pybind11::handle object);
  void borrow_dlpack(pybind11::object object);
  void name_type(char kind, std::uint32_t width);

  std::shared_ptr<void> holder_;
  std::span<const std::byte> bytes_;
  std::string dtype_;
  std::uint32_t element_bytes_ = 1;
  bool opaque_ = true;
};

}  // namespace weft::python
