// SPDX-License-Identifier: Apache-2.0
// Wraps any store and makes chosen calls fail, or everything from one step on: a process that dies
// there.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apply/store/store.hpp"
#include "weft/base/guarded.hpp"

namespace weft::test_support {

enum class Call : std::uint8_t {
  kOpen,
  kCreate,
  kRead,
  kWrite,
  kSync,
  kAllocate,
  kTruncate,
  kRename,
  kSyncDirectory,
  kRemove,
};

// One rule: the `skip`-th and later matching calls (or only that one) fail with `native`.
struct Fault {
  Call call = Call::kWrite;
  std::string name_part;  // the file's name contains it; empty: any
  int native = 5;         // EIO
  std::uint32_t skip = 0;
  bool once = false;
};

// FaultPlan is what a test shares with the stores it has wrapped.
// Threads: any.
class FaultPlan {
 public:
  void add(Fault fault);
  void clear();
  // The process dies at its `step`-th call that changes anything (0-based): that call and every
  // later one, reads too, do nothing and fail. nullopt: it lives on.
  void die_at(std::optional<std::uint64_t> step);
  bool dead() const { return dead_.load(); }
  // Calls that change something, so far.
  std::uint64_t steps() const { return steps_.load(); }
  // Names of the calls that change something in their order, such as "sync journal".
  std::vector<std::string> trace() const;

  // Called by the wrappers: an error means the call must not reach the disk.
  Status check(Call call, const std::string& name);

 private:
  struct State {
    std::vector<Fault> faults;
    std::optional<std::uint64_t> die_at;
    std::vector<std::string> trace;
  };
  mutable Guarded<State> state_;
  std::atomic<std::uint64_t> steps_{0};
  std::atomic<bool> dead_{false};
};

// A store whose calls ask the plan first. The plan may be shared by several.
std::unique_ptr<apply::Store> wrap_with_faults(std::unique_ptr<apply::Store> store,
                                               std::shared_ptr<FaultPlan> plan);

}  // namespace weft::test_support
