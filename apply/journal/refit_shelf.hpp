// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "apply/store/disk_budget.hpp"
#include "apply/store/store.hpp"
#include "weft/base/ids.hpp"
#include "weft/base/result.hpp"

namespace weft::apply {

// RefitShelf keeps spool and journal of the last applied refits, for peers and readers that are
// behind, within the budget: when something new needs the room, the oldest goes first.
// Owns:    the directories `<state>/spool` and `<state>/journal`; what is retained is charged.
// Threads: any.
class RefitShelf {
 public:
  // Makes the directories. Nothing is retained yet: the caller's log says which of list() count.
  // The budget asks this shelf for room from now on; it must outlive the shelf's users.
  static Result<std::unique_ptr<RefitShelf>> open(Store& state, DiskBudget& budget,
                                                  std::uint32_t retain_count);
  ~RefitShelf();
  RefitShelf(const RefitShelf&) = delete;
  RefitShelf& operator=(const RefitShelf&) = delete;

  Store& spools() { return *spools_; }
  Store& journals() { return *journals_; }

  // Every refit with a spool or a journal on disk, oldest first.
  Result<std::vector<RefitId>> list() const;
  // An applied refit stays; the oldest beyond the count go.
  Status retain(const RefitId& refit);
  // Spool and journal are removed, retained or not. Success when there are none.
  Status drop(const RefitId& refit);
  std::vector<RefitId> retained() const;

 private:
  struct Item {
    RefitId refit;
    std::uint64_t bytes = 0;
  };
  RefitShelf(DiskBudget& budget, std::uint32_t retain_count)
      : budget_(budget), retain_count_(retain_count) {}
  bool drop_oldest();
  Status remove(const RefitId& refit);

  DiskBudget& budget_;
  std::uint32_t retain_count_;
  std::unique_ptr<Store> spools_;
  std::unique_ptr<Store> journals_;
  mutable std::mutex mutex_;
  std::vector<Item> items_;  // oldest first
};

}  // namespace weft::apply
