// SPDX-License-Identifier: Apache-2.0
#include "apply/commit/agent_role.hpp"

#include <algorithm>
#include <utility>

namespace weft::apply {

AgentRole::AgentRole(AgentOptions options, AgentRecovery recovery)
    : options_(std::move(options)),
      recovery_(std::move(recovery)),
      fleet_(recovery_.fleet),
      epoch_(recovery_.epoch),
      content_(recovery_.content),
      boot_(recovery_.boot),
      files_(recovery_.files),
      newest_(recovery_.newest) {}

std::vector<AgentAction> AgentRole::step(const AgentEvent& event, TimePoint now) {
  now_ = now;
  out_.clear();
  if (stopped_) return {};
  std::visit([this](const auto& concrete) { on(concrete); }, event);
  if (started_ && !stopped_) {
    show();
    say_hello(false);
  }
  return std::exchange(out_, {});
}

void AgentRole::on(const agent::Start& event) {
  started_ = true;
  schema_ = event.schema;
  accepted_at_ = now_;
  verify_first_ = recovery_.row == StartRow::kNone || recovery_.verify_first;
  for (const RefitId& refit : recovery_.hooks_due) hooks_.push_back({refit, {}});
  if (recovery_.row == StartRow::kReseed) {
    reseed_ = recovery_.cause;
    reseed_recorded_ = !recovery_.record_cause;
    if (!reseed_recorded_) append(Purpose::kReseed, {}, ReseedRecord{*reseed_});
    return;
  }
  if (recovery_.front) {
    Refit refit;
    refit.id = recovery_.front->refit;
    refit.base = recovery_.front->base;
    refit.target = recovery_.front->target;
    refit.target_version = recovery_.front->target_version;
    refit.restarted = true;
    refit.prepared_at = now_;
    refit.query_at = now_;
    refit.check_written = recovery_.check_written;
    refit.phase = recovery_.row == StartRow::kBegun      ? Phase::kRestored
                  : recovery_.row == StartRow::kPrepared ? Phase::kPrepared
                                                         : Phase::kApplying;
    if (recovery_.front->prepared) refit.manifest_digest = recovery_.front->prepared->manifest;
    refits_.push_back(refit);
  }
  if (recovery_.behind) {
    Refit refit;
    refit.id = recovery_.behind->refit;
    refit.base = recovery_.behind->base;
    refit.target_version = recovery_.behind->target_version;
    refit.phase = Phase::kRestored;
    refit.restarted = true;
    refit.held = true;
    refits_.push_back(refit);
  }
  if (recovery_.row == StartRow::kCommitted) {
    apply(refits_.front());
  } else if (verify_first_) {
    compute_table(content_.lattice);
  }
  call_hooks();
}

void AgentRole::on(const agent::Tick&) {
  if (!started_) return;
  tick_session();
  tick_refits();
  call_hooks();
  if (probe_at_ && now_ >= *probe_at_ && !probing_ && unable_) {
    probing_ = true;
    probe_at_.reset();
    out_.push_back(agent::Probe{*unable_});
  }
}

void AgentRole::on(const agent::Probed& event) {
  probing_ = false;
  if (!unable_) return;
  if (!event.status) {
    unable_ = wire::Cause{event.status.error().code, event.status.error().detail};
    probe_at_ = now_ + back_off(++probes_);
    return;
  }
  unable_.reset();
  log_closed_ = false;
  probes_ = 0;
  note(Severity::kInfo, "able_again", "the node can take part again");
  resume_records();
}

void AgentRole::on(const agent::Reseeded& event) {
  boot_ = event.boot;
  files_ = event.files;
  record_content(event.content);
}

void AgentRole::on(const agent::WeightsDamaged& event) {
  need_reseed({event.error.code, event.error.detail});
}

// Whatever was under way ends: a journal says nothing about files that are no known version.
void AgentRole::need_reseed(const wire::Cause& cause) {
  if (reseed_) return;
  note(Severity::kError, "needs_reseed", cause.detail);
  reseed_ = cause;
  for (Refit& refit : refits_) {
    const bool votes = is_open(refit.phase);
    if (votes) {
      refit.phase = Phase::kRefused;
      refit.refusal = reseed_;
      say_vote(refit);
    }
    if (refit.phase != Phase::kForgetting) out_.push_back(agent::ForgetRefit{refit.id});
  }
  refits_.clear();
  hooks_.clear();
  append(Purpose::kReseed, {}, ReseedRecord{*reseed_});
}

// Left out of plans until a probe succeeds.
void AgentRole::be_unable(const Error& error) {
  unable_ = wire::Cause{error.code, error.detail};
  if (!probing_ && !probe_at_) probe_at_ = now_ + back_off(probes_);
}

Duration AgentRole::back_off(int retries) const {
  return options_.retry_period * (1 << std::min(retries, 5));
}

AgentRole::Refit* AgentRole::find(RefitId id) {
  const auto found =
      std::find_if(refits_.begin(), refits_.end(), [&](const Refit& r) { return r.id == id; });
  return found == refits_.end() ? nullptr : &*found;
}

// Has not voted: this node may still end it on its own.
bool AgentRole::is_open(Phase phase) const {
  return phase == Phase::kRestored || phase == Phase::kRecordingBegin || phase == Phase::kOpening ||
         phase == Phase::kStreaming || phase == Phase::kProving;
}

wire::MemberState AgentRole::state() const {
  if (reseed_) return wire::MemberState::kNeedsReseed;
  bool streaming = false;
  bool prepared = false;
  for (const Refit& refit : refits_) {
    switch (refit.phase) {
      case Phase::kRecordingCommit:
      case Phase::kApplying:
      case Phase::kRecordingApplied:
        return refit.untouched ? wire::MemberState::kLagging : wire::MemberState::kApplying;
      case Phase::kPrepared:
        prepared = true;
        break;
      case Phase::kRestored:
      case Phase::kRecordingAbort:
      case Phase::kForgetting:
        break;
      default:
        streaming = true;
    }
  }
  if (!started_ || (verify_first_ && !unable_)) return wire::MemberState::kStarting;
  if (prepared) return wire::MemberState::kPrepared;
  if (computing_) return wire::MemberState::kRehashing;
  if (unable_) return wire::MemberState::kLagging;
  if (content_.version.value == 0) return wire::MemberState::kUnversioned;
  if (streaming) return wire::MemberState::kStreaming;
  if (content_.version < committed_.version) return wire::MemberState::kLagging;
  return wire::MemberState::kClean;
}

std::optional<wire::Cause> AgentRole::cause() const {
  if (reseed_) return reseed_;
  for (const Refit& refit : refits_) {
    if (refit.phase == Phase::kApplying && refit.refusal) return refit.refusal;
  }
  if (unable_) return unable_;
  if (!hooks_.empty() && hooks_.front().cause) return hooks_.front().cause;
  if (state() != wire::MemberState::kLagging) return std::nullopt;
  return wire::Cause{ErrorCode::kVersionOrder,
                     "at version " + std::to_string(content_.version.value) +
                         ", the fleet has committed " + std::to_string(committed_.version.value)};
}

bool AgentRole::ready() const {
  if (reseed_ || verify_first_ || content_.version.value == 0 || !level_seen_ || computing_) {
    return false;
  }
  if (content_.version.value + options_.ready_lag_max < committed_.version.value) return false;
  for (const Refit& refit : refits_) {
    const bool changing = refit.phase == Phase::kRecordingCommit ||
                          refit.phase == Phase::kApplying ||
                          refit.phase == Phase::kRecordingApplied;
    if (changing && options_.in_place && !refit.untouched) return false;
    if (has_failed_long(refit.hook_failing)) return false;
    if (refit.phase == Phase::kPrepared && now_ - refit.prepared_at > options_.in_doubt_after) {
      return false;
    }
  }
  return hooks_.empty() || !has_failed_long(hooks_.front().failing);
}

void AgentRole::show() {
  agent::ShowState shown;
  shown.state = state();
  shown.cause = cause();
  shown.content = content_;
  shown.committed = committed_;
  shown.ready = ready();
  const bool same = shown_ && shown_->state == shown.state && shown_->cause == shown.cause &&
                    shown_->content == shown.content && shown_->committed == shown.committed &&
                    shown_->ready == shown.ready;
  if (same) return;
  shown_ = shown;
  out_.push_back(std::move(shown));
}

void AgentRole::note(Severity severity, const char* name, std::string detail) {
  out_.push_back(agent::Note{severity, name, std::move(detail)});
}

}  // namespace weft::apply
