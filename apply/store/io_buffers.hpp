// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "weft/base/assert.hpp"
#include "weft/base/result.hpp"

namespace weft::apply {

// Equal, page-aligned, anonymous buffers in one piece: what io_uring can register (memory of a file
// mapping it refuses). A forked child does not get them.
// Owns:    the memory.
// Threads: immutable; each buffer's bytes belong to whoever uses the queue.
class IoBuffers {
 public:
  static Result<IoBuffers> open(std::uint32_t count, std::uint32_t buffer_bytes);
  IoBuffers() = default;
  IoBuffers(IoBuffers&& other) noexcept
      : memory_(std::exchange(other.memory_, {})),
        count_(std::exchange(other.count_, 0)),
        buffer_bytes_(other.buffer_bytes_) {}
  IoBuffers& operator=(IoBuffers&&) = delete;
  ~IoBuffers();

  std::uint32_t count() const { return count_; }
  std::uint32_t buffer_bytes() const { return buffer_bytes_; }
  std::span<std::byte> all() const { return memory_; }
  std::span<std::byte> at(std::uint32_t index) const {
    WEFT_ASSERT(index < count_);
    return memory_.subspan(std::size_t{index} * buffer_bytes_, buffer_bytes_);
  }

 private:
  std::span<std::byte> memory_;
  std::uint32_t count_ = 0;
  std::uint32_t buffer_bytes_ = 0;
};

}  // namespace weft::apply
