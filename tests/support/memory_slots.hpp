// SPDX-License-Identifier: Apache-2.0
// Slots in plain memory, for tests of what fills or reads frames.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "weft/base/lease.hpp"

namespace weft::test_support {

// Threads: any.
class MemorySlots final : public SlotSource, public SlotOwner {
 public:
  explicit MemorySlots(std::uint32_t slot_count, std::uint32_t slot_bytes = limits::kSlotBytes)
      : states_(slot_count) {
    for (std::uint32_t i = 0; i < slot_count; ++i) {
      memory_.push_back(std::make_unique<std::byte[]>(slot_bytes));
      states_[i].owner = this;
      states_[i].memory = memory_.back().get();
      states_[i].slot_bytes = slot_bytes;
      states_[i].slot_index = i;
      free_.push_back(&states_[i]);
    }
  }

  std::optional<Lease> try_acquire() override {
    std::lock_guard lock(mutex_);
    return pop();
  }
  Result<Lease> acquire(Duration timeout) override {
    std::unique_lock lock(mutex_);
    freed_.wait_for(lock, timeout, [this] { return !free_.empty(); });
    if (auto lease = pop()) return std::move(*lease);
    return failure(ErrorCode::kTimeout, Stage::kEncode, "no free slot");
  }
  void give_back(SlotState& slot) override {
    std::lock_guard lock(mutex_);
    free_.push_back(&slot);
    freed_.notify_one();
  }
  std::size_t free_count() {
    std::lock_guard lock(mutex_);
    return free_.size();
  }

 private:
  std::optional<Lease> pop() {
    if (free_.empty()) return std::nullopt;
    SlotState* slot = free_.back();
    free_.pop_back();
    return Lease(slot);
  }

  std::mutex mutex_;
  std::condition_variable freed_;
  std::vector<SlotState> states_;
  std::vector<std::unique_ptr<std::byte[]>> memory_;
  std::vector<SlotState*> free_;
};

}  // namespace weft::test_support
