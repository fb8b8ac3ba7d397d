// SPDX-License-Identifier: Apache-2.0
// Decisions that are durable: told until everyone has acknowledged.
#include <algorithm>
#include <utility>

#include "apply/commit/coordinator_role.hpp"

namespace weft::apply {

CoordinatorRole::Decided* CoordinatorRole::find_decided(RefitId refit) {
  const auto found = std::find_if(decided_.rbegin(), decided_.rend(), [&](const Decided& entry) {
    return entry.decision.refit == refit;
  });
  return found == decided_.rend() ? nullptr : &*found;
}

// The record of the open refit's decision is durable.
void CoordinatorRole::decided() {
  Decided entry;
  const bool commits = open_->verdict == wire::Verdict::kCommit;
  entry.decision.refit = open_->refit;
  entry.decision.verdict = open_->verdict;
  entry.decision.base = open_->base;
  entry.decision.target = open_->manifest.target;
  entry.decision.cause = open_->cause;
  const Tally votes = tally(false);
  entry.outcome.refit = open_->refit;
  entry.outcome.verdict = open_->verdict;
  entry.outcome.planned = votes.planned;
  entry.outcome.prepared = votes.yes;
  entry.outcome.lost = votes.lost;
  entry.outcome.prepare_ns = open_->prepare_ns;
  entry.outcome.cause = open_->cause;
  for (const auto& [index, slot] : open_->slots) {
    entry.producers.insert(slot.member_id);
    entry.waiting.insert(slot.member_id);
  }
  for (const auto& [id, planned] : open_->planned) entry.waiting.insert(id);
  for (const std::string& id : entry.waiting) entry.repeat_at[id] = now_;
  exclude_absent();
  note(commits ? Severity::kInfo : Severity::kWarning,
       commits ? "refit_committed" : "refit_aborted",
       to_string(open_->refit) + (open_->cause ? ": " + open_->cause->detail : std::string()));
  open_.reset();
  decided_.push_back(std::move(entry));
  if (commits) {
    committed_ = decided_.back().decision.target;
    for (auto& [id, member] : members_) {
      const bool told = decided_.back().waiting.contains(id);
      if (!told && member.session.value != 0) {
        send(member, wire::Welcome{fleet_, epoch_, committed_});
      }
    }
  }
  tick_decided();
  report_outcome(decided_.back());
}

void CoordinatorRole::tell(Decided& entry, Member& member) {
  entry.repeat_at[member.id] = now_ + options_.repeat_period;
  wire::Decision decision;
  decision.refit = entry.decision.refit;
  decision.verdict = entry.decision.verdict;
  decision.base = entry.decision.base;
  decision.target = entry.decision.target;
  decision.cause = entry.decision.cause;
  send(member, std::move(decision));
}

void CoordinatorRole::tick_decided() {
  for (Decided& entry : decided_) {
    if (entry.waiting.empty()) continue;
    for (const std::string& id : entry.waiting) {
      Member* member = find_member(id);
      if (!member || !member->in || !is_live(*member)) continue;
      const auto at = entry.repeat_at.find(id);
      if (at == entry.repeat_at.end() || now_ >= at->second) tell(entry, *member);
    }
    settle_decided(entry);
  }
  trim_decided();
}

// Nobody who is there is waited for any more: the publisher's last word. An abort need not be kept
// for those who are away: they ask, and it is presumed.
void CoordinatorRole::settle_decided(Decided& entry) {
  const bool commits = entry.decision.verdict == wire::Verdict::kCommit;
  const bool anyone =
      std::any_of(entry.waiting.begin(), entry.waiting.end(), [&](const std::string& id) {
        const Member* member = find_member(id);
        return member && is_live(*member);
      });
  if (!anyone && !commits) entry.waiting.clear();
  if (anyone || entry.settled) return;
  entry.settled = true;
  entry.outcome.settled = true;
  report_outcome(entry);
}

void CoordinatorRole::report_outcome(Decided& entry) {
  for (const std::string& id : entry.producers) {
    if (Member* member = find_member(id)) send(*member, entry.outcome);
  }
}

void CoordinatorRole::said(Member& member, const wire::Ack& ack) {
  Decided* entry = find_decided(ack.refit);
  if (entry && entry->waiting.contains(member.id)) {
    const bool commits = entry->decision.verdict == wire::Verdict::kCommit;
    const bool could =
        !ack.cause && (!commits || ack.content.version >= entry->decision.target.version);
    acknowledged(*entry, member.id, could);
  }
  send(member, wire::AckReceived{ack.refit});
}

void CoordinatorRole::acknowledged(Decided& entry, const std::string& member_id, bool could) {
  entry.waiting.erase(member_id);
  entry.repeat_at.erase(member_id);
  if (entry.decision.verdict == wire::Verdict::kCommit) {
    if (could && !entry.producers.contains(member_id)) ++entry.outcome.applied;
    append_unsynced(AckedRecord{entry.decision.refit, member_id});
    if (entry.waiting.empty()) append_unsynced(ForgottenRecord{entry.decision.refit});
  }
  settle_decided(entry);
}

// Bounded: decisions that nobody asks for go first, oldest first.
void CoordinatorRole::trim_decided() {
  while (decided_.size() > options_.decided_max) {
    const auto done = std::find_if(decided_.begin(), decided_.end(),
                                   [](const Decided& entry) { return entry.waiting.empty(); });
    const auto gone = done == decided_.end() ? decided_.begin() : done;
    if (!gone->waiting.empty() && gone->decision.verdict == wire::Verdict::kCommit) {
      append_unsynced(ForgottenRecord{gone->decision.refit});
    }
    decided_.erase(gone);
  }
}

void CoordinatorRole::said(Member& member, const wire::DecisionQuery& query) {
  answer(member, query.prepared);
}

void CoordinatorRole::said(Member& member, const wire::Heartbeat& heartbeat) {
  if (!heartbeat.scrub) return;
  member.scrub = heartbeat.scrub;
  member.scrub_at = now_;
}
void CoordinatorRole::said(Member&, const wire::Hello&) {}

// What the log says of this refit. A refit of this epoch that is not open was decided here; one of
// an earlier epoch without a COMMIT is presumed aborted.
void CoordinatorRole::answer(Member& member, const wire::PreparedRefit& prepared) {
  if (Decided* entry = find_decided(prepared.refit)) {
    tell(*entry, member);
    return;
  }
  wire::Decision decision;
  decision.refit = prepared.refit;
  decision.base = prepared.base;
  decision.target = prepared.target;
  const bool ours = prepared.refit.epoch == epoch_;
  const bool earlier = prepared.refit.epoch.number < epoch_.number;
  const bool open = open_ && open_->refit == prepared.refit;
  if (!open && (earlier || (ours && prepared.refit.attempt <= attempts_))) {
    decision.verdict = wire::Verdict::kAbort;
    decision.cause = wire::Cause{ErrorCode::kTimeout, "the log holds no commit of it"};
  }
  send(member, std::move(decision));
}

}  // namespace weft::apply
