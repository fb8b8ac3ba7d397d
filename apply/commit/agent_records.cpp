// SPDX-License-Identifier: Apache-2.0
// The agent's state log: what each record lets happen, and what its loss prevents.
#include <algorithm>
#include <utility>

#include "apply/commit/agent_role.hpp"

namespace weft::apply {

void AgentRole::append(Purpose purpose, RefitId refit, StateRecord record) {
  Pending pending{LogToken{next_token_++}, purpose, refit, {}, {}};
  if (const auto* applied = std::get_if<AppliedRecord>(&record)) pending.applied = *applied;
  if (const auto* epoch = std::get_if<EpochRecord>(&record)) pending.epoch = *epoch;
  if (log_closed_) {
    failed(pending, make_error(ErrorCode::kIoFailed, Stage::kPrepare,
                               "the state log takes no records since an earlier failure"));
    return;
  }
  out_.push_back(agent::AppendRecord{pending.token, std::move(record)});
  pending_.push_back(std::move(pending));
}

bool AgentRole::is_pending(Purpose purpose, RefitId refit) const {
  return std::any_of(pending_.begin(), pending_.end(), [&](const Pending& pending) {
    return pending.purpose == purpose && pending.refit == refit;
  });
}

void AgentRole::on(const agent::LogSynced& event) {
  const auto found = std::find_if(pending_.begin(), pending_.end(),
                                  [&](const Pending& p) { return p.token == event.token; });
  if (found == pending_.end()) return;
  const Pending pending = std::move(*found);
  pending_.erase(found);
  synced(pending);
}

void AgentRole::on(const agent::LogFailed& event) {
  const auto found = std::find_if(pending_.begin(), pending_.end(),
                                  [&](const Pending& p) { return p.token == event.token; });
  if (found == pending_.end()) return;
  const Pending pending = std::move(*found);
  pending_.erase(found);
  if (!log_closed_) note(Severity::kError, "state_log_failed", event.error.message());
  log_closed_ = true;
  be_unable(event.error);
  failed(pending, event.error);
}

void AgentRole::synced(const Pending& pending) {
  Refit* refit = find(pending.refit);
  switch (pending.purpose) {
    case Purpose::kEpoch:
      fleet_ = pending.epoch->fleet;
      epoch_ = pending.epoch->epoch;
      accept_session();  // asks for another record if the session is of a later epoch by now
      break;
    case Purpose::kBegin:
      if (refit && refit->phase == Phase::kRecordingBegin) open(*refit);
      break;
    case Purpose::kPrepared:
      if (!refit || refit->phase != Phase::kRecordingPrepared) break;
      refit->phase = Phase::kPrepared;
      refit->prepared_at = now_;
      refit->query_at = now_ + options_.query_period;
      say_vote(*refit);
      if (refit->commit) commit(*refit, *refit->commit);
      break;
    case Purpose::kCommit:
      if (refit && refit->phase == Phase::kRecordingCommit) apply(*refit);
      break;
    case Purpose::kApplied:
      if (refit && refit->phase == Phase::kRecordingApplied) finish_applied(refit->id);
      break;
    case Purpose::kContent:
      content_ = pending.applied->content;
      reseed_.reset();
      verify_first_ = false;
      compare_with_committed();
      break;
    case Purpose::kAbort:
      if (!refit || refit->phase != Phase::kRecordingAbort) break;
      refit->phase = Phase::kForgetting;
      out_.push_back(agent::ForgetRefit{refit->id});
      break;
    case Purpose::kHooked:
      if (!hooks_.empty() && hooks_.front().refit == pending.refit) hooks_.pop_front();
      call_hooks();
      break;
    case Purpose::kReseed:
      reseed_recorded_ = true;
      break;
  }
}

// The record may be durable all the same: whatever is decided here must be right either way.
void AgentRole::failed(const Pending& pending, const Error& error) {
  Refit* refit = find(pending.refit);
  switch (pending.purpose) {
    case Purpose::kEpoch:
      if (session_ && !session_->accepted) {
        out_.push_back(agent::CloseSession{session_->id, error});
        session_.reset();
      }
      break;
    case Purpose::kBegin:
    case Purpose::kPrepared:
      if (refit) refuse(*refit, error);
      break;
    case Purpose::kCommit:
      // Not one weight byte may be written: it waits as PREPARED until the log takes records.
      if (refit && refit->phase == Phase::kRecordingCommit) refit->phase = Phase::kPrepared;
      break;
    case Purpose::kHooked:
      if (!hooks_.empty() && hooks_.front().refit == pending.refit) {
        hooks_.front().running = false;
        hooks_.front().retry_at = now_ + back_off(++hooks_.front().retries);
      }
      break;
    case Purpose::kReseed:
      reseed_recorded_ = false;
      break;
    case Purpose::kApplied:
    case Purpose::kContent:
    case Purpose::kAbort:
      break;  // resume_records() asks again
  }
}

// The log takes records again: give it the ones that were refused.
void AgentRole::resume_records() {
  if (reseed_ && !reseed_recorded_ && !is_pending(Purpose::kReseed, {})) {
    append(Purpose::kReseed, {}, ReseedRecord{*reseed_});
  }
  for (std::size_t i = 0; i < refits_.size(); ++i) {
    Refit& refit = refits_[i];
    if (refit.phase == Phase::kPrepared && refit.commit) {
      commit(refit, *refit.commit);
    } else if (refit.phase == Phase::kRecordingApplied &&
               !is_pending(Purpose::kApplied, refit.id)) {
      record_applied(refit);
    } else if (refit.phase == Phase::kRecordingAbort && !is_pending(Purpose::kAbort, refit.id)) {
      append(Purpose::kAbort, refit.id, AbortRecord{refit.id, refit.left_out});
    }
  }
  if (reseed_) return;
  if (verify_first_) compute_table(content_.lattice);
  compare_with_committed();
}

}  // namespace weft::apply
