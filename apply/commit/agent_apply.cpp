// SPDX-License-Identifier: Apache-2.0
// One refit at one agent, from its decision to its end.
#include <algorithm>
#include <utility>

#include "apply/commit/agent_role.hpp"

namespace weft::apply {

namespace {

bool may_pass(ErrorCode code) {
  return code == ErrorCode::kNoSpace || code == ErrorCode::kBusy || code == ErrorCode::kTimeout ||
         code == ErrorCode::kResourceLimit;
}

}  // namespace

void AgentRole::decided_commit(Refit& refit, const Content& target) {
  switch (refit.phase) {
    case Phase::kPrepared:
      if (target.root != refit.target.root || target.version != refit.target_version) {
        note(Severity::kError, "decision_refused",
             "COMMIT of " + to_string(refit.id) + " names root " + to_hex(target.root) +
                 ", PREPARED was for " + to_hex(refit.target.root));
        return;
      }
      commit(refit, target);
      return;
    case Phase::kOpening:
    case Phase::kStreaming:
    case Phase::kProving:
    case Phase::kRecordingPrepared:
      // Too slow for the vote: what this node proves itself it may still apply.
      if (refit.manifest && refit.target == target) {
        refit.commit = target;
      } else {
        abort(refit, true);
      }
      return;
    case Phase::kRestored:
    case Phase::kRecordingBegin:
    case Phase::kRefused:
      abort(refit, true);
      return;
    default:
      return;  // under way; the Ack comes at its end
  }
}

void AgentRole::decided_abort(Refit& refit, const Content& target) {
  switch (refit.phase) {
    case Phase::kPrepared:
    case Phase::kRecordingPrepared:
      if (target.root != refit.target.root) {
        note(Severity::kError, "decision_refused",
             "ABORT of " + to_string(refit.id) + " names root " + to_hex(target.root) +
                 ", PREPARED was for " + to_hex(refit.target.root));
        return;
      }
      [[fallthrough]];
    case Phase::kRestored:
    case Phase::kRecordingBegin:
    case Phase::kOpening:
    case Phase::kStreaming:
    case Phase::kProving:
    case Phase::kRefused:
      abort(refit, false);
      return;
    case Phase::kRecordingCommit:
    case Phase::kApplying:
    case Phase::kRecordingApplied:
      note(Severity::kError, "decision_refused",
           "ABORT of " + to_string(refit.id) + " after its COMMIT was told");
      return;
    case Phase::kRecordingAbort:
    case Phase::kForgetting:
      return;
  }
}

void AgentRole::commit(Refit& refit, const Content& target) {
  refit.commit = target;
  if (verify_first_ || log_closed_) return;  // taken up again when that has ended
  refit.phase = Phase::kRecordingCommit;
  append(Purpose::kCommit, refit.id, CommitRecord{refit.id, target});
}

void AgentRole::apply(Refit& refit) {
  refit.phase = Phase::kApplying;
  refit.retry_at.reset();
  refit.untouched = false;  // from here on bytes may change at any moment
  out_.push_back(agent::ApplyJournal{refit.id, refit.target, refit.check_written, refit.restarted});
}

void AgentRole::on(const agent::Applied& event) {
  Refit* refit = find(event.refit);
  if (!refit || refit->phase != Phase::kApplying) return;
  refit->phase = Phase::kRecordingApplied;
  refit->untouched = false;
  refit->refusal.reset();
  refit->boot = event.boot;
  refit->files = event.files;
  record_applied(*refit);
}

void AgentRole::record_applied(Refit& refit) {
  append(Purpose::kApplied, refit.id,
         AppliedRecord{refit.id, refit.target, refit.boot, refit.files});
}

void AgentRole::on(const agent::ApplyFailed& event) {
  Refit* refit = find(event.refit);
  if (!refit || refit->phase != Phase::kApplying) return;
  if (!may_pass(event.error.code)) {
    need_reseed({event.error.code, event.error.detail});
    return;
  }
  refit->refusal = wire::Cause{event.error.code, event.error.detail};
  refit->touched = refit->touched || refit->restarted || !event.untouched;
  refit->untouched = !refit->touched;
  if (event.by_hook) {
    if (!refit->hook_failing) refit->hook_failing = now_;
  } else {
    refit->hook_failing.reset();
  }
  refit->retry_at = now_ + back_off(refit->retries++);
}

void AgentRole::finish_applied(RefitId id) {
  const auto found =
      std::find_if(refits_.begin(), refits_.end(), [&](const Refit& r) { return r.id == id; });
  content_ = found->target;
  boot_ = found->boot;
  files_ = std::move(found->files);
  refits_.erase(found);
  out_.push_back(agent::RetireRefit{id});
  learn_committed(content_);
  compare_with_committed();
  acknowledge(id, std::nullopt);
  if (options_.hooks) {
    hooks_.push_back({id, {}});
    call_hooks();
  }
  release_held();
}

// The base of a refit that was only spooled so far has been applied.
void AgentRole::release_held() {
  for (std::size_t i = 0; i < refits_.size(); ++i) {
    Refit& refit = refits_[i];
    if (!refit.held || refit.base != content_) continue;
    // One that is being opened to be spooled only: when it is open.
    if (refit.phase == Phase::kOpening) continue;
    refit.held = false;
    if (refit.phase == Phase::kStreaming && !refit.resolving) {
      refit.resolving = true;
      out_.push_back(agent::StartResolve{refit.id});
      if (refit.manifest) prove(refit);
    }
  }
}

void AgentRole::abort(Refit& refit, bool left_out) {
  refit.phase = Phase::kRecordingAbort;
  refit.left_out = left_out;
  append(Purpose::kAbort, refit.id, AbortRecord{refit.id, left_out});
}

void AgentRole::on(const agent::RefitForgotten& event) {
  const auto found = std::find_if(refits_.begin(), refits_.end(),
                                  [&](const Refit& r) { return r.id == event.refit; });
  if (found == refits_.end() || found->phase != Phase::kForgetting) return;
  const bool left_out = found->left_out;
  const Version target = found->target_version;
  refits_.erase(found);
  std::optional<wire::Cause> why;
  if (left_out) {
    why = wire::Cause{ErrorCode::kVersionOrder,
                      "took no part in version " + std::to_string(target.value)};
  }
  acknowledge(event.refit, std::move(why));
}

void AgentRole::acknowledge(RefitId refit, std::optional<wire::Cause> cause) {
  if (!session_ || !session_->accepted) return;  // the decision is told again, and answered then
  say(wire::Ack{refit, content_, std::move(cause)});
}

void AgentRole::call_hooks() {
  if (hooks_.empty() || !options_.hooks || reseed_) return;
  Hook& hook = hooks_.front();
  if (hook.running || (hook.retry_at && now_ < *hook.retry_at)) return;
  hook.running = true;
  out_.push_back(agent::CallAfterApply{hook.refit, content_});
}

void AgentRole::on(const agent::HookDone& event) {
  if (hooks_.empty() || hooks_.front().refit != event.refit) return;
  Hook& hook = hooks_.front();
  if (!event.status) {
    note(Severity::kWarning, "after_apply_failed", event.status.error().message());
    hook.running = false;
    hook.retry_at = now_ + back_off(++hook.retries);
    hook.cause = wire::Cause{event.status.error().code, event.status.error().detail};
    if (!hook.failing) hook.failing = now_;
    return;
  }
  append(Purpose::kHooked, event.refit, HookedRecord{event.refit});
}

void AgentRole::tick_refits() {
  const bool alone = now_ - accepted_at_ > options_.abandon_after;
  for (std::size_t i = 0; i < refits_.size(); ++i) {
    Refit& refit = refits_[i];
    const bool late = refit.manifest && now_ > refit.prove_deadline && !refit.commit;
    if (refit.phase == Phase::kPrepared && now_ >= refit.query_at && !refit.commit) {
      refit.query_at = now_ + options_.query_period;
      if (session_ && session_->accepted) {
        say(wire::DecisionQuery{{refit.id, refit.base, refit.target}});
      }
    } else if (refit.phase == Phase::kApplying && refit.retry_at && now_ >= *refit.retry_at) {
      apply(refit);
    } else if (is_open(refit.phase) && late) {
      refuse(refit, make_error(ErrorCode::kTimeout, Stage::kPrepare,
                               "not proved before the vote's deadline"));
      return;  // refits_ may have changed
    } else if (is_open(refit.phase) && alone) {
      abort(refit, false);
    }
  }
}

}  // namespace weft::apply
