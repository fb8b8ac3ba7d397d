// SPDX-License-Identifier: Apache-2.0
// RelayCore: its links, as a status page shows them.
#include "transport/relay/relay_core.hpp"

namespace weft::transport {
namespace {

std::string_view name_of(LinkPhase phase) {
  switch (phase) {
    case LinkPhase::kConnecting:
      return "connecting";
    case LinkPhase::kOpen:
      return "open";
    case LinkPhase::kClosing:
      return "closing";
    case LinkPhase::kEnded:
      return "ended";
  }
  return "unknown";
}

template <typename Link>
LinkStatus status_of(const Link& link, const Peer& peer) {
  LinkStatus status;
  status.refit = link.place().refit;
  status.tree = link.place().tree.value;
  status.producer = link.place().producer;
  status.member_id = peer.member_id;
  status.phase = name_of(link.phase);
  status.suspect = peer.suspect && link.phase != LinkPhase::kEnded;
  status.frames = link.frames;
  status.bytes = link.bytes;
  return status;
}

}  // namespace

void RelayCore::add_waiting(const OpenRefit& refit, std::vector<LinkStatus>& links) {
  for (std::uint32_t t = 0; t < refit.plan.trees.size(); ++t) {
    const ProducerIndex producer{t / refit.stripes};
    const auto parent = refit.plan.trees[t].nodes[refit.self.value].parent;
    if (!parent || refit.producers[producer.value].stage != TreeStage::kWaiting) continue;
    LinkStatus& status = links.emplace_back();
    status.refit = refit.identity.refit;
    status.tree = t;
    status.producer = producer;
    status.member_id = refit.plan.nodes[parent->value].member_id;
    status.from_parent = true;
    status.phase = "waiting";
  }
}

std::vector<LinkStatus> RelayCore::links() const {
  owner_.check();
  std::vector<LinkStatus> links;
  for (const auto& refit : refits_) {
    for (const auto& link : refit->upstream) {
      LinkStatus& status = links.emplace_back(status_of(*link, *link->place().parent));
      status.from_parent = true;
      status.slots = link->place().slot_count;
      const bool usable = link->phase == LinkPhase::kConnecting || link->phase == LinkPhase::kOpen;
      status.credits = usable ? link->count(GrantState::kGranted) : 0;
    }
    for (const auto& link : refit->downstream) {
      LinkStatus& status = links.emplace_back(status_of(*link, *link->place().child));
      status.slots = link->slot_count();
      status.credits = link->phase == LinkPhase::kOpen ? link->credits() : 0;
      status.waiting = static_cast<std::uint32_t>(link->untaken());
      status.demoted = link->demoted;
      status.demotions = link->demotions;
    }
    if (takes_turns(*refit)) add_waiting(*refit, links);
  }
  return links;
}

}  // namespace weft::transport
