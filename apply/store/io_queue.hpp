// SPDX-License-Identifier: Apache-2.0
// A bounded queue of reads and writes on one thread's behalf, with buffers of its own: the seam
// between the patcher and io_uring (or plain pread and pwrite).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "apply/store/file.hpp"
#include "weft/base/result.hpp"

namespace weft::apply {

struct IoQueueOptions {
  std::uint32_t depth = 16;                  // requests in flight
  std::uint32_t buffer_count = 16;           // equal buffers, registered with the kernel if it can
  std::uint32_t buffer_bytes = 1024 * 1024;  // a multiple of 4096
};

struct IoRequest {
  enum class Kind : std::uint8_t { kRead, kWrite };
  Kind kind = Kind::kRead;
  File* file = nullptr;  // of the same store, open until the completion is taken
  std::uint64_t offset = 0;
  std::span<std::byte> memory;  // best a part of a queue buffer; must live until the completion
  std::uint64_t token = 0;      // comes back in the completion
};

struct IoCompletion {
  std::uint64_t token = 0;
  Status status;
};

// Invariant: every posted request is completed exactly once, in any order; whole, or failed.
// Owns:      its buffers. Dropped with requests in flight it waits for them.
// Threads:   owner.
class IoQueue {
 public:
  virtual ~IoQueue() = default;
  IoQueue() = default;
  IoQueue(const IoQueue&) = delete;
  IoQueue& operator=(const IoQueue&) = delete;

  virtual std::uint32_t depth() const = 0;
  virtual std::uint32_t in_flight() const = 0;
  virtual std::uint32_t buffer_count() const = 0;
  virtual std::span<std::byte> buffer(std::uint32_t index) = 0;

  // in_flight() < depth() is the caller's duty. What fails does so in the completion.
  virtual void post(const IoRequest& request) = 0;
  // Blocks until at least one completion is there (in_flight() > 0 is the caller's duty) and
  // returns how many were written to `into`. Errors: kTimeout (the device does not answer within
  // limits of the queue; what is in flight stays so), kIoFailed (the queue itself is broken).
  virtual Result<std::size_t> wait(std::span<IoCompletion> into) = 0;
};

}  // namespace weft::apply
