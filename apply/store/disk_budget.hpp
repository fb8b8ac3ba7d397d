// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "weft/base/result.hpp"

namespace weft::apply {

// Bytes that spool and journals may take together (`state.max_bytes`).
// Threads: any.
class DiskBudget {
 public:
  explicit DiskBudget(std::uint64_t bytes_max) : bytes_max_(bytes_max) {}

  // Errors: kNoSpace with what is asked, used and allowed; nothing is taken then.
  Status charge(std::uint64_t bytes) {
    std::uint64_t used = used_bytes_.load();
    do {
      if (bytes > bytes_max_ || used > bytes_max_ - bytes) {
        return failure(ErrorCode::kNoSpace, Stage::kResolve,
                       "state.max_bytes: " + std::to_string(used) + " used, " +
                           std::to_string(bytes) + " more asked, " + std::to_string(bytes_max_) +
                           " allowed");
      }
    } while (!used_bytes_.compare_exchange_weak(used, used + bytes));
    return ok();
  }
  void give_back(std::uint64_t bytes) { used_bytes_ -= bytes; }
  std::uint64_t used_bytes() const { return used_bytes_.load(); }
  std::uint64_t bytes_max() const { return bytes_max_; }

 private:
  const std::uint64_t bytes_max_;
  std::atomic<std::uint64_t> used_bytes_{0};
};

}  // namespace weft::apply
