// SPDX-License-Identifier: Apache-2.0
// RelayCore: a child that holds back the others reads at its own pace.
#include <algorithm>
#include <bit>
#include <chrono>

#include "transport/relay/relay_core.hpp"

namespace weft::transport {
namespace {

// Longer than a busy machine keeps a process from running.
constexpr Duration kBehindMax = std::chrono::milliseconds(250);
constexpr Duration kRemindAfter = std::chrono::seconds(1);

std::uint32_t frames_in(const HeldFrames& held) {
  std::uint32_t count = held.first;
  for (std::uint32_t i = 0; i < held.byte_count; ++i) {
    count += static_cast<std::uint32_t>(std::popcount(std::to_integer<unsigned>(held.bits[i])));
  }
  return count;
}

}  // namespace

// The slots that frames of a tree arrive in, or, at the producer, leave from.
std::uint32_t RelayCore::slots_of(OpenRefit& refit, TreeIndex tree) {
  const UpstreamLink* const link = live_upstream(refit, tree);
  return link == nullptr ? pool_.slot_count() : link->place().slot_count;
}

// Fewer than slots.low_percent of them can take a new frame.
bool RelayCore::is_short(OpenRefit& refit, TreeIndex tree) {
  const UpstreamLink* const link = live_upstream(refit, tree);
  const std::uint32_t free = pool_.free_count();
  const std::uint32_t left = link == nullptr ? free - std::min(free, room_for_parents())
                                             : link->count(GrantState::kGranted);
  return std::uint64_t{left} * 100 < std::uint64_t{slots_of(refit, tree)} * options_.low_percent;
}

// Writes that a provider holds on to cannot be taken back, not even when their child is lost: all
// children together leave slots for what still comes, or the parent would wait and give this node
// up.
void RelayCore::set_windows(OpenRefit& refit) {
  for (std::uint32_t t = 0; t < refit.children.size(); ++t) {
    const auto count = static_cast<std::uint32_t>(refit.children[t].size());
    if (count == 0) continue;
    const std::uint32_t share = std::max(1U, slots_of(refit, TreeIndex{t}) * 3 / 4 / count);
    for (DownstreamLink* const link : refit.children[t]) link->window = share;
  }
}

void RelayCore::relieve(OpenRefit& refit, Duration passed) {
  if (refit.leaving) return;
  for (std::uint32_t t = 0; t < refit.children.size(); ++t) {
    const auto& links = refit.children[t];
    if (links.empty()) continue;
    const bool short_of_slots = is_short(refit, TreeIndex{t});
    const std::uint32_t slots = slots_of(refit, TreeIndex{t});
    const bool starving = std::any_of(links.begin(), links.end(), [](const DownstreamLink* link) {
      return link->phase == LinkPhase::kOpen && !link->demoted && link->untaken() == 0;
    });
    for (DownstreamLink* const link : links) {
      if (link->demoted) remind(*link);
      const bool live = link->phase == LinkPhase::kOpen || link->phase == LinkPhase::kConnecting;
      if (!live || link->demoted || link->untaken() == 0) continue;
      // One that may be busy with other trees is given longer; at the producer it holds back nobody
      // as long as no sibling has come.
      const bool stuck = link->awaited && now_ - link->last_progress >= options_.times.suspect;
      const Duration patience = link->awaited ? kBehindMax : options_.times.suspect;
      // It alone holds the slots. Counted down as fast as up: that a sibling has nothing to do more
      // than half of the time means that this one takes less than half of what the sibling could.
      const ProducerIndex producer = link->place().producer;
      const bool at_relay = refit.self.value != producer.value;
      const bool whole = refit.producers[producer.value].stage == TreeStage::kComplete;
      // Frames of a tree that has given its range back lie in slots that the next trees need.
      const bool holds_all =
          short_of_slots && ((at_relay && whole) || link->untaken() * 2 >= slots);
      const bool behind = holds_all && (starving || (at_relay && !link->awaited));
      link->behind_for =
          behind ? link->behind_for + passed : std::max(Duration{}, link->behind_for - passed);
      if ((short_of_slots && stuck) || link->behind_for >= patience) demote(refit, *link);
    }
  }
}

void RelayCore::demote(OpenRefit& refit, DownstreamLink& link) {
  ++counters_.demotions;
  const EventField fields[] = {{"member", link.place().child->member_id},
                               {"refit", to_string(refit.identity.refit)},
                               {"frames", std::to_string(link.untaken())}};
  events_.report(Severity::kWarning, "child_demoted", fields);
  link.behind_for = {};
  link.demote(now_);
}

// It may have stopped asking, because somebody else had nothing more for it.
void RelayCore::remind(DownstreamLink& link) {
  if (now_ - link.last_request < kRemindAfter) return;
  link.last_request = now_;
  ++link.skipped;
  link.table_owed = true;
}

void RelayCore::note_request(OpenRefit& refit, const RepairMessage& request) {
  const std::uint32_t held = frames_in(request.held);
  for (const auto& link : refit.downstream) {
    const bool theirs = link->demoted && link->place().producer == request.producer &&
                        link->place().child->process == request.sender;
    if (!theirs) continue;
    link->last_request = now_;
    if (held > link->held) link->last_progress = now_;
    link->held = std::max(held, link->held);
  }
}

// It has been told that there is nothing more: from here on it is written to again.
void RelayCore::end_demotion(OpenRefit& refit, const RepairMessage& offers) {
  if (offers.offer_count > 0 || offers.more) return;
  for (const auto& link : refit.downstream) {
    const bool theirs = link->demoted && link->place().producer == offers.producer &&
                        link->place().child->process == offers.target;
    if (!theirs) continue;
    link->demoted = false;
    link->last_progress = now_;
  }
}

}  // namespace weft::transport
