// SPDX-License-Identifier: Apache-2.0
// The producer's side of its connection: whose word counts, and what it is answered.
#include <utility>

#include "apply/commit/producer_role.hpp"

namespace weft::apply {

void ProducerRole::on(const producer::SessionOpened& event) {
  if (session_ && event.session < session_->id) return;
  session_ = Session{};
  session_->id = event.session;
  session_->heard_at = now_;
  say_hello();
}

void ProducerRole::on(const producer::SessionClosed& event) {
  if (session_ && session_->id == event.session) session_.reset();
}

void ProducerRole::on(const producer::CoordinatorSaid& event) {
  if (!session_ || session_->id != event.session) return;
  session_->heard_at = now_;
  const bool greeting = std::holds_alternative<wire::Welcome>(event.message) ||
                        std::holds_alternative<wire::SessionRefused>(event.message);
  if (!session_->accepted && !greeting) return;  // its epoch is not stored: it is told again
  std::visit([this](const auto& message) { heard(message); }, event.message);
}

template <typename Message>
void ProducerRole::heard(const Message&) {}

void ProducerRole::heard(const wire::Welcome& message) {
  const bool stranger = !fleet_.is_zero() && message.fleet != fleet_;
  const bool fenced =
      message.epoch.number < epoch_.number ||
      (message.epoch.number == epoch_.number && message.epoch.coordinator != epoch_.coordinator);
  if (stranger || fenced) {
    close_session(make_error(stranger ? ErrorCode::kDenied : ErrorCode::kFenced, Stage::kControl,
                             stranger ? "the coordinator is of another fleet"
                                      : "the coordinator's epoch is behind the stored one"));
    return;
  }
  session_->epoch = message.epoch;
  session_->fleet = message.fleet;
  accept_session();
}

// Its word counts once its epoch is stored.
void ProducerRole::accept_session() {
  if (!session_ || session_->epoch.number == 0) return;
  if (session_->epoch != epoch_ || session_->fleet != fleet_) {
    for (const PendingLog& entry : logging_) {
      if (entry.purpose == Purpose::kEpoch) return;  // called again when that is synced
    }
    if (session_->epoch.number > epoch_.number) {
      append(Purpose::kEpoch, ProducerEpochRecord{session_->fleet, session_->epoch});
    }
    return;
  }
  if (session_->accepted) return;
  session_->accepted = true;
  say_hello();
  repeat_at_ = now_;
  tick_refit();
}

void ProducerRole::heard(const wire::SessionRefused& message) {
  close_session(make_error(message.cause.code, Stage::kControl, message.cause.detail));
}

void ProducerRole::close_session(Error reason) {
  note(Severity::kWarning, "session_closed", reason.message());
  out_.push_back(producer::CloseSession{session_->id, std::move(reason)});
  session_.reset();
}

void ProducerRole::heard(const wire::Plan& message) {
  if (message.fleet != fleet_ || message.refit.epoch != epoch_) return;
  if (refit_ == message.refit) {
    if (!plan_ || message.revision <= plan_->revision) return;
    plan_ = message;
    if (phase_ == Phase::kEncoding || phase_ == Phase::kRecording || phase_ == Phase::kSealed) {
      out_.push_back(producer::UpdatePlan{message});
    }
    return;
  }
  if (newest_ && message.refit <= *newest_) return;  // an attempt that has ended here
  const std::uint32_t place = options_.producer.value;
  const bool answers = phase_ == Phase::kBeginning && place < message.requests.size() &&
                       message.requests[place] == publish_->request + requests_ &&
                       message.base == content_ &&
                       message.target_version == publish_->target_version;
  if (!answers) {
    const wire::Cause cause{ErrorCode::kTimeout, "this begin was given up"};
    say(wire::AbortRequest{message.refit, 0, cause});
    return;
  }
  refit_ = message.refit;
  newest_ = message.refit;
  earlier_ = false;
  plan_ = message;
  seal_.reset();
  pending_.reset();
  seal_heard_ = false;
  outcome_.reset();
  phase_ = Phase::kEncoding;
  out_.push_back(producer::StartEncode{message});
}

// All producers have reported: the target's root is known from here on.
void ProducerRole::heard(const wire::Seal& message) {
  if (refit_ != message.manifest.refit || phase_ != Phase::kSealed || seal_heard_) return;
  const std::uint32_t place = options_.producer.value;
  if (place >= message.manifest.producers.size() || !seal_ ||
      message.manifest.producers[place] != *seal_) {
    say(wire::AbortRequest{*refit_, 0, {ErrorCode::kProtocol, "the manifest has another seal"}});
    return;
  }
  seal_heard_ = true;
  pending_->prepared.target = message.manifest.target;
  repeat_at_ = now_ + options_.repeat_period;
}

void ProducerRole::heard(const wire::Decision& message) {
  if (message.verdict == wire::Verdict::kUndecided) return;
  if (refit_ != message.refit) {
    say(wire::Ack{message.refit, content_, std::nullopt});  // ended here before
    return;
  }
  const bool waits = phase_ == Phase::kSealed;
  const Digest root = waits && pending_ ? pending_->prepared.target.root : Digest{};
  if (message.verdict == wire::Verdict::kAbort) {
    if (waits || phase_ == Phase::kEncoding || phase_ == Phase::kRecording) {
      const wire::Cause cause =
          message.cause.value_or(wire::Cause{ErrorCode::kInternal, "aborted without a cause"});
      drop(make_error(cause.code, Stage::kDecide, cause.detail), true);
    } else if (phase_ == Phase::kMoving || phase_ == Phase::kRecordingMoved) {
      note(Severity::kError, "decision_refused", "ABORT after COMMIT: " + to_string(*refit_));
    }
    return;
  }
  if (phase_ == Phase::kMoving || phase_ == Phase::kRecordingMoved ||
      phase_ == Phase::kAcknowledging) {
    return;
  }
  const bool fits = waits && pending_ &&
                    message.target.version == pending_->prepared.target.version &&
                    message.target.lattice == pending_->prepared.target.lattice &&
                    (root.is_zero() || message.target.root == root);
  if (fits) {
    move(message.target);
  } else {
    note(Severity::kError, "decision_refused",
         "COMMIT of " + to_string(*refit_) + " names another target than was sealed");
  }
}

void ProducerRole::heard(const wire::BeginRefused& message) {
  if (phase_ != Phase::kBeginning || message.request != publish_->request + requests_) return;
  if (message.already_committed) {
    finish(ok(), true);
    return;
  }
  if (message.cause.code == ErrorCode::kBusy && now_ < busy_until_) return;  // said again
  if (message.cause.code == ErrorCode::kVersionOrder && !target_part_ &&
      message.committed.version == publish_->target_version) {
    refusal_ = message.cause;
    phase_ = Phase::kTargetPart;
    out_.push_back(producer::ComputeTargetPart{});
    return;
  }
  finish(make_error(message.cause.code, Stage::kPublish, message.cause.detail), false);
}

void ProducerRole::heard(const wire::RefitOutcome& message) {
  if (refit_ == message.refit) outcome_ = message;
  out_.push_back(producer::ShowOutcome{message});
}

void ProducerRole::heard(const wire::AckReceived& message) {
  if (phase_ == Phase::kAcknowledging && refit_ == message.refit) resolved(ok());
}

void ProducerRole::say(wire::MemberMessage message) {
  if (!session_) return;
  session_->sent_at = now_;
  out_.push_back(producer::Send{session_->id, std::move(message)});
}

void ProducerRole::say_hello() {
  hello_at_ = now_ + options_.hello_period;
  wire::Hello hello;
  hello.role = wire::Role::kProducer;
  hello.endpoint = options_.endpoint;
  hello.fleet = fleet_;
  hello.epoch = epoch_;
  hello.schema = options_.schema;
  hello.content = content_;
  hello.state = wire::MemberState::kClean;
  if (phase_ == Phase::kSealed && pending_) {
    hello.state = wire::MemberState::kPrepared;
    hello.prepared = pending_->prepared;
  } else if (phase_ == Phase::kEncoding || phase_ == Phase::kRecording) {
    hello.state = wire::MemberState::kStreaming;
    hello.begun = refit_;
  } else if (phase_ == Phase::kMoving || phase_ == Phase::kRecordingMoved) {
    hello.state = wire::MemberState::kApplying;
  }
  say(std::move(hello));
}

void ProducerRole::tick_session() {
  if (!session_) return;
  if (now_ - session_->heard_at > options_.coordinator_lost_after) {
    close_session(
        make_error(ErrorCode::kTimeout, Stage::kControl, "nothing heard from the coordinator"));
    return;
  }
  const bool due = now_ - session_->sent_at >= options_.heartbeat_period;
  if (now_ >= hello_at_ || (due && !session_->accepted)) {
    say_hello();
  } else if (due) {
    say(wire::Heartbeat{});
  }
}

}  // namespace weft::apply
