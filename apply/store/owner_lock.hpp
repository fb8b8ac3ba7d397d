// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "apply/store/store.hpp"
#include "weft/base/ids.hpp"
#include "weft/base/result.hpp"

namespace weft::apply {

inline constexpr std::string_view kOwnerLockName = "weft.owner";

// The directory that the owner of the weights named for its journals; empty when it named none.
std::string state_dir_of_owner(Store& weights);

// OwnerLock makes this process the one writer of a weights directory (agent or `weft apply`).
// Owns:    the lock; the kernel drops it when the process dies.
// Threads: one at a time.
class OwnerLock {
 public:
  // Returns at once. `state_dir`: where readers find the journals, if there are any. Errors: kBusy,
  // naming the owner by what its lock file says.
  static Result<OwnerLock> acquire(Store& weights, const FleetId& fleet, std::string_view owner,
                                   std::string_view state_dir = {});

 private:
  explicit OwnerLock(std::unique_ptr<FileLock> lock) : lock_(std::move(lock)) {}
  std::unique_ptr<FileLock> lock_;
};

}  // namespace weft::apply
