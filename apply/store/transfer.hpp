// SPDX-License-Identifier: Apache-2.0
// One read or write that the kernel may do in pieces: what to do after each answer. Pure, so that
// every engine continues short transfers in the same way (case B-051).
#pragma once

#include <cerrno>
#include <cstdint>

#include "weft/base/assert.hpp"
#include "weft/base/limits.hpp"

namespace weft::apply {

// Invariant: done_bytes() <= the bytes asked for; after kDone, kEnd or kFailed nothing more is
// sent. Threads:   one at a time.
class Transfer {
 public:
  enum class Direction : std::uint8_t { kRead, kWrite };
  enum class Next : std::uint8_t {
    kDone,      // all bytes moved
    kContinue,  // send the rest: done_bytes() onwards
    kEnd,       // a read met the end of the file
    kFailed,    // native_error() says why
  };

  Transfer() = default;
  Transfer(Direction direction, std::uint64_t bytes) : direction_(direction), bytes_(bytes) {}

  // `answer` is what the kernel returned: bytes moved, or -errno.
  Next advance(std::int64_t answer) {
    if (answer == -EINTR || answer == -EAGAIN) {
      if (++idle_count_ <= limits::kIoRetriesMax) return Next::kContinue;
      native_error_ = EIO;
      return Next::kFailed;
    }
    if (answer < 0) {
      native_error_ = static_cast<int>(-answer);
      return Next::kFailed;
    }
    if (answer == 0 && bytes_ > done_bytes_) {
      if (direction_ == Direction::kRead) return Next::kEnd;
      native_error_ = EIO;
      return Next::kFailed;
    }
    WEFT_ASSERT(static_cast<std::uint64_t>(answer) <= bytes_ - done_bytes_);
    done_bytes_ += static_cast<std::uint64_t>(answer);
    idle_count_ = 0;
    return done_bytes_ == bytes_ ? Next::kDone : Next::kContinue;
  }

  std::uint64_t done_bytes() const { return done_bytes_; }
  std::uint64_t remaining_bytes() const { return bytes_ - done_bytes_; }
  int native_error() const { return native_error_; }

 private:
  Direction direction_ = Direction::kRead;
  std::uint64_t bytes_ = 0;
  std::uint64_t done_bytes_ = 0;
  std::uint32_t idle_count_ = 0;  // answers without progress in a row
  int native_error_ = 0;
};

}  // namespace weft::apply
