// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <thread>

#include "weft/base/assert.hpp"

namespace weft {

// Asserts that an object is used by one thread only: the first that calls check() after
// construction or adopt(). Threads: any (that is its purpose).
class ThreadOwner {
 public:
  void adopt() { owner_.store(std::this_thread::get_id()); }
  void check() const {
    std::thread::id none;
    const std::thread::id self = std::this_thread::get_id();
    if (owner_.compare_exchange_strong(none, self)) return;
    WEFT_ASSERT(owner_.load() == self);
  }

 private:
  mutable std::atomic<std::thread::id> owner_{};
};

}  // namespace weft
