// SPDX-License-Identifier: Apache-2.0
// RelayCore: deadlines, lost peers, orderly ends, quarantine.
#include <algorithm>
#include <chrono>
#include <optional>

#include "transport/relay/relay_core.hpp"

namespace weft::transport {
namespace {

constexpr Duration kScanInterval = std::chrono::milliseconds(1);
constexpr std::uint32_t kRejectionsMax = 8;
constexpr int kLinkSilence = 3;

std::string seconds(Duration time) {
  const auto tenths = std::chrono::duration_cast<std::chrono::milliseconds>(time).count() / 100;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " s";
}

Error lost(ErrorCode code, const Peer& peer, const std::string& why) {
  return failure(code, Stage::kRelay, "member " + peer.member_id + " " + why);
}

}  // namespace

void RelayCore::scan() {
  next_scan_ = now_ + kScanInterval;
  // What this process has slept through is nobody else's fault.
  const Duration passed = std::min<Duration>(now_ - last_scan_, 10 * kScanInterval);
  last_scan_ = now_;
  scan_peers();
  desk_.expire(now_);
  requests_due_ = !refits_.empty();
  for (std::size_t i = 0; i < refits_.size();) {
    OpenRefit& refit = *refits_[i];
    for (const auto& link : refit.upstream) scan_upstream(refit, *link);
    for (const auto& link : refit.downstream) scan_downstream(refit, *link);
    scan_orphans(refit);
    relieve(refit, passed);
    take_turns(refit);
    if (refit.leaving && try_finish(refit)) {
      refits_.erase(refits_.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
  if (now_ >= next_flush_) flush_counters();
}

void RelayCore::scan_peers() {
  for (const auto& peer : peers_) {
    if (peer->suspect || peer->beats == 0) continue;
    if (now_ - peer->last_heard < options_.times.suspect) continue;
    peer->suspect = true;
    const EventField fields[] = {{"member", peer->member_id},
                                 {"silent", seconds(now_ - peer->last_heard)}};
    events_.report(Severity::kWarning, "link_suspect", fields);
  }
}

// Silence decides; refused posts alone do not while the peer is heard, a full queue looks the same.
std::optional<Error> RelayCore::peer_failure(const Peer& peer, TimePoint link_heard) const {
  if (now_ - peer.last_heard >= options_.times.lost) {
    return lost(ErrorCode::kPeerLost, peer,
                "has been silent for " + seconds(now_ - peer.last_heard));
  }
  if (peer.refusing && now_ - peer.refusing_since >= options_.times.lost) {
    return lost(ErrorCode::kPeerLost, peer,
                "has accepted no post for " + seconds(now_ - peer.refusing_since));
  }
  // The peer lives, but has given this link up: other trees' frames explain no silence this long.
  if (now_ - link_heard >= kLinkSilence * options_.times.lost) {
    return lost(ErrorCode::kPeerLost, peer,
                "has said nothing on this link for " + seconds(now_ - link_heard));
  }
  return std::nullopt;
}

void RelayCore::scan_upstream(OpenRefit& refit, UpstreamLink& link) {
  const Peer& parent = *link.place().parent;
  if (link.phase == LinkPhase::kEnded) return;
  if (link.phase == LinkPhase::kClosing || link.parent_done) {
    return settle_upstream(link, now_ >= link.deadline);
  }
  if (link.phase == LinkPhase::kConnecting) {
    if (now_ < link.deadline) return;
    return lose_upstream(refit, link,
                         lost(ErrorCode::kPeerLost, parent,
                              "has not answered within " + seconds(options_.times.connect)));
  }
  if (const auto error = peer_failure(parent, link.last_heard))
    return lose_upstream(refit, link, *error);
  if (link.rejections >= kRejectionsMax) {
    return lose_upstream(
        refit, link,
        lost(ErrorCode::kCorruptPayload, parent,
             "has sent " + std::to_string(link.rejections) + " corrupt frames in a row"));
  }
  if (link.count(GrantState::kRetired) == link.place().slot_count) {
    return lose_upstream(refit, link,
                         lost(ErrorCode::kPeerLost, parent, "has lost a write in every slot"));
  }
}

void RelayCore::scan_downstream(OpenRefit& refit, DownstreamLink& link) {
  const Peer& child = *link.place().child;
  if (link.phase == LinkPhase::kEnded) return;
  if (link.phase == LinkPhase::kClosing) {
    const bool answered = link.child_done && link.closed_sent;
    const bool ours = refit.leaving || link.not_planned;
    if (ours && (answered || now_ >= link.deadline)) return end_downstream(link);
    // It had left before, or has every frame.
    const bool complete = takes_turns(refit) && answered && now_ >= link.deadline;
    if (!ours && (complete || peer_failure(child, now_))) end_downstream(link);
    return;
  }
  if (link.phase == LinkPhase::kConnecting) {
    if (link.untaken() == 0) link.last_progress = now_;
    if (!link.awaited || now_ < link.deadline) return;
    return lose_downstream(refit, link,
                           lost(ErrorCode::kPeerLost, child,
                                "has not connected within " + seconds(options_.times.connect)));
  }
  if (const auto error = peer_failure(child, link.last_heard))
    return lose_downstream(refit, link, *error);
  if (link.untaken() == 0 && !link.demoted) link.last_progress = now_;
  if (now_ - link.last_progress >= options_.times.stall) {
    const std::string waits =
        link.demoted ? "it lacks frames" : std::to_string(link.untaken()) + " frames wait";
    return lose_downstream(
        refit, link,
        lost(ErrorCode::kTimeout, child,
             "has taken nothing for " + seconds(now_ - link.last_progress) + " while " + waits));
  }
}

void RelayCore::report_lost(OpenRefit& refit, const Peer& peer, const Error& error) {
  ++counters_.links_lost;
  if (std::find(refit.lost_processes.begin(), refit.lost_processes.end(), peer.process) ==
      refit.lost_processes.end()) {
    refit.lost_processes.push_back(peer.process);
    set_holders(refit);
  }
  const auto known =
      std::find(refit.lost_members.begin(), refit.lost_members.end(), peer.member_id);
  if (known != refit.lost_members.end()) return;
  refit.lost_members.push_back(peer.member_id);
  const EventField fields[] = {{"member", peer.member_id},
                               {"refit", to_string(refit.identity.refit)},
                               {"error", error.message()}};
  events_.report(Severity::kWarning, "link_lost", fields);
  observer_.on_link_lost(refit.identity.refit, peer.member_id, error);
}

void RelayCore::lose_upstream(OpenRefit& refit, UpstreamLink& link, const Error& error) {
  settle_upstream(link, true);
  report_lost(refit, *link.place().parent, error);
}

void RelayCore::lose_downstream(OpenRefit& refit, DownstreamLink& link, const Error& error) {
  link.drop_all();
  end_downstream(link);
  report_lost(refit, *link.place().child, error);
}

void RelayCore::close_upstream(UpstreamLink& link) {
  if (link.phase == LinkPhase::kEnded) return;
  // Nobody can have been told of this range if no post was ever accepted.
  const bool unknown = link.number_out == 0;
  link.phase = LinkPhase::kClosing;
  link.deadline = now_ + options_.times.settle;
  link.next_message = now_;
  if (!unknown) return;
  link.parent_done = true;
  settle_upstream(link, false);
}

// Slots that no write can reach any more leave the range; when none is left, or the deadline has
// come, the link ends and what is left is quarantined.
void RelayCore::settle_upstream(UpstreamLink& link, bool overdue) {
  const UpstreamLink::Place& place = link.place();
  bool open = false;
  for (std::uint32_t i = 0; i < place.slot_count; ++i) {
    const std::uint32_t slot = place.first_slot + i;
    const GrantState state = link.state(slot);
    const bool reachable =
        state == GrantState::kRetired ||
        (state == GrantState::kGranted && (!link.parent_done || link.claimed(slot)));
    open |= reachable;
    if (link_of_slot_[slot] != &link || (reachable && !overdue)) continue;
    link_of_slot_[slot] = nullptr;
    if (reachable) {
      quarantine_[slot] = 1;
      ++quarantined_;
    } else {
      pool_.release(slot, state == GrantState::kTaken);
    }
    link.set_idle(slot);
  }
  if (!open || overdue) end_upstream(link);
}

void RelayCore::end_upstream(UpstreamLink& link) {
  link.phase = LinkPhase::kEnded;
  fabric_->unregister(link.place().memory);
}

void RelayCore::end_downstream(DownstreamLink& link) {
  link.phase = LinkPhase::kEnded;
  detach_writes(link);
}

void RelayCore::detach_writes(DownstreamLink& link) {
  for (WriteUnderWay& write : writes_) {
    if (write.link == &link) write.link = nullptr;
  }
  link.operations = 0;
}

bool RelayCore::try_finish(OpenRefit& refit) {
  const auto ended = [](const auto& link) { return link->phase == LinkPhase::kEnded; };
  if (!std::all_of(refit.upstream.begin(), refit.upstream.end(), ended) ||
      !std::all_of(refit.downstream.begin(), refit.downstream.end(), ended)) {
    return false;
  }
  for (const auto& link : refit.upstream) unjoin_link(link->place().parent);
  for (const auto& link : refit.downstream) unjoin_child(*link);
  for (Peer* const peer : refit.repair_peers) unjoin_peer(peer);
  return true;
}

void RelayCore::flush_counters() {
  next_flush_ = now_ + options_.times.heartbeat;
  const auto flush = [&](const char* name, std::uint64_t value, std::uint64_t& before) {
    if (value != before) events_.count(name, value - before);
    before = value;
  };
  flush("relay_frames_received", counters_.frames_received, flushed_.frames_received);
  flush("relay_frames_posted", counters_.frames_posted, flushed_.frames_posted);
  flush("relay_bytes_posted", counters_.bytes_posted, flushed_.bytes_posted);
  flush("relay_frames_repeated", counters_.frames_repeated, flushed_.frames_repeated);
  flush("relay_frames_refused", counters_.frames_refused, flushed_.frames_refused);
  flush("relay_frames_healed", counters_.frames_healed, flushed_.frames_healed);
  flush("relay_frames_read", counters_.frames_read, flushed_.frames_read);
  flush("relay_reads_refused", counters_.reads_refused, flushed_.reads_refused);
  flush("relay_frames_offered", counters_.frames_offered, flushed_.frames_offered);
  flush("relay_demotions", counters_.demotions, flushed_.demotions);
  flush("relay_doorbells_stray", counters_.doorbells_stray, flushed_.doorbells_stray);
  flush("relay_messages_stray", counters_.messages_stray, flushed_.messages_stray);
  flush("relay_fabric_troubles", counters_.fabric_troubles, flushed_.fabric_troubles);
  flush("relay_links_lost", counters_.links_lost, flushed_.links_lost);
}

}  // namespace weft::transport
