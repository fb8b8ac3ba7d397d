// SPDX-License-Identifier: Apache-2.0
// From the stream to the decision.
#include <algorithm>
#include <utility>

#include "apply/commit/coordinator_role.hpp"
#include "codec/digest/digest_table.hpp"

namespace weft::apply {

CoordinatorRole::Slot* CoordinatorRole::slot_of(const std::string& member_id) {
  if (!open_) return nullptr;
  for (auto& [index, slot] : open_->slots) {
    if (slot.member_id == member_id) return &slot;
  }
  return nullptr;
}

bool CoordinatorRole::is_interior(const std::string& member_id) const {
  for (const wire::Plan::Tree& tree : open_->plan.trees) {
    for (std::size_t i = 0; i < tree.nodes.size(); ++i) {
      if (open_->plan.nodes[i].member_id == member_id && !tree.nodes[i].children.empty()) {
        return true;
      }
    }
  }
  return false;
}

// After the seal: whether somebody below still lacks frames that came through this member.
bool CoordinatorRole::cuts_off(const std::string& member_id) const {
  std::uint64_t frames = 0;
  for (const wire::ProducerSeal& seal : open_->manifest.producers) frames += seal.frame_count;
  const auto lacks_frames = [&](const std::string& id) {
    const auto found = open_->planned.find(id);
    return found != open_->planned.end() && !found->second.lost && !found->second.vote &&
           found->second.frames < frames;
  };
  for (const wire::Plan::Tree& tree : open_->plan.trees) {
    std::vector<NodeIndex> below;
    for (std::size_t i = 0; i < tree.nodes.size(); ++i) {
      if (open_->plan.nodes[i].member_id == member_id) below = tree.nodes[i].children;
    }
    while (!below.empty()) {
      const std::uint32_t node = below.back().value;
      below.pop_back();
      if (lacks_frames(open_->plan.nodes[node].member_id)) return true;
      below.insert(below.end(), tree.nodes[node].children.begin(), tree.nodes[node].children.end());
    }
  }
  return false;
}

void CoordinatorRole::said(Member& member, const wire::SealReport& report) {
  if (!open_ || report.refit != open_->refit) {
    answer(member, wire::PreparedRefit{report.refit, {}, {}});
    return;
  }
  Slot* slot = slot_of(member.id);
  if (!slot || slot->process != member.hello.endpoint.process ||
      slot->begin.producer != report.producer) {
    return;
  }
  if (slot->seal) {
    if (*slot->seal == report.seal) {
      if (open_->phase == Phase::kPreparing) slot->repeat_at = now_;
    } else if (open_->phase == Phase::kStreaming) {
      decide(wire::Verdict::kAbort,
             wire::Cause{ErrorCode::kPayloadConflict, member.id + " reported two different seals"});
    } else {
      note(Severity::kWarning, "seal_refused", member.id + " reported another seal: sealed");
    }
    return;
  }
  if (open_->phase != Phase::kStreaming) return;
  slot->seal = report.seal;
  open_->deadline = now_ + options_.stall_timeout;
  const bool all = std::all_of(open_->slots.begin(), open_->slots.end(),
                               [](const auto& entry) { return entry.second.seal.has_value(); });
  if (all) seal();
}

// A manifest that contradicts itself: changes without a trace of them, or the other way round.
std::optional<wire::Cause> CoordinatorRole::seal_objection() const {
  std::uint64_t changed = 0;
  std::uint64_t frames = 0;
  for (const wire::ProducerSeal& seal : open_->manifest.producers) {
    changed += seal.changed_elements;
    frames += seal.frame_count;
  }
  const bool moved = open_->manifest.target.root != open_->manifest.base.root;
  if (changed != 0 && frames == 0) {
    return wire::Cause{ErrorCode::kProtocol,
                       std::to_string(changed) + " changed elements and no frame"};
  }
  // A full copy counts every element that it sends.
  const bool counts_sent = open_->slots.begin()->second.begin.full;
  if (moved ? changed == 0 : changed != 0 && !counts_sent) {
    return wire::Cause{ErrorCode::kProtocol, std::to_string(changed) +
                                                 " changed elements, but the root " +
                                                 (moved ? "differs" : "is the base's")};
  }
  return std::nullopt;
}

void CoordinatorRole::seal() {
  const wire::Begin& first = open_->slots.begin()->second.begin;
  wire::Manifest& manifest = open_->manifest;
  manifest.refit = open_->refit;
  manifest.fleet = fleet_;
  manifest.base = open_->base;
  manifest.schema = first.schema;
  std::vector<Digest> digests;
  for (const auto& [index, slot] : open_->slots) {
    manifest.producers.push_back(*slot.seal);
    digests.push_back(slot.seal->part);
  }
  manifest.target = Content{open_->target_version, open_->base.lattice,
                            codec::fold_root(first.schema, open_->base.lattice, digests)};
  if (auto cause = seal_objection()) {
    decide(wire::Verdict::kAbort, *std::move(cause));
    return;
  }
  open_->phase = Phase::kPreparing;
  open_->deadline = now_ + options_.prepare_timeout;
  for (auto& [id, planned] : open_->planned) planned.repeat_at = now_;
  for (auto& [index, slot] : open_->slots) slot.repeat_at = now_;
  repeat_open();
  count_votes(false);
}

void CoordinatorRole::said(Member& member, const wire::Progress& progress) {
  if (!open_ || progress.refit != open_->refit) return;
  bool further = false;
  if (Slot* slot = slot_of(member.id)) {
    further = progress.frames > slot->frames;
    slot->frames = std::max(slot->frames, progress.frames);
  } else if (const auto found = open_->planned.find(member.id); found != open_->planned.end()) {
    Planned& planned = found->second;
    further = progress.frames > planned.frames || !planned.heard;
    planned.heard = true;
    planned.frames = std::max(planned.frames, progress.frames);
    planned.bytes = std::max(planned.bytes, progress.bytes);
  }
  if (further && open_->phase == Phase::kStreaming) {
    open_->deadline = now_ + options_.stall_timeout;
  }
  if (progress.lost_peer.empty()) return;
  note(Severity::kWarning, "link_lost", member.id + " lost its link to " + progress.lost_peer);
  // A hint: heartbeats decide. Without a control connection either, the peer is gone.
  if (Member* peer = find_member(progress.lost_peer); peer && peer->session.value == 0) {
    peer->lost = true;
    lose(peer->id, "its links and its control connection are closed");
  }
}

void CoordinatorRole::said(Member& member, const wire::Vote& vote) {
  if (!open_ || vote.refit != open_->refit) {
    answer(member, wire::PreparedRefit{vote.refit, {}, Content{{}, {}, vote.target_root}});
    return;
  }
  const auto found = open_->planned.find(member.id);
  if (found == open_->planned.end()) return;
  Planned& planned = found->second;
  const bool counts = (open_->phase == Phase::kStreaming || open_->phase == Phase::kPreparing) &&
                      !planned.vote && !planned.lost &&
                      planned.process == member.hello.endpoint.process;
  if (!counts) return;
  bool yes = vote.yes;
  planned.cause = vote.cause;
  const bool proves = open_->phase == Phase::kPreparing &&
                      vote.manifest == open_->manifest.digest() &&
                      vote.target_root == open_->manifest.target.root;
  if (yes && !proves) {
    yes = false;
    planned.cause = wire::Cause{ErrorCode::kProtocol, "voted YES for another manifest"};
  }
  if (!yes && !planned.cause) planned.cause = wire::Cause{ErrorCode::kInternal, "no cause given"};
  planned.vote = yes;
  if (yes) open_->prepare_ns = static_cast<std::uint64_t>((now_ - open_->begun_at).count());
  if (!yes) {
    note(Severity::kWarning, "vote_no", member.id + ": " + planned.cause->detail);
    if (planned.cause->code == ErrorCode::kPayloadConflict) {
      decide(wire::Verdict::kAbort,
             wire::Cause{planned.cause->code, member.id + ": " + planned.cause->detail});
      return;
    }
  }
  count_votes(false);
}

CoordinatorRole::Tally CoordinatorRole::tally(bool deadline) const {
  Tally votes;
  votes.planned = static_cast<std::uint32_t>(open_->planned.size());
  for (const auto& [id, planned] : open_->planned) {
    if (planned.lost) ++votes.lost;
    if (planned.vote) ++(*planned.vote ? votes.yes : votes.no);
    if (planned.lost || planned.vote || !deadline || !planned.late_leaf) continue;
    const auto member = members_.find(id);
    if (member != members_.end() && applying_base(member->second)) ++votes.late;
  }
  return votes;
}

// Decides as soon as what is missing can change nothing.
void CoordinatorRole::count_votes(bool deadline) {
  const Tally votes = tally(deadline);
  const std::uint32_t counted = votes.planned - votes.lost - votes.late;
  const std::uint32_t open_votes = deadline ? 0 : votes.silent();
  const std::uint32_t best = votes.yes + open_votes;
  const bool reachable = best > 0 && best >= options_.quorum * counted &&
                         best >= options_.min_fraction * votes.planned;
  if (!reachable) {
    decide(wire::Verdict::kAbort, abort_cause());
  } else if (open_->phase == Phase::kPreparing && open_votes == 0) {
    decide(wire::Verdict::kCommit, std::nullopt);
  }
}

// What the publisher is shown: the first NO, else the silent, else the lost.
wire::Cause CoordinatorRole::abort_cause() const {
  for (const auto& [id, planned] : open_->planned) {
    if (planned.vote == false) {
      return {planned.cause->code, id + ": " + planned.cause->detail};
    }
  }
  std::string silent;
  std::string gone;
  for (const auto& [id, planned] : open_->planned) {
    if (planned.vote) continue;
    std::string& names = planned.lost ? gone : silent;
    if (names.size() < 1000) names += (names.empty() ? "" : ", ") + id;
  }
  if (!silent.empty()) return {ErrorCode::kTimeout, "no vote by the deadline from " + silent};
  return {ErrorCode::kPeerLost, "lost before the vote: " + gone};
}

// Its heartbeats ended before it voted.
void CoordinatorRole::evict(const std::string& member_id, const std::string& why) {
  if (open_->phase != Phase::kStreaming && open_->phase != Phase::kPreparing) return;
  const auto found = open_->planned.find(member_id);
  if (found == open_->planned.end() || found->second.vote || found->second.lost) return;
  found->second.lost = true;
  note(Severity::kWarning, "member_evicted", member_id + ": " + why);
  const bool streaming = open_->phase == Phase::kStreaming;
  if (!options_.replan && (streaming ? is_interior(member_id) : cuts_off(member_id))) {
    decide(wire::Verdict::kAbort,
           wire::Cause{ErrorCode::kPeerLost, "relay " + member_id + ": " + why});
    return;
  }
  if (streaming && is_interior(member_id)) {
    replan();
    if (open_->phase != Phase::kStreaming) return;
  }
  count_votes(false);
}

// A planned member came back as another process, or after it was given up: as a leaf, until the
// seal.
void CoordinatorRole::rejoin(Member& member) {
  Planned& planned = open_->planned.at(member.id);
  const wire::Hello& hello = member.hello;
  // Given up and back as the same process: it is at it still.
  const bool at_it = hello.state == wire::MemberState::kStreaming && hello.begun == open_->refit;
  const bool able = options_.replan && open_->phase == Phase::kStreaming && !planned.vote &&
                    (at_it || hello.state == wire::MemberState::kClean) &&
                    hello.content == open_->base && !hello.prepared;
  if (!able) return;
  planned = Planned{};
  planned.process = member.hello.endpoint.process;
  note(Severity::kInfo, "member_rejoined", member.id);
  replan();
}

void CoordinatorRole::replan() {
  // Whoever joined late, or comes back, is a leaf; nobody else's place depends on them.
  std::set<std::string> leaves;
  for (const auto& [id, planned] : open_->planned) {
    if (planned.late_leaf || !planned.heard) leaves.insert(id);
  }
  if (const Status made = make_plan(leaves); !made) {
    decide(wire::Verdict::kAbort, wire::Cause{made.error().code, made.error().detail});
    return;
  }
  open_->deadline = now_ + options_.stall_timeout;
  for (auto& [index, slot] : open_->slots) {
    if (Member* member = find_member(slot.member_id)) send_plan(*member);
  }
  for (auto& [id, planned] : open_->planned) {
    if (planned.lost) continue;
    planned.repeat_at = now_ + options_.repeat_period;
    if (Member* member = find_member(id)) send_plan(*member);
  }
}

void CoordinatorRole::decide(wire::Verdict verdict, std::optional<wire::Cause> cause) {
  open_->phase = Phase::kDeciding;
  open_->verdict = verdict;
  open_->cause = std::move(cause);
  DecisionRecord record;
  record.refit = open_->refit;
  record.verdict = verdict;
  record.base = open_->base;
  record.target = open_->manifest.target;
  record.cause = open_->cause;
  for (const auto& [index, slot] : open_->slots) record.planned.push_back(slot.member_id);
  for (const auto& [id, planned] : open_->planned) record.planned.push_back(id);
  append(Purpose::kDecision, std::move(record));
}

// Members that said NO or nothing are left out until they say that they are able again.
void CoordinatorRole::exclude_absent() {
  for (const auto& [id, planned] : open_->planned) {
    Member* member = find_member(id);
    if (!member || planned.vote == true || planned.lost) continue;
    if (planned.vote) {
      member->excluded = planned.cause;
    } else if (open_->cause && open_->cause->code == ErrorCode::kTimeout) {
      member->excluded = wire::Cause{ErrorCode::kTimeout, "no vote by the deadline"};
    }
  }
}

void CoordinatorRole::tick_open() {
  if (!open_) return;
  const bool late = now_ >= open_->deadline;
  switch (open_->phase) {
    case Phase::kGathering:
      if (late) {
        refuse_all({ErrorCode::kTimeout, std::to_string(open_->slots.size()) + " of " +
                                             std::to_string(open_->producer_count) +
                                             " producers have begun"},
                   false);
      }
      break;
    case Phase::kRehashing:
      if (now_ >= open_->repeat_at) rehash();
      break;
    case Phase::kStreaming:
      repeat_open();
      if (late) {
        decide(wire::Verdict::kAbort,
               wire::Cause{ErrorCode::kTimeout, "no frame and no seal in the stall timeout"});
      }
      break;
    case Phase::kPreparing:
      repeat_open();
      if (late) count_votes(true);
      break;
    case Phase::kSettling:
    case Phase::kFounding:
    case Phase::kDeciding:
      break;
  }
}

// Says again what was not answered: the plan until the first progress, the seal until the vote. A
// producer is told the seal once, and again when it reports its own again.
void CoordinatorRole::repeat_open() {
  const bool sealed = open_->phase == Phase::kPreparing;
  wire::Seal seal;
  if (sealed) {
    seal.manifest = open_->manifest;
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(open_->deadline - now_);
    seal.prepare_timeout_ms = static_cast<std::uint32_t>(std::max<std::int64_t>(left.count(), 1));
  }
  const auto repeat = [&](const std::string& id, TimePoint& at, bool answered) {
    Member* member = find_member(id);
    if (!member || now_ < at) return;
    at = sealed && answered ? TimePoint::max() : now_ + options_.repeat_period;
    if (sealed) {
      send(*member, seal);
    } else if (!answered) {
      send_plan(*member);
    }
  };
  for (auto& [index, slot] : open_->slots) {
    repeat(slot.member_id, slot.repeat_at, slot.seal.has_value());
  }
  for (auto& [id, planned] : open_->planned) {
    if (planned.vote || planned.lost) continue;
    repeat(id, planned.repeat_at, planned.heard && !sealed);
  }
}

}  // namespace weft::apply
