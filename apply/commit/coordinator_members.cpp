// SPDX-License-Identifier: Apache-2.0
// Who is there: sessions, epochs, heartbeats.
#include <algorithm>
#include <utility>

#include "apply/commit/coordinator_role.hpp"
#include "weft/base/limits.hpp"

namespace weft::apply {

CoordinatorRole::Member* CoordinatorRole::find_member(const std::string& member_id) {
  const auto found = members_.find(member_id);
  return found == members_.end() ? nullptr : &found->second;
}

CoordinatorRole::Member* CoordinatorRole::member_of(SessionId session) {
  const auto found = sessions_.find(session.value);
  if (found == sessions_.end()) return nullptr;
  Member* member = find_member(found->second);
  return member && member->session == session ? member : nullptr;
}

bool CoordinatorRole::is_live(const Member& member) const {
  return member.session.value != 0 && !member.lost;
}

// Why this session may not go on; its member is told.
std::optional<wire::Cause> CoordinatorRole::refusal(SessionId session,
                                                    const wire::Hello& hello) const {
  const std::string& id = hello.endpoint.member_id;
  if (id.empty() || id.size() > limits::kMemberIdBytesMax) {
    return wire::Cause{ErrorCode::kProtocol, "a member's id has 1 to 255 bytes"};
  }
  if (!hello.fleet.is_zero() && hello.fleet != fleet_) {
    return wire::Cause{ErrorCode::kDenied,
                       "member of fleet " + to_hex(hello.fleet) + ", this is " + to_hex(fleet_)};
  }
  const auto found = members_.find(id);
  if (found == members_.end()) {
    if (members_.size() < limits::kMembersMax) return std::nullopt;
    return wire::Cause{ErrorCode::kResourceLimit, "the fleet has its most members"};
  }
  if (session < found->second.session) {
    return wire::Cause{ErrorCode::kFenced, "a later session of " + id + " is open"};
  }
  return std::nullopt;
}

// What a member knows and our log does not: then it is not the log of this fleet's decisions.
std::optional<Error> CoordinatorRole::outdated(const wire::Hello& hello) const {
  const std::string& id = hello.endpoint.member_id;
  const bool of_this_fleet = hello.fleet == fleet_;
  if (!of_this_fleet) return std::nullopt;
  const auto later = [&](const Epoch& epoch) {
    return epoch.number > epoch_.number ||
           (epoch.number == epoch_.number && epoch.coordinator != epoch_.coordinator);
  };
  if (later(hello.epoch) || (hello.prepared && later(hello.prepared->refit.epoch))) {
    return make_error(ErrorCode::kFenced, Stage::kDecide,
                      id + " has met epoch " + std::to_string(hello.epoch.number) +
                          ", this coordinator's is " + std::to_string(epoch_.number));
  }
  if (hello.role == wire::Role::kAgent && hello.content.version > committed_.version) {
    return make_error(ErrorCode::kFenced, Stage::kDecide,
                      id + " is at version " + std::to_string(hello.content.version.value) +
                          ", the decision log ends at " + std::to_string(committed_.version.value));
  }
  return std::nullopt;
}

void CoordinatorRole::greet(SessionId session, const wire::Hello& hello) {
  if (auto cause = refusal(session, hello)) {
    note(Severity::kWarning, "session_refused", cause->detail);
    out_.push_back(coordinator::Send{session, wire::SessionRefused{*std::move(cause)}});
    out_.push_back(coordinator::CloseSession{session});
    return;
  }
  if (auto error = outdated(hello)) {
    stop(*std::move(error));
    return;
  }
  const std::string id = hello.endpoint.member_id;
  Member& member = members_[id];
  const bool new_session = member.session != session;
  const bool restarted =
      !member.id.empty() && member.hello.endpoint.process != hello.endpoint.process;
  if (new_session && member.session.value != 0) {
    sessions_.erase(member.session.value);
    out_.push_back(coordinator::CloseSession{member.session});
  }
  member.id = id;
  member.hello = hello;
  member.session = session;
  member.heard_at = now_;
  member.lost = false;
  member.in = hello.epoch == epoch_ && hello.fleet == fleet_;
  sessions_[session.value] = id;
  if (restarted) lose(id, "its process was started again");
  if (new_session) send(member, wire::Welcome{fleet_, epoch_, committed_});
  if (member.in && !stopped_) catch_up(member, new_session);
}

// What a member that has stored our epoch must be told.
void CoordinatorRole::catch_up(Member& member, bool new_session) {
  const wire::Hello& hello = member.hello;
  if (hello.role == wire::Role::kAgent && hello.state == wire::MemberState::kClean &&
      !hello.cause && !hello.begun) {
    member.excluded.reset();
  }
  for (Decided& entry : decided_) {
    if (!entry.waiting.contains(member.id)) continue;
    const bool applied = entry.decision.verdict == wire::Verdict::kCommit &&
                         hello.content.version >= entry.decision.target.version;
    if (hello.state == wire::MemberState::kNeedsReseed || applied) {
      acknowledged(entry, member.id, applied);  // a Hello is as good as an Ack
    } else if (new_session || !entry.repeat_at.contains(member.id)) {
      entry.repeat_at[member.id] = now_;
    }
  }
  const bool in_open = open_ && hello.begun == open_->refit;
  if (hello.prepared) {
    answer(member, *hello.prepared);
  } else if (hello.begun && !in_open) {
    answer(member, wire::PreparedRefit{*hello.begun, {}, {}});
  }
  if (!open_) return;
  if (Slot* slot = slot_of(member.id); slot && new_session) slot->repeat_at = now_;
  const auto planned = open_->planned.find(member.id);
  if (planned == open_->planned.end()) return;
  if (planned->second.process == hello.endpoint.process && !planned->second.lost) {
    if (new_session) planned->second.repeat_at = now_;
  } else {
    rejoin(member);
  }
}

// Heartbeats are missing, or another process answers to the name: its part in the open refit ends.
void CoordinatorRole::lose(const std::string& member_id, const std::string& why) {
  if (!open_ || open_->phase == Phase::kDeciding) return;
  if (slot_of(member_id)) {
    const wire::Cause cause{ErrorCode::kPeerLost, "producer " + member_id + ": " + why};
    if (open_->phase == Phase::kStreaming || open_->phase == Phase::kPreparing) {
      decide(wire::Verdict::kAbort, cause);
    } else if (open_->phase != Phase::kFounding) {
      refuse_all(cause, false);
    }
    return;
  }
  evict(member_id, why);
}

void CoordinatorRole::tick_members() {
  for (auto at = members_.begin(); at != members_.end();) {
    Member& member = at->second;
    if (!member.lost && now_ - member.heard_at > options_.member_lost_after) {
      member.lost = true;
      note(Severity::kWarning, "member_lost", member.id);
      lose(member.id, "no heartbeat");
    }
    // The heartbeat says who speaks and what is committed: whatever was told before and lost.
    if (member.session.value != 0 && now_ - member.sent_at >= options_.heartbeat_period) {
      send(member, wire::Welcome{fleet_, epoch_, committed_});
    }
    // A producer that is gone leaves nothing to show; agents stay for the operator to see.
    const bool gone =
        member.lost && member.session.value == 0 &&
        (member.hello.role == wire::Role::kProducer || members_.size() >= limits::kMembersMax) &&
        !slot_of(member.id) && (!open_ || !open_->planned.contains(member.id));
    at = gone ? members_.erase(at) : std::next(at);
  }
}

void CoordinatorRole::send(Member& member, wire::CoordinatorMessage message) {
  if (member.session.value == 0) return;
  member.sent_at = now_;
  out_.push_back(coordinator::Send{member.session, std::move(message)});
}

void CoordinatorRole::broadcast_committed() {
  for (auto& [id, member] : members_) {
    if (member.session.value != 0) send(member, wire::Welcome{fleet_, epoch_, committed_});
  }
}

FleetView CoordinatorRole::view() const {
  FleetView view;
  view.fleet = fleet_;
  view.epoch = epoch_;
  view.committed = committed_;
  for (const auto& [id, member] : members_) {
    MemberView shown;
    shown.id = id;
    shown.role = member.hello.role;
    shown.state = member.lost ? wire::MemberState::kLost : member.hello.state;
    shown.cause = member.hello.cause ? member.hello.cause : member.excluded;
    shown.content = member.hello.content;
    shown.ready = member.hello.ready && !member.lost;
    shown.region = member.hello.endpoint.region;
    shown.process = member.hello.endpoint.process;
    shown.silent = now_ - member.heard_at;
    shown.scrub = member.scrub;
    if (shown.scrub && shown.scrub->age_ms) {
      *shown.scrub->age_ms += static_cast<std::uint64_t>(
          std::chrono::duration_cast<std::chrono::milliseconds>(now_ - member.scrub_at).count());
    }
    if (open_) {
      if (const auto found = open_->planned.find(id); found != open_->planned.end()) {
        shown.frames = found->second.frames;
        shown.bytes = found->second.bytes;
      }
    }
    shown.connected = member.session.value != 0;
    shown.unconfirmed =
        std::any_of(decided_.begin(), decided_.end(), [&name = id](const Decided& entry) {
          return entry.decision.verdict == wire::Verdict::kCommit && entry.waiting.contains(name);
        });
    view.members.push_back(std::move(shown));
  }
  if (!decided_.empty() && decided_.back().outcome.verdict != wire::Verdict::kUndecided) {
    view.last = decided_.back().outcome;
  }
  if (!open_) return view;
  constexpr const char* kPhases[] = {"gathering", "settling",  "rehashing", "founding",
                                     "streaming", "preparing", "deciding"};
  RefitView refit;
  refit.refit = open_->refit;
  refit.phase = kPhases[static_cast<std::size_t>(open_->phase)];
  refit.base = open_->base;
  refit.target_version = open_->target_version;
  refit.open = now_ - open_->begun_at;
  const Tally votes = tally(false);
  refit.planned = votes.planned;
  refit.lost = votes.lost;
  refit.yes = votes.yes;
  refit.no = votes.no;
  bool first = true;
  for (const auto& [id, planned] : open_->planned) {
    if (planned.lost) continue;
    refit.frames_min = first ? planned.frames : std::min(refit.frames_min, planned.frames);
    first = false;
  }
  if (!open_->plan.nodes.empty()) refit.plan = open_->plan;
  view.refit = std::move(refit);
  return view;
}

}  // namespace weft::apply
