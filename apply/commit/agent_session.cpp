// SPDX-License-Identifier: Apache-2.0
// The agent's side of its connection: whose word counts, and what it is answered.
#include <utility>

#include "apply/commit/agent_role.hpp"

namespace weft::apply {

void AgentRole::on(const agent::SessionOpened& event) {
  if (session_ && event.session < session_->id) return;
  session_ = Session{};
  session_->id = event.session;
  session_->heard_at = now_;
  told_.reset();
  if (started_) say_hello(true);
}

void AgentRole::on(const agent::SessionClosed& event) {
  if (session_ && session_->id == event.session) session_.reset();
}

void AgentRole::on(const agent::CoordinatorSaid& event) {
  if (!session_ || session_->id != event.session) return;
  session_->heard_at = now_;
  if (session_->accepted) accepted_at_ = now_;
  const bool greeting = std::holds_alternative<wire::Welcome>(event.message) ||
                        std::holds_alternative<wire::SessionRefused>(event.message);
  if (!session_->accepted && !greeting) return;  // its epoch is not stored: it is told again
  std::visit([this](const auto& message) { heard(message); }, event.message);
}

template <typename Message>
void AgentRole::heard(const Message&) {}

void AgentRole::heard(const wire::Welcome& message) {
  if (!fleet_.is_zero() && message.fleet != fleet_) {
    close_session(make_error(ErrorCode::kDenied, Stage::kControl,
                             "the coordinator's fleet is " + to_hex(message.fleet) +
                                 ", this node belongs to " + to_hex(fleet_)));
    return;
  }
  const bool fenced =
      message.epoch.number < epoch_.number ||
      (message.epoch.number == epoch_.number && message.epoch.coordinator != epoch_.coordinator);
  if (fenced) {
    close_session(make_error(ErrorCode::kFenced, Stage::kControl,
                             "the coordinator's epoch is " + std::to_string(message.epoch.number) +
                                 ", this node has stored " + std::to_string(epoch_.number)));
    return;
  }
  session_->epoch = message.epoch;
  session_->fleet = message.fleet;
  session_->committed = message.committed;
  accept_session();
}

// Its word counts once its epoch is stored.
void AgentRole::accept_session() {
  if (!session_ || session_->epoch.number == 0) return;
  if (session_->epoch != epoch_ || session_->fleet != fleet_) {
    if (session_->epoch.number > epoch_.number && !is_pending(Purpose::kEpoch, {})) {
      append(Purpose::kEpoch, {}, EpochRecord{session_->fleet, session_->epoch});
    }
    return;
  }
  const bool first = !session_->accepted;
  session_->accepted = true;
  accepted_at_ = now_;
  if (first) say_hello(true);
  learn_committed(session_->committed);
}

void AgentRole::heard(const wire::Rehash& message) {
  if (reseed_ || verify_first_ || message.lattice == content_.lattice) {
    say_hello(true);
    return;
  }
  if (content_.version.value == 0 && message.lattice == table_.lattice) {
    say_hello(true);
    return;
  }
  if (!refits_.empty()) return;  // told again
  compute_table(message.lattice);
}

void AgentRole::heard(const wire::Plan& message) {
  if (message.fleet != fleet_ || message.refit.epoch != epoch_) return;
  if (Refit* known = find(message.refit)) {
    known_plan(*known, message);
    return;
  }
  if (newest_ && message.refit <= *newest_) return;  // an attempt that has ended here
  if (may_begin(message)) begin(message);
}

void AgentRole::heard(const wire::Seal& message) {
  Refit* refit = find(message.manifest.refit);
  if (!refit) return;
  if (refit->phase == Phase::kPrepared || refit->phase == Phase::kRefused) {
    say_vote(*refit);
    return;
  }
  if (!is_open(refit->phase) || refit->phase == Phase::kRestored) return;
  if (refit->manifest) {
    if (*refit->manifest == message.manifest) return;
    refuse(*refit, make_error(ErrorCode::kPayloadConflict, Stage::kPrepare,
                              "two manifests for " + to_string(refit->id)));
    return;
  }
  const wire::Manifest& manifest = message.manifest;
  const bool fits = manifest.fleet == fleet_ && manifest.base == refit->base &&
                    manifest.schema == schema_ &&
                    manifest.target.version == refit->target_version &&
                    manifest.target.lattice == refit->base.lattice;
  if (!fits) {
    refuse(*refit, make_error(ErrorCode::kProtocol, Stage::kPrepare,
                              "the manifest is not of the planned refit"));
    return;
  }
  refit->manifest = manifest;
  refit->manifest_digest = manifest.digest();
  refit->target = manifest.target;
  refit->prove_deadline = now_ + std::chrono::milliseconds(message.prepare_timeout_ms);
  if (refit->phase == Phase::kStreaming && refit->resolving) prove(*refit);
}

void AgentRole::heard(const wire::Decision& message) {
  Refit* refit = find(message.refit);
  if (message.verdict == wire::Verdict::kUndecided) {
    if (refit) refit->query_at = now_ + options_.query_period;
    return;
  }
  const bool commits = message.verdict == wire::Verdict::kCommit;
  if (!refit) {
    // Ended here before: the answer is what the files are.
    std::optional<wire::Cause> why;
    if (reseed_) why = reseed_;
    if (!why && commits && content_.version < message.target.version) {
      why = wire::Cause{ErrorCode::kVersionOrder,
                        "took no part in version " + std::to_string(message.target.version.value)};
    }
    acknowledge(message.refit, why);
  } else if (commits) {
    decided_commit(*refit, message.target);
  } else {
    decided_abort(*refit, message.target);
  }
  if (commits) learn_committed(message.target);
}

void AgentRole::heard(const wire::SessionRefused& message) {
  close_session(make_error(message.cause.code, Stage::kControl, message.cause.detail));
}

void AgentRole::close_session(Error reason) {
  note(Severity::kWarning, "session_closed", reason.message());
  out_.push_back(agent::CloseSession{session_->id, std::move(reason)});
  session_.reset();
}

void AgentRole::say(wire::MemberMessage message) {
  if (!session_) return;
  session_->sent_at = now_;
  out_.push_back(agent::Send{session_->id, std::move(message)});
}

wire::Hello AgentRole::hello() const {
  wire::Hello hello;
  hello.role = wire::Role::kAgent;
  hello.endpoint = options_.endpoint;
  hello.fleet = fleet_;
  hello.epoch = epoch_;
  hello.state = state();
  hello.cause = cause();
  hello.schema = schema_;
  hello.content = content_.version.value == 0 ? table_ : content_;
  hello.ready = ready();
  for (const Refit& refit : refits_) {
    if (refit.phase == Phase::kPrepared) {
      hello.prepared = wire::PreparedRefit{refit.id, refit.base, refit.target};
    } else if (is_open(refit.phase) || refit.phase == Phase::kRefused ||
               refit.phase == Phase::kRecordingPrepared) {
      hello.begun = refit.id;
    }
  }
  return hello;
}

void AgentRole::say_hello(bool always) {
  if (!session_ || (!always && !session_->accepted)) return;
  wire::Hello current = hello();
  if (!always && told_ == current) return;
  told_ = current;
  hello_at_ = now_ + options_.hello_period;
  say(std::move(current));
}

void AgentRole::tick_session() {
  if (!session_) return;
  if (now_ - session_->heard_at > options_.coordinator_lost_after) {
    close_session(
        make_error(ErrorCode::kTimeout, Stage::kControl, "nothing heard from the coordinator"));
    return;
  }
  if (now_ >= hello_at_) say_hello(true);
  if (now_ - session_->sent_at >= options_.heartbeat_period) say(wire::Heartbeat{});
}

}  // namespace weft::apply
