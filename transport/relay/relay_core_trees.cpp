// SPDX-License-Identifier: Apache-2.0
// RelayCore: producers take turns when there are more of them than trees may be open at once.
#include <algorithm>

#include "transport/relay/relay_core.hpp"

namespace weft::transport {

bool RelayCore::takes_turns(const OpenRefit& refit) {
  return refit.producers_open_max < refit.plan.producer_count;
}

bool RelayCore::is_open(const OpenRefit& refit, TreeIndex tree) {
  return refit.producers[tree.value / refit.stripes].stage == TreeStage::kOpen;
}

// One that is being closed is registered still.
bool RelayCore::holds_ranges(const OpenRefit& refit, ProducerIndex producer) {
  return std::any_of(refit.upstream.begin(), refit.upstream.end(), [&](const auto& link) {
    return link->place().producer == producer && link->phase != LinkPhase::kEnded;
  });
}

// That should have one: orphans, and those whose turn has come.
std::uint32_t RelayCore::trees_without_parent(OpenRefit& refit) {
  std::uint32_t count = 0;
  std::uint32_t places = refit.producers_open_max;
  for (std::uint32_t p = 0; p < refit.plan.producer_count; ++p) {
    const TreeStage stage = refit.producers[p].stage;
    const bool counts = stage == TreeStage::kOpen || (stage == TreeStage::kWaiting && places > 0);
    if (!counts) continue;
    places -= std::min(places, 1U);
    for (std::uint32_t t = p * refit.stripes; t < (p + 1) * refit.stripes; ++t) {
      const bool has_parent = refit.plan.trees[t].nodes[refit.self.value].parent.has_value();
      count += has_parent && live_upstream(refit, TreeIndex{t}) == nullptr ? 1 : 0;
    }
  }
  return count;
}

void RelayCore::finish(const RefitId& id, ProducerIndex producer, std::uint32_t frame_count) {
  owner_.check();
  now_ = clock_.now();
  OpenRefit* const refit = find(id);
  if (refit == nullptr || refit->leaving || producer.value >= refit->producers.size()) return;
  note_end(*refit, producer, frame_count);
}

// Goes on down the trees at once.
void RelayCore::note_end(OpenRefit& refit, ProducerIndex producer, std::uint32_t frame_count) {
  ProducerTrees& trees = refit.producers[producer.value];
  if (trees.frame_count) return;
  trees.frame_count = frame_count;
  if (takes_turns(refit)) refit.readers[producer.value].expect(frame_count);
  for (const auto& link : refit.downstream) {
    if (link->place().producer == producer) link->table_owed = true;
  }
}

// In the order of the producers at every node: the first one that is not complete everywhere has
// its range, or is next, at each node that lacks frames of it, so that somebody can always go on.
void RelayCore::take_turns(OpenRefit& refit) {
  if (refit.leaving || recycling_ || !takes_turns(refit)) return;
  close_complete(refit);
  std::uint32_t taken = 0;
  for (std::uint32_t p = 0; p < refit.plan.producer_count; ++p) {
    const TreeStage stage = refit.producers[p].stage;
    const bool holds = stage == TreeStage::kComplete && holds_ranges(refit, ProducerIndex{p});
    taken += stage == TreeStage::kOpen || holds ? 1 : 0;
  }
  for (std::uint32_t p = 0; p < refit.plan.producer_count; ++p) {
    if (taken >= refit.producers_open_max) break;
    if (refit.producers[p].stage != TreeStage::kWaiting) continue;
    if (!open_trees(refit, ProducerIndex{p})) break;  // frames of earlier ones hold the slots still
    ++taken;
  }
  prune_complete(refit);
}

void RelayCore::close_complete(OpenRefit& refit) {
  for (std::uint32_t p = 0; p < refit.plan.producer_count; ++p) {
    ProducerTrees& trees = refit.producers[p];
    if (trees.stage == TreeStage::kComplete || !trees.frame_count ||
        refit.ledgers[p].count() < *trees.frame_count) {
      continue;
    }
    trees.stage = TreeStage::kComplete;
    for (const auto& link : refit.upstream) {
      if (link->place().producer.value == p && !link->parent_done) close_upstream(*link);
    }
  }
}

// False: not enough slots are free yet. What else fails leaves the tree an orphan, which reads.
bool RelayCore::open_trees(OpenRefit& refit, ProducerIndex producer) {
  const std::uint32_t slots = range_slots(refit.producers_open_max * refit.stripes);
  std::vector<UpstreamLink*> added;
  const std::uint32_t first = producer.value * refit.stripes;
  for (std::uint32_t t = first; t < first + refit.stripes; ++t) {
    const auto parent = refit.plan.trees[t].nodes[refit.self.value].parent;
    if (!parent) continue;
    const wire::Endpoint& node = refit.plan.nodes[parent->value];
    const Status opened = add_upstream(node, TreeIndex{t}, slots, refit);
    if (opened) {
      added.push_back(refit.upstream.back().get());
    } else if (opened.error().code == ErrorCode::kResourceLimit) {
      for (UpstreamLink* const link : added) close_upstream(*link);
      prune_links(refit);
      return false;
    } else {
      observer_.on_fault(refit.identity.refit, node.member_id, opened.error());
    }
  }
  refit.producers[producer.value].stage = TreeStage::kOpen;
  set_windows(refit);
  return true;
}

// From its first word on a child's silence counts.
void RelayCore::welcome(DownstreamLink& link) {
  if (link.awaited) return;
  link.awaited = true;
  ++link.place().child->beats;
}

// Links that ended because their work was done leave nothing behind.
void RelayCore::prune_complete(OpenRefit& refit) {
  const auto complete = [&](const auto& link) {
    return link->phase == LinkPhase::kEnded &&
           refit.producers[link->place().producer.value].stage == TreeStage::kComplete;
  };
  const auto done = [&](const DownstreamLink* link) {
    return link->phase == LinkPhase::kEnded && link->child_done;
  };
  for (auto& children : refit.children) std::erase_if(children, done);
  std::erase_if(refit.upstream, [&](const auto& link) {
    if (!complete(link)) return false;
    unjoin_link(link->place().parent);
    return true;
  });
  std::erase_if(refit.downstream, [&](const auto& link) {
    if (!done(link.get())) return false;
    unjoin_child(*link);
    return true;
  });
}

}  // namespace weft::transport
