// SPDX-License-Identifier: Apache-2.0
#include "apply/commit/coordinator_role.hpp"

#include <algorithm>
#include <utility>

namespace weft::apply {

CoordinatorRole::CoordinatorRole(CoordinatorOptions options, DecisionFold fold, ProcessId process,
                                 FleetId new_fleet, TreePlanner planner)
    : options_(std::move(options)), fold_(std::move(fold)), planner_(std::move(planner)) {
  if (fold_.fleet.is_zero()) fold_.fleet = new_fleet;
  fleet_ = fold_.fleet;
  epoch_ = Epoch{fold_.epoch.number + 1, process};
  committed_ = fold_.committed;
  for (const FoldedDecision& folded : fold_.commits) {
    Decided entry;
    entry.decision = folded.decision;
    for (const std::string& member_id : folded.decision.planned) {
      if (!folded.acked.contains(member_id)) entry.waiting.insert(member_id);
    }
    decided_.push_back(std::move(entry));
  }
  for (const DecisionRecord& abort : fold_.aborts) {
    Decided entry;
    entry.decision = abort;
    entry.settled = true;
    decided_.push_back(std::move(entry));
  }
}

std::vector<CoordinatorAction> CoordinatorRole::step(const CoordinatorEvent& event, TimePoint now) {
  now_ = now;
  out_.clear();
  if (stopped_) return {};
  std::visit([this](const auto& concrete) { on(concrete); }, event);
  if (serving_ && !stopped_) advance();
  return std::exchange(out_, {});
}

void CoordinatorRole::on(const coordinator::Start&) {
  std::vector<CoordinatorRecord> records = compact_decisions(fold_);
  records.push_back(StartRecord{epoch_});
  const LogToken token{next_token_++};
  pending_.push_back({token, Purpose::kStart});
  out_.push_back(coordinator::RewriteLog{token, std::move(records)});
}

void CoordinatorRole::on(const coordinator::Tick&) {
  if (!serving_) return;
  tick_members();
  tick_open();
  tick_decided();
}

void CoordinatorRole::on(const coordinator::MemberSaid& event) {
  if (!serving_) return;
  if (const auto* hello = std::get_if<wire::Hello>(&event.message)) {
    greet(event.session, *hello);
    return;
  }
  Member* member = member_of(event.session);
  if (!member) return;
  member->heard_at = now_;
  member->lost = false;
  if (!member->in) return;  // it has not stored our epoch: it says this again
  std::visit([&](const auto& message) { said(*member, message); }, event.message);
}

void CoordinatorRole::on(const coordinator::SessionClosed& event) {
  const auto found = sessions_.find(event.session.value);
  if (found == sessions_.end()) return;
  if (Member* member = find_member(found->second); member && member->session == event.session) {
    member->session = SessionId{};
    member->in = false;
  }
  sessions_.erase(found);
}

void CoordinatorRole::on(const coordinator::LogSynced& event) {
  const auto found = std::find_if(pending_.begin(), pending_.end(),
                                  [&](const PendingLog& p) { return p.token == event.token; });
  if (found == pending_.end()) return;
  const Purpose purpose = found->purpose;
  pending_.erase(found);
  switch (purpose) {
    case Purpose::kStart:
      serving_ = true;
      served_at_ = now_;
      out_.push_back(coordinator::Serve{fleet_, epoch_, committed_});
      break;
    case Purpose::kContent:
      if (!open_ || open_->phase != Phase::kFounding) break;
      committed_ = open_->base;
      open_->phase = Phase::kSettling;
      open_->deadline = now_ + options_.settle_timeout;
      broadcast_committed();
      break;
    case Purpose::kDecision:
      decided();
      break;
  }
}

// Whether the record is durable is not known, so nothing may be told, in this process or by it.
void CoordinatorRole::on(const coordinator::LogFailed& event) {
  stop(make_error(ErrorCode::kIoFailed, Stage::kDecide,
                  "the decision log cannot be written: " + event.error.message(),
                  event.error.native));
}

// A refit of an earlier epoch is decided by what the log says; one of this epoch by the votes. What
// is left for an operator is a log that was lost: resolve_by_operator() before a start.
void CoordinatorRole::on(const coordinator::OperatorResolve& event) {
  Status status = ok();
  const Decided* known = find_decided(event.refit);
  const wire::Verdict verdict = known ? known->decision.verdict : wire::Verdict::kAbort;
  if (open_ && open_->refit == event.refit) {
    status = failure(ErrorCode::kBusy, Stage::kDecide,
                     to_string(event.refit) + " is still open: its votes decide");
  } else if (verdict != event.verdict) {
    status = failure(ErrorCode::kInDoubt, Stage::kDecide,
                     to_string(event.refit) + " is " +
                         (verdict == wire::Verdict::kCommit ? "committed" : "aborted") +
                         " by the decision log: that stands");
  }
  out_.push_back(coordinator::OperatorAnswer{event.request, std::move(status)});
}

void CoordinatorRole::append(Purpose purpose, CoordinatorRecord record) {
  const LogToken token{next_token_++};
  pending_.push_back({token, purpose});
  out_.push_back(coordinator::AppendRecord{token, std::move(record), true});
}

void CoordinatorRole::append_unsynced(CoordinatorRecord record) {
  out_.push_back(coordinator::AppendRecord{LogToken{next_token_++}, std::move(record), false});
}

void CoordinatorRole::stop(Error error) {
  stopped_ = true;
  out_.clear();
  out_.push_back(coordinator::Stop{std::move(error)});
}

void CoordinatorRole::note(Severity severity, const char* name, std::string detail) {
  out_.push_back(coordinator::Note{severity, name, std::move(detail)});
}

}  // namespace weft::apply
