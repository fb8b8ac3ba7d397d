// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "apply/commit/state_log.hpp"

namespace weft::apply {

namespace {

const FoldedRefit* find_refit(const StateFold& fold, bool (*wanted)(const FoldedRefit&)) {
  const auto found = std::find_if(fold.refits.begin(), fold.refits.end(), wanted);
  return found == fold.refits.end() ? nullptr : &*found;
}

void need_reseed(AgentRecovery& recovery, ErrorCode code, std::string detail) {
  recovery.row = StartRow::kReseed;
  recovery.cause = wire::Cause{code, std::move(detail)};
  recovery.record_cause = true;
  recovery.hooks_due.clear();
}

void pick_refits(const StateFold& fold, AgentRecovery& recovery) {
  const FoldedRefit* committed =
      find_refit(fold, [](const FoldedRefit& r) { return r.committed && !r.applied; });
  const FoldedRefit* prepared = find_refit(
      fold, [](const FoldedRefit& r) { return r.prepared && !r.committed && !r.applied; });
  const FoldedRefit* begun = nullptr;  // the last one: an older one was superseded
  for (const FoldedRefit& refit : fold.refits) {
    if (!refit.prepared && !refit.committed && !refit.applied) begun = &refit;
  }
  if (committed) {
    recovery.row = StartRow::kCommitted;
    recovery.front = *committed;
    if (prepared) recovery.behind = *prepared;
    if (begun && !prepared) recovery.behind = *begun;
  } else if (prepared) {
    recovery.row = StartRow::kPrepared;
    recovery.front = *prepared;
  } else if (begun) {
    recovery.row = StartRow::kBegun;
    recovery.front = *begun;
  }
}

}  // namespace

AgentRecovery recover_agent(const StateFold& fold, const StateEvidence& evidence) {
  AgentRecovery recovery;
  recovery.fleet = fold.fleet;
  recovery.epoch = fold.epoch;
  recovery.newest = fold.newest;
  if (!evidence.log_readable) {
    need_reseed(recovery, ErrorCode::kNeedsReseed, evidence.log_readable.error().message());
    return recovery;
  }
  if (fold.applied) {
    recovery.content = fold.applied->content;
    recovery.boot = fold.applied->boot;
    recovery.files = fold.applied->files;
  }
  if (fold.reseed) {
    recovery.row = StartRow::kReseed;
    recovery.cause = fold.reseed;
    return recovery;
  }
  for (const FoldedRefit& refit : fold.refits) {
    if (refit.applied && !refit.hooked) recovery.hooks_due.push_back(refit.refit);
  }
  pick_refits(fold, recovery);
  if (!fold.applied && recovery.front) recovery.content = recovery.front->base;
  if (fold.applied && evidence.files_resized) {
    need_reseed(recovery, ErrorCode::kInconsistentCheckpoint,
                "a weight file is missing or has another size than when version " +
                    std::to_string(recovery.content.version.value) + " was applied");
    recovery.front.reset();
    recovery.behind.reset();
    return recovery;
  }
  const bool as_recorded = fold.applied && evidence.files_as_recorded && !evidence.boot_changed;
  if (recovery.row == StartRow::kCommitted) {
    recovery.check_written = evidence.boot_changed;
    return recovery;
  }
  if (recovery.front) {
    recovery.verify_first = !as_recorded;
  } else if (fold.applied) {
    recovery.row = as_recorded ? StartRow::kClean : StartRow::kVerify;
    recovery.verify_first = !as_recorded;
  }
  return recovery;
}

}  // namespace weft::apply
