// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>
#include <utility>

#include "weft/base/clock.hpp"
#include "weft/base/lease.hpp"
#include "weft/base/result.hpp"

namespace weft::agent {

// Slots for the frames of a producer's refits. A producer that waits for its turn at the agents
// waits here: until there is a slot, its refit has ended, or `longest` has passed.
// Threads: any.
class RefitSlots final : public SlotSource {
 public:
  // `pool` and what `ended` looks at must outlive this.
  RefitSlots(SlotSource& pool, std::function<bool()> ended, Duration longest)
      : pool_(pool), ended_(std::move(ended)), longest_(longest) {}

  std::optional<Lease> try_acquire() override { return pool_.try_acquire(); }

  // The refit bounds the wait, not `timeout`.
  // Errors: kBusy (the refit has ended), kTimeout.
  Result<Lease> acquire(Duration timeout) override {
    const auto deadline = std::chrono::steady_clock::now() + std::max(timeout, longest_);
    for (;;) {
      auto lease = pool_.acquire(kLook);
      if (lease || std::chrono::steady_clock::now() >= deadline) return lease;
      if (ended_()) return failure(ErrorCode::kBusy, Stage::kEncode, "the refit has ended");
    }
  }

 private:
  static constexpr Duration kLook = std::chrono::milliseconds(100);
  SlotSource& pool_;
  std::function<bool()> ended_;
  Duration longest_;
};

}  // namespace weft::agent
