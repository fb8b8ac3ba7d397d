// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "apply/read/state_page.hpp"
#include "apply/store/store.hpp"
#include "weft/base/clock.hpp"
#include "weft/base/result.hpp"

namespace weft::apply {

// The exclusive lock, with a deadline: plain flock has none. Errors: kBusy, naming the lock.
Result<std::unique_ptr<FileLock>> acquire_lock(Store& store, std::string_view name,
                                               Duration timeout);

// WriterTurn keeps readers out while weight files change in place: the exclusive lock, and the
// phase that outlives it should this process be killed.
// 1. acquire(): phase `apply_pending`, so that new readers wait; then the lock, with a deadline.
// 2. begin(): phase `applying`, before the first byte is written.
// 3. finish(): phase `ready` with the new content; the lock is dropped.
// Dropped before begin(), the phase goes back to what it was; dropped after it, it stays
// `applying`. Owns:    the lock; borrows the page. Threads: one at a time.
class WriterTurn {
 public:
  // Errors: kBusy when a reader kept its lock for longer than `timeout`.
  static Result<std::unique_ptr<WriterTurn>> acquire(Store& weights, StatePage& page,
                                                     Duration timeout);
  ~WriterTurn();
  Status begin();
  Status finish(const Content& content);

 private:
  WriterTurn(StatePage& page, const PublishedState& former) : page_(page), former_(former) {}

  StatePage& page_;
  PublishedState former_;
  std::unique_ptr<FileLock> lock_;
  bool begun_ = false;
};

}  // namespace weft::apply
