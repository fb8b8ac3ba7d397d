// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "weft/base/result.hpp"

namespace weft::apply {

// Bytes that spool and journals may take together (`state.max_bytes`).
// Threads: any for charge and give_back; set_reclaim with none of them at work.
class DiskBudget {
 public:
  explicit DiskBudget(std::uint64_t bytes_max) : bytes_max_(bytes_max) {}

  // What to do before a charge is refused: gives something back and answers true, or false when
  // there is nothing left to give. Called from the charging thread.
  void set_reclaim(std::function<bool()> reclaim) { reclaim_ = std::move(reclaim); }

  // Errors: kNoSpace with what is asked, used and allowed; nothing is taken then.
  Status charge(std::uint64_t bytes) {
    if (bytes > bytes_max_) return refusal(bytes);
    while (!try_charge(bytes)) {
      if (!reclaim_ || !reclaim_()) return refusal(bytes);
    }
    return ok();
  }
  void give_back(std::uint64_t bytes) { used_bytes_ -= bytes; }
  std::uint64_t used_bytes() const { return used_bytes_.load(); }
  std::uint64_t bytes_max() const { return bytes_max_; }

 private:
  bool try_charge(std::uint64_t bytes) {
    std::uint64_t used = used_bytes_.load();
    do {
      if (used > bytes_max_ - bytes) return false;
    } while (!used_bytes_.compare_exchange_weak(used, used + bytes));
    return true;
  }
  Status refusal(std::uint64_t bytes) const {
    return failure(ErrorCode::kNoSpace, Stage::kResolve,
                   "state.max_bytes: " + std::to_string(used_bytes()) + " used, " +
                       std::to_string(bytes) + " more asked, " + std::to_string(bytes_max_) +
                       " allowed");
  }

  const std::uint64_t bytes_max_;
  std::atomic<std::uint64_t> used_bytes_{0};
  std::function<bool()> reclaim_;
};

}  // namespace weft::apply
