// SPDX-License-Identifier: Apache-2.0
// One refit at one producer: from Publish to a moved baseline or dropped values.
#include <utility>

#include "apply/commit/producer_role.hpp"

namespace weft::apply {

void ProducerRole::on(const producer::Publish& event) {
  const bool waits_for_earlier = earlier_ && !publish_;
  if (phase_ != Phase::kIdle && !waits_for_earlier) {
    out_.push_back(producer::PublishDone{
        event.request,
        failure(ErrorCode::kBusy, Stage::kPublish, "another refit of this producer is open"),
        false,
        0,
        content_,
        {}});
    return;
  }
  publish_ = event;
  requests_ = 0;
  attempts_ = 0;
  target_part_.reset();
  outcome_.reset();
  deadline_ = now_ + event.begin_timeout;
  busy_until_ = now_ + event.busy_timeout;
  if (!waits_for_earlier) {
    begin();
  } else {
    repeat_at_ = now_;  // asks for that decision, or moves the baseline again
    retry_at_ = now_;
    tick_refit();
  }
}

void ProducerRole::begin() {
  ++attempts_;
  deadline_ = now_ + publish_->begin_timeout;
  say_begin();
}

void ProducerRole::say_begin() {
  ++requests_;
  phase_ = Phase::kBeginning;
  repeat_at_ = now_;
  tick_refit();
}

void ProducerRole::on(const producer::TargetPart& event) {
  if (phase_ != Phase::kTargetPart) return;
  if (!event.part) {
    finish(make_error(refusal_->code, Stage::kPublish, refusal_->detail), false);
    return;
  }
  target_part_ = *event.part;
  deadline_ = now_ + publish_->begin_timeout;
  say_begin();
}

void ProducerRole::on(const producer::EncodeProgressed& event) {
  if (refit_ != event.refit || phase_ != Phase::kEncoding || now_ < progress_at_) return;
  progress_at_ = now_ + options_.progress_period;
  say(wire::Progress{event.refit, event.frames, event.bytes, {}});
}

void ProducerRole::on(const producer::LinkLost& event) {
  if (refit_ == event.refit) say(wire::Progress{event.refit, 0, 0, event.member_id});
}

void ProducerRole::on(const producer::Encoded& event) {
  if (refit_ != event.refit || phase_ != Phase::kEncoding) return;
  seal_ = event.seal;
  PendingRecord record;
  record.prepared.refit = event.refit;
  record.prepared.base = content_;
  record.prepared.target = Content{plan_->target_version, content_.lattice, {}};
  record.part = event.seal.part;
  pending_ = record;
  phase_ = Phase::kRecording;
  append(Purpose::kPending, record);
}

// The new values are durable beside the baseline: from here on only the decision ends the refit.
void ProducerRole::sealed() {
  phase_ = Phase::kSealed;
  repeat_at_ = now_;
  deadline_ = now_ + publish_->commit_timeout;
  tick_refit();
}

void ProducerRole::on(const producer::EncodeFailed& event) {
  if (refit_ == event.refit && phase_ == Phase::kEncoding) give_up(event.error);
}

// Before its seal was told a producer ends the refit on its own: it cannot be committed without it.
void ProducerRole::give_up(Error error) {
  say(wire::AbortRequest{*refit_, publish_->request + requests_, {error.code, error.detail}});
  drop(std::move(error), false);
}

void ProducerRole::on(const producer::Cancel& event) {
  if (!publish_) return;
  switch (phase_) {
    case Phase::kBeginning:
    case Phase::kTargetPart: {
      const wire::Cause cause{event.error.code, event.error.detail};
      say(wire::AbortRequest{{}, publish_->request + requests_, cause});
      finish(event.error, false);
      break;
    }
    case Phase::kEncoding:
    case Phase::kRecording:
      give_up(event.error);
      break;
    case Phase::kDropping:
    case Phase::kRecordingDrop:
      retry_ = false;
      break;
    default:
      break;  // the decision is waited for
  }
}

void ProducerRole::drop(Error error, bool retry) {
  abort_error_ = std::move(error);
  retry_ = retry;
  phase_ = Phase::kDropping;
  out_.push_back(producer::DropPending{*refit_});
}

void ProducerRole::on(const producer::PendingDropped& event) {
  if (refit_ != event.refit || phase_ != Phase::kDropping) return;
  if (!pending_) {
    dropped();
    return;
  }
  phase_ = Phase::kRecordingDrop;
  append(Purpose::kDropped, DroppedRecord{*refit_});
}

void ProducerRole::dropped() {
  say(wire::Ack{*refit_, content_, std::nullopt});
  resolved(*abort_error_);
}

void ProducerRole::move(const Content& target) {
  phase_ = Phase::kMoving;
  move_failed_ = false;
  moving_to_ = target;
  out_.push_back(producer::MoveBaseline{*refit_, target});
}

void ProducerRole::on(const producer::BaselineMoved& event) {
  if (refit_ != event.refit || phase_ != Phase::kMoving) return;
  phase_ = Phase::kRecordingMoved;
  append(Purpose::kMoved, BaselineRecord{refit_, moving_to_, pending_->part});
}

void ProducerRole::moved() {
  content_ = moving_to_;
  part_ = pending_->part;
  phase_ = Phase::kAcknowledging;
  deadline_ = now_ + options_.ack_timeout;
  repeat_at_ = now_;
  tick_refit();
}

// The decision stands, the values are there; only moving them failed.
void ProducerRole::on(const producer::BaselineFailed& event) {
  if (refit_ != event.refit || phase_ != Phase::kMoving) return;
  move_failed_ = true;
  retry_at_ = now_ + options_.repeat_period * 5;
  note(Severity::kError, "baseline_not_moved", event.error.message());
  if (!publish_) return;
  out_.push_back(
      producer::PublishDone{publish_->request, event.error, false, attempts_, content_, outcome_});
  publish_.reset();
  earlier_ = true;
}

// The refit has ended here, one way or the other.
void ProducerRole::resolved(Status status) {
  pending_.reset();
  plan_.reset();
  refit_.reset();
  phase_ = Phase::kIdle;
  if (earlier_) {
    earlier_ = false;
    if (publish_) begin();
    return;
  }
  if (!publish_) return;
  const bool again = !status && retry_ && attempts_ <= publish_->retries &&
                     next_step(status.error().code) != NextStep::kFixRequest;
  if (again) {
    note(Severity::kWarning, "refit_retried", status.error().message());
    begin();
  } else {
    finish(std::move(status), false);
  }
}

void ProducerRole::finish(Status status, bool already) {
  phase_ = Phase::kIdle;
  out_.push_back(producer::PublishDone{publish_->request, std::move(status), already, attempts_,
                                       content_, outcome_});
  publish_.reset();
}

// Says again what was not answered, and ends what took too long.
void ProducerRole::tick_refit() {
  const bool due = now_ >= repeat_at_ && session_ && session_->accepted;
  if (due) repeat_at_ = now_ + options_.repeat_period;
  switch (phase_) {
    case Phase::kBeginning: {
      const std::uint64_t request = publish_->request + requests_;
      if (now_ >= deadline_) {
        const wire::Cause cause{ErrorCode::kTimeout, "no plan by the deadline"};
        say(wire::AbortRequest{{}, request, cause});
        finish(make_error(cause.code, Stage::kPublish, cause.detail), false);
      } else if (due) {
        say(wire::Begin{options_.producer, options_.producer_count, request, content_,
                        publish_->target_version, options_.schema, part_,
                        target_part_.value_or(Digest{}), publish_->model_bytes, publish_->full,
                        publish_->shape});
      }
      break;
    }
    case Phase::kSealed:
      if (due && seal_ && !seal_heard_) {
        say(wire::SealReport{*refit_, options_.producer, *seal_});
      } else if (due) {
        say(wire::DecisionQuery{pending_->prepared});
      }
      // A Publish that waits for an earlier refit's decision has its own deadline.
      if (publish_ && now_ >= deadline_) {
        out_.push_back(producer::PublishDone{
            publish_->request,
            failure(ErrorCode::kInDoubt, Stage::kDecide,
                    "no decision on " + to_string(*refit_) + " by the deadline"),
            false, attempts_, content_, outcome_});
        publish_.reset();
        earlier_ = true;
      }
      break;
    case Phase::kMoving:
      if (move_failed_ && now_ >= retry_at_) move(moving_to_);
      break;
    case Phase::kAcknowledging:
      if (due) say(wire::Ack{*refit_, content_, std::nullopt});
      if (now_ >= deadline_) resolved(ok());  // the decision is told again, and answered then
      break;
    default:
      break;
  }
}

}  // namespace weft::apply
