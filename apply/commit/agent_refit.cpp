// SPDX-License-Identifier: Apache-2.0
// One refit at one agent, from its plan to its vote.
#include <algorithm>
#include <utility>

#include "apply/commit/agent_role.hpp"

namespace weft::apply {

namespace {

std::string versions(const Content& ours, const Content& planned) {
  return "the plan's base is version " + std::to_string(planned.version.value) + " root " +
         to_hex(planned.root) + ", this node is at version " + std::to_string(ours.version.value) +
         " root " + to_hex(ours.root);
}

}  // namespace

// A plan of a refit that is new here. Refits that have not voted give way to it: the coordinator
// has one refit open at a time. One that is PREPARED does not: its decision comes first.
bool AgentRole::may_begin(const wire::Plan& plan) {
  const auto place =
      std::find_if(plan.nodes.begin(), plan.nodes.end(), [&](const wire::Endpoint& node) {
        return node.member_id == options_.endpoint.member_id &&
               node.process == options_.endpoint.process;
      });
  if (place == plan.nodes.end()) return false;
  if (verify_first_ || computing_) return false;  // told again
  bool applying_base = false;
  for (std::size_t i = 0; i < refits_.size(); ++i) {
    Refit& refit = refits_[i];
    switch (refit.phase) {
      case Phase::kRecordingPrepared:
        return false;
      case Phase::kPrepared:
        if (refit.query_at > now_) {
          refit.query_at = now_ + options_.query_period;
          say(wire::DecisionQuery{{refit.id, refit.base, refit.target}});
        }
        return false;
      case Phase::kRecordingCommit:
      case Phase::kApplying:
      case Phase::kRecordingApplied:
        applying_base = refit.target == plan.base;
        if (!applying_base) return false;
        break;
      case Phase::kRecordingAbort:
      case Phase::kForgetting:
        break;
      default:
        abort(refit, false);
    }
  }
  const bool fits = content_ == plan.base || applying_base;
  if (!fits || reseed_) {
    const wire::Cause why =
        reseed_ ? *reseed_ : wire::Cause{ErrorCode::kBaseMismatch, versions(content_, plan.base)};
    if (content_.version.value == 0 && !reseed_) {
      learn_committed(plan.base);  // takes its version from the plan; the plan is told again
    } else {
      say(wire::Vote{plan.refit, false, why, {}, {}});
    }
    return false;
  }
  return true;
}

void AgentRole::begin(const wire::Plan& plan) {
  Refit refit;
  refit.id = plan.refit;
  refit.base = plan.base;
  refit.target_version = plan.target_version;
  refit.plan = plan;
  refit.held = content_ != plan.base;
  refit.phase = Phase::kRecordingBegin;
  newest_ = plan.refit;
  refits_.push_back(std::move(refit));
  append(Purpose::kBegin, plan.refit, BeginRecord{plan.refit, plan.base, plan.target_version});
}

void AgentRole::known_plan(Refit& refit, const wire::Plan& plan) {
  switch (refit.phase) {
    case Phase::kRestored:
      if (verify_first_ || computing_ || plan.base != refit.base) return;
      if (content_ != plan.base && !refit.held) return;
      refit.plan = plan;
      refit.held = content_ != plan.base;
      open(refit);
      return;
    case Phase::kRecordingAbort:
    case Phase::kForgetting:
      return;
    default:
      break;
  }
  if (refit.plan && plan.revision <= refit.plan->revision) {
    // Told again: the coordinator has not heard from us.
    if (refit.phase == Phase::kRefused || refit.phase == Phase::kPrepared) {
      say_vote(refit);
    } else if (refit.phase == Phase::kStreaming || refit.phase == Phase::kProving) {
      say(wire::Progress{refit.id, 0, 0, {}});
    }
    return;
  }
  refit.plan = plan;
  if (refit.phase != Phase::kRecordingBegin) out_.push_back(agent::UpdatePlan{plan});
}

void AgentRole::open(Refit& refit) {
  refit.phase = Phase::kOpening;
  refit.resolving = !refit.held;
  out_.push_back(agent::OpenRefit{*refit.plan, refit.resolving});
}

void AgentRole::on(const agent::RefitOpened& event) {
  Refit* refit = find(event.refit);
  if (!refit || refit->phase != Phase::kOpening) return;
  refit->phase = Phase::kStreaming;
  progress_at_ = now_ + options_.progress_period;
  say(wire::Progress{refit->id, 0, 0, {}});
  release_held();
  if (refit->manifest && refit->resolving) prove(*refit);
}

void AgentRole::on(const agent::RefitFailed& event) {
  Refit* refit = find(event.refit);
  if (refit && is_open(refit->phase)) refuse(*refit, event.error);
}

void AgentRole::on(const agent::RefitProgressed& event) {
  const Refit* refit = find(event.refit);
  if (!refit || !is_open(refit->phase) || now_ < progress_at_) return;
  progress_at_ = now_ + options_.progress_period;
  say(wire::Progress{event.refit, event.frames, event.bytes, {}});
}

void AgentRole::on(const agent::LinkLost& event) {
  if (find(event.refit)) say(wire::Progress{event.refit, 0, 0, event.member_id});
}

void AgentRole::prove(Refit& refit) {
  refit.phase = Phase::kProving;
  out_.push_back(agent::Prove{*refit.manifest, refit.prove_deadline});
}

void AgentRole::on(const agent::Proved& event) {
  Refit* refit = find(event.refit);
  if (!refit || refit->phase != Phase::kProving) return;
  refit->phase = Phase::kRecordingPrepared;
  append(Purpose::kPrepared, refit->id,
         PreparedRecord{{refit->id, refit->base, refit->target}, refit->manifest_digest});
}

void AgentRole::on(const agent::ProveFailed& event) {
  Refit* refit = find(event.refit);
  if (refit && refit->phase == Phase::kProving) refuse(*refit, event.error);
}

// A NO is final for this attempt. The refit stays open, and relays, until its decision.
void AgentRole::refuse(Refit& refit, const Error& error) {
  refit.phase = Phase::kRefused;
  refit.refusal = wire::Cause{error.code, error.detail};
  say_vote(refit);
  switch (error.code) {
    case ErrorCode::kNoSpace:
    case ErrorCode::kIoFailed:
    case ErrorCode::kResourceLimit:
      be_unable(error);
      break;
    case ErrorCode::kConcurrentModification:
      verify_first_ = true;  // whatever they are now: not trusted until the table says so
      compute_table(content_.lattice);
      break;
    case ErrorCode::kBaseMismatch:
      need_reseed(*refit.refusal);  // until chunks can be repaired from peers
      return;
    default:
      break;
  }
  if (refit.commit) abort(refit, true);
}

void AgentRole::say_vote(const Refit& refit) {
  wire::Vote vote;
  vote.refit = refit.id;
  vote.yes = refit.phase == Phase::kPrepared;
  if (vote.yes) {
    vote.manifest = refit.manifest_digest;
    vote.target_root = refit.target.root;
  } else {
    vote.cause = refit.refusal;
  }
  say(std::move(vote));
}

}  // namespace weft::apply
