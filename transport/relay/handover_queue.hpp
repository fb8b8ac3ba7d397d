// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <memory>
#include <optional>
#include <utility>

namespace weft::transport {

// A bounded queue from many threads to one, without locks: each cell carries the number of the turn
// in which it may be filled or emptied next.
// Threads: try_push any; try_pop one at a time.
template <typename T>
class HandoverQueue {
 public:
  explicit HandoverQueue(std::size_t capacity_min)
      : mask_(std::bit_ceil(capacity_min) - 1), cells_(std::make_unique<Cell[]>(mask_ + 1)) {
    for (std::size_t i = 0; i <= mask_; ++i) cells_[i].turn.store(i);
  }

  // False when full; `value` is then untouched.
  bool try_push(T& value) {
    std::size_t place = next_in_.load();
    for (;;) {
      Cell& cell = cells_[place & mask_];
      const std::size_t turn = cell.turn.load();
      if (turn == place) {
        if (!next_in_.compare_exchange_weak(place, place + 1)) continue;
        cell.value = std::move(value);
        cell.turn.store(place + 1);
        return true;
      }
      if (turn < place) return false;  // its last round has not been emptied
      place = next_in_.load();
    }
  }

  std::optional<T> try_pop() {
    Cell& cell = cells_[next_out_ & mask_];
    if (cell.turn.load() != next_out_ + 1) return std::nullopt;
    std::optional<T> value(std::exchange(cell.value, T{}));
    cell.turn.store(next_out_ + mask_ + 1);
    ++next_out_;
    return value;
  }

 private:
  struct Cell {
    std::atomic<std::size_t> turn{0};
    T value{};
  };
  std::size_t mask_;
  std::unique_ptr<Cell[]> cells_;
  std::atomic<std::size_t> next_in_{0};
  std::size_t next_out_ = 0;
};

}  // namespace weft::transport
