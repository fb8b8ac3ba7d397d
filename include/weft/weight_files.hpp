// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "weft/base/result.hpp"
#include "weft/weight_view.hpp"

namespace weft {

// A tensor of the weights, row-major. Valid as long as its WeightFiles, or a copy of that.
// Threads: a value; one at a time.
struct WeightTensor {
  std::string_view name;   // ends with a zero byte
  std::string_view dtype;  // as in the safetensors header; ends with a zero byte
  std::span<const std::uint64_t> shape;
  std::uint32_t element_bytes = 0;
  std::span<const std::byte> bytes;
};

// WeightFiles is the tensors of one version, mapped from the files below a lock's path. Nothing is
// read before it is looked at. The values are those of the lock's version while the lock lives; the
// mapping itself stays as long as a copy of this object does. Agents never shorten weight files; if
// somebody else does, looking at what is gone ends the process.
// A write to the mapping goes to a private page of this process: it never reaches the file.
// Owns:    the mapping, shared by all copies.
// Threads: any.
class WeightFiles {
 public:
  class Impl;

  // Errors: those of reading a checkpoint; kResourceLimit (the mapping).
  static Result<WeightFiles> open(const WeightLock& lock);

  // In the order of their names' bytes.
  std::span<const WeightTensor> tensors() const;
  // Null: there is none of that name.
  const WeightTensor* find(std::string_view name) const;

 private:
  explicit WeightFiles(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;
};

}  // namespace weft
