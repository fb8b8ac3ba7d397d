// SPDX-License-Identifier: Apache-2.0
#include "apply/commit/producer_role.hpp"

#include <algorithm>
#include <utility>

namespace weft::apply {

ProducerRole::ProducerRole(ProducerOptions options, ProducerRecovery recovery)
    : options_(std::move(options)),
      fleet_(recovery.fleet),
      epoch_(recovery.epoch),
      content_(recovery.content),
      part_(recovery.part) {
  if (!recovery.pending) return;
  pending_ = std::move(recovery.pending);
  refit_ = pending_->prepared.refit;
  newest_ = refit_;
  earlier_ = true;
  seal_heard_ = true;  // nothing to report again: it asks for the decision
  phase_ = Phase::kSealed;
}

std::vector<ProducerAction> ProducerRole::step(const ProducerEvent& event, TimePoint now) {
  now_ = now;
  out_.clear();
  if (stopped_) return {};
  std::visit([this](const auto& concrete) { on(concrete); }, event);
  return std::exchange(out_, {});
}

void ProducerRole::on(const producer::Start&) { repeat_at_ = now_; }

void ProducerRole::on(const producer::Tick&) {
  tick_session();
  tick_refit();
}

void ProducerRole::append(Purpose purpose, ProducerRecord record) {
  PendingLog entry{LogToken{next_token_++}, purpose, {}, {}};
  if (const auto* epoch = std::get_if<ProducerEpochRecord>(&record)) {
    entry.epoch = epoch->epoch;
    entry.fleet = epoch->fleet;
  }
  out_.push_back(producer::AppendRecord{entry.token, std::move(record)});
  logging_.push_back(entry);
}

void ProducerRole::on(const producer::LogSynced& event) {
  const auto found = std::find_if(logging_.begin(), logging_.end(),
                                  [&](const PendingLog& p) { return p.token == event.token; });
  if (found == logging_.end()) return;
  const PendingLog entry = *found;
  logging_.erase(found);
  switch (entry.purpose) {
    case Purpose::kEpoch:
      epoch_ = entry.epoch;
      fleet_ = entry.fleet;
      accept_session();
      break;
    case Purpose::kPending:
      if (phase_ == Phase::kRecording) sealed();
      break;
    case Purpose::kMoved:
      if (phase_ == Phase::kRecordingMoved) moved();
      break;
    case Purpose::kDropped:
      if (phase_ == Phase::kRecordingDrop) dropped();
      break;
  }
}

// The record may be durable all the same: whatever is decided here must be right either way.
void ProducerRole::on(const producer::LogFailed& event) {
  const auto found = std::find_if(logging_.begin(), logging_.end(),
                                  [&](const PendingLog& p) { return p.token == event.token; });
  if (found == logging_.end()) return;
  const Purpose purpose = found->purpose;
  logging_.erase(found);
  note(Severity::kError, "producer_state_failed", event.error.message());
  switch (purpose) {
    case Purpose::kEpoch:
      if (session_ && !session_->accepted) close_session(event.error);
      break;
    case Purpose::kPending:
      if (phase_ == Phase::kRecording) give_up(event.error);
      break;
    case Purpose::kMoved:
      // The baseline has moved and the file says that it is pending: the next start asks, is told
      // COMMIT, and moves it again.
      if (phase_ == Phase::kRecordingMoved) moved();
      break;
    case Purpose::kDropped:
      if (phase_ == Phase::kRecordingDrop) dropped();
      break;
  }
}

void ProducerRole::note(Severity severity, const char* name, std::string detail) {
  out_.push_back(producer::Note{severity, name, std::move(detail)});
}

}  // namespace weft::apply
