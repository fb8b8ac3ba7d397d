// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "weft/base/assert.hpp"

namespace weft::transport {

// A double-ended queue of fixed capacity: no allocation after construction.
// Threads: one at a time.
template <typename T>
class BoundedRing {
 public:
  explicit BoundedRing(std::size_t capacity) : cells_(capacity) {}

  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  bool full() const { return size_ == cells_.size(); }

  T& front() {
    WEFT_ASSERT(size_ > 0);
    return cells_[first_];
  }
  void push_back(T value) {
    WEFT_ASSERT(!full());
    cells_[(first_ + size_) % cells_.size()] = std::move(value);
    ++size_;
  }
  void push_front(T value) {
    WEFT_ASSERT(!full());
    first_ = (first_ + cells_.size() - 1) % cells_.size();
    cells_[first_] = std::move(value);
    ++size_;
  }
  T pop_front() {
    T value = std::exchange(front(), T{});
    first_ = (first_ + 1) % cells_.size();
    --size_;
    return value;
  }

 private:
  std::vector<T> cells_;
  std::size_t first_ = 0;
  std::size_t size_ = 0;
};

}  // namespace weft::transport
