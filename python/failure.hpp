// SPDX-License-Identifier: Apache-2.0
// Errors of weft as Python exceptions: weft/errors.py has the classes.
#pragma once

#include <pybind11/pybind11.h>

#include <exception>
#include <string>
#include <type_traits>
#include <utility>

#include "weft/base/result.hpp"

namespace weft::python {

// An Error on its way through pybind11; the caller sees the class of its code.
// Threads: a value; one at a time.
class Failure final : public std::exception {
 public:
  explicit Failure(Error error) : error_(std::move(error)), text_(error_.message()) {}
  const Error& error() const { return error_; }
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  Error error_;
  std::string text_;
};

inline Failure misuse(const std::string& what) {
  return Failure(failure(ErrorCode::kConfig, Stage::kPublish, what));
}

template <typename T>
T must(Result<T>&& result) {
  if (!result) throw Failure(std::move(result).error());
  if constexpr (!std::is_void_v<T>) return *std::move(result);
}

void define_errors(pybind11::module_& module);

}  // namespace weft::python
