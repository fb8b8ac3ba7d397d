// SPDX-License-Identifier: Apache-2.0
#include "apply/read/writer_turn.hpp"

#include <thread>

namespace weft::apply {

namespace {

// Plain flock has no timeout; readers hold it for as long as they copy.
constexpr Duration kPollInterval = std::chrono::milliseconds(2);

}  // namespace

Result<std::unique_ptr<FileLock>> acquire_lock(Store& store, std::string_view name,
                                               Duration timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (true) {
    auto lock = store.try_lock(name, LockMode::kExclusive);
    if (lock || lock.error().code != ErrorCode::kBusy ||
        std::chrono::steady_clock::now() + kPollInterval > deadline) {
      return lock;
    }
    std::this_thread::sleep_for(kPollInterval);
  }
}

Result<std::unique_ptr<WriterTurn>> WriterTurn::acquire(Store& weights, StatePage& page,
                                                        Duration timeout) {
  WEFT_TRY(const PublishedState former, page.read());
  std::unique_ptr<WriterTurn> turn(new WriterTurn(page, former));
  // Only a ready set has readers to be asked for patience; anything else keeps its word.
  if (former.phase == ReadPhase::kReady) {
    WEFT_TRY_STATUS(page.write(ReadPhase::kApplyPending, former.content));
  }
  WEFT_TRY(turn->lock_, acquire_lock(weights, kReaderLockName, timeout));
  return turn;
}

WriterTurn::~WriterTurn() {
  if (!begun_ && former_.phase == ReadPhase::kReady) {
    static_cast<void>(page_.write(former_.phase, former_.content));
  }
}

Status WriterTurn::begin() {
  begun_ = true;
  // Not synced: after a power cut the boot id is another, and readers refuse the page for that.
  return page_.write(ReadPhase::kApplying, former_.content);
}

Status WriterTurn::finish(const Content& content) {
  WEFT_TRY_STATUS(page_.write(ReadPhase::kReady, content));
  lock_.reset();
  return ok();
}

}  // namespace weft::apply
