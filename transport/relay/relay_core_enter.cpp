// SPDX-License-Identifier: Apache-2.0
// RelayCore: taking a place in the trees of a plan.
#include <algorithm>

#include <sys/random.h>

#include "transport/relay/relay_core.hpp"

namespace weft::transport {
namespace {

Error bad_plan(const wire::Plan& plan, const std::string& what) {
  return failure(ErrorCode::kProtocol, Stage::kRelay,
                 "plan of refit " + to_string(plan.refit) + ": " + what);
}

std::uint64_t draw_link() {
  std::uint64_t link = 0;  // 0: no link
  while (link == 0) static_cast<void>(getrandom(&link, sizeof(link), 0));
  return link;
}

std::string name_of(const wire::Endpoint& endpoint) {
  return endpoint.member_id + " (process " + to_hex(endpoint.process.value) + ")";
}

}  // namespace

Status RelayCore::check_plan(const wire::Plan& plan, NodeIndex self) const {
  if (self.value >= plan.nodes.size()) return bad_plan(plan, "this node is not in it");
  if (plan.nodes[self.value].process != process_) {
    return bad_plan(plan, "node " + std::to_string(self.value) + " is process " +
                              to_hex(plan.nodes[self.value].process.value) + ", this is " +
                              to_hex(process_.value));
  }
  const bool whole = plan.producer_count > 0 && !plan.trees.empty() &&
                     plan.trees.size() % plan.producer_count == 0;
  if (!whole) {
    return bad_plan(plan, std::to_string(plan.trees.size()) + " trees for " +
                              std::to_string(plan.producer_count) + " producers");
  }
  for (const wire::Plan::Tree& tree : plan.trees) {
    if (tree.nodes.size() != plan.nodes.size()) return bad_plan(plan, "a tree of another size");
    const wire::TreeNode& place = tree.nodes[self.value];
    const auto beyond = [&](NodeIndex node) {
      return node.value >= plan.nodes.size() || node == self;
    };
    if (place.children.size() > limits::kChildrenMax || (place.parent && beyond(*place.parent)) ||
        std::any_of(place.children.begin(), place.children.end(), beyond)) {
      return bad_plan(plan, "a neighbour that cannot be");
    }
  }
  return ok();
}

Status RelayCore::enter(const wire::Plan& plan, NodeIndex self) {
  owner_.check();
  now_ = clock_.now();
  if (OpenRefit* const open = find(plan.refit)) {
    if (open->leaving) {
      return failure(ErrorCode::kBusy, Stage::kRelay,
                     "refit " + to_string(plan.refit) + " is being left");
    }
    return plan.revision > open->plan.revision ? update(*open, plan, self) : ok();
  }
  WEFT_TRY_STATUS(check_plan(plan, self));
  if (recycling_) {
    return failure(ErrorCode::kBusy, Stage::kRelay, "the rail is being opened again");
  }
  if (refits_.size() >= kOpenRefitsMax) {
    return failure(ErrorCode::kBusy, Stage::kRelay,
                   std::to_string(refits_.size()) + " refits are open at this relay already");
  }
  auto refit = std::make_unique<OpenRefit>();
  refit->identity = {plan.fleet, plan.refit, plan.base.lattice, {}};
  refit->plan = plan;
  refit->self = self;
  refit->stripes = static_cast<std::uint32_t>(plan.trees.size()) / plan.producer_count;
  refit->children.resize(plan.trees.size());
  refit->ledgers.resize(plan.producer_count);
  refit->readers.resize(plan.producer_count);
  refit->producers.resize(plan.producer_count);
  refit->producers_open_max =
      plan.trees_open_max == 0
          ? plan.producer_count
          : std::clamp(plan.trees_open_max / refit->stripes, 1U, plan.producer_count);
  for (std::uint32_t p = 0; p < refit->producers_open_max; ++p) {
    refit->producers[p].stage = TreeStage::kOpen;
  }
  if (Status added = add_links(*refit); !added) {
    forget_links(*refit);
    return added;
  }
  if (self.value < plan.producer_count) refit->ledgers[self.value].reserve();
  set_holders(*refit);
  set_windows(*refit);
  refits_.push_back(std::move(refit));
  return ok();
}

// The trees have changed: links that both plans have stay as they are.
Status RelayCore::update(OpenRefit& refit, const wire::Plan& plan, NodeIndex self) {
  WEFT_TRY_STATUS(check_plan(plan, self));
  if (plan.producer_count != refit.plan.producer_count ||
      plan.trees.size() != refit.plan.trees.size() || recycling_) {
    return bad_plan(plan, "revision " + std::to_string(plan.revision) + " does not fit");
  }
  refit.plan = plan;
  refit.self = self;
  refit.lost_processes.clear();
  std::erase_if(refit.lost_members, [&](const std::string& lost) {
    return std::any_of(plan.nodes.begin(), plan.nodes.end(),
                       [&](const wire::Endpoint& node) { return node.member_id == lost; });
  });
  end_other_links(refit);
  prune_links(refit);
  Status added = add_links(refit);
  set_holders(refit);
  set_windows(refit);
  return added;
}

UpstreamLink* RelayCore::live_upstream(OpenRefit& refit, TreeIndex tree) {
  for (const auto& link : refit.upstream) {
    const bool live = link->phase == LinkPhase::kConnecting || link->phase == LinkPhase::kOpen;
    if (live && !link->parent_done && link->place().tree == tree) return link.get();
  }
  return nullptr;
}

DownstreamLink* RelayCore::live_downstream(OpenRefit& refit, TreeIndex tree, ProcessId child) {
  for (const auto& link : refit.downstream) {
    const bool live = link->phase == LinkPhase::kConnecting || link->phase == LinkPhase::kOpen;
    if (live && link->place().tree == tree && link->place().child->process == child) {
      return link.get();
    }
  }
  return nullptr;
}

void RelayCore::end_other_links(OpenRefit& refit) {
  const auto place = [&](TreeIndex tree) -> const wire::TreeNode& {
    return refit.plan.trees[tree.value].nodes[refit.self.value];
  };
  for (const auto& link : refit.upstream) {
    const auto& parent = place(link->place().tree).parent;
    const bool stays =
        parent && refit.plan.nodes[parent->value].process == link->place().parent->process;
    if (!stays) close_upstream(*link);
  }
  for (const auto& link : refit.downstream) {
    const auto& children = place(link->place().tree).children;
    const bool stays = std::any_of(children.begin(), children.end(), [&](NodeIndex child) {
      return refit.plan.nodes[child.value].process == link->place().child->process;
    });
    if (stays || link->phase == LinkPhase::kEnded) continue;
    link->drop_all();
    link->not_planned = true;
    link->phase = LinkPhase::kClosing;
    link->deadline = now_ + options_.times.settle;
    link->next_message = now_;
  }
}

// Ended links leave nothing behind but their entry.
void RelayCore::prune_links(OpenRefit& refit) {
  const auto ended = [](const auto& link) { return link->phase == LinkPhase::kEnded; };
  for (auto& children : refit.children) {
    std::erase_if(children,
                  [](const DownstreamLink* link) { return link->phase == LinkPhase::kEnded; });
  }
  std::erase_if(refit.upstream, [&](const auto& link) {
    if (ended(link)) unjoin_link(link->place().parent);
    return ended(link);
  });
  std::erase_if(refit.downstream, [&](const auto& link) {
    if (ended(link)) unjoin_child(*link);
    return ended(link);
  });
}

// What the plan has and is not there yet.
Status RelayCore::add_links(OpenRefit& refit) {
  const wire::Plan& plan = refit.plan;
  const NodeIndex self = refit.self;
  std::uint32_t ranges = 0;
  for (std::uint32_t t = 0; t < plan.trees.size(); ++t) {
    const bool wanted =
        plan.trees[t].nodes[self.value].parent.has_value() && is_open(refit, TreeIndex{t});
    ranges += wanted && live_upstream(refit, TreeIndex{t}) == nullptr ? 1 : 0;
  }
  WEFT_TRY(const std::uint32_t slots, choose_range_slots(ranges));
  for (std::uint32_t t = 0; t < plan.trees.size(); ++t) {
    const TreeIndex tree{t};
    const wire::TreeNode& place = plan.trees[t].nodes[self.value];
    if (place.parent && is_open(refit, tree) && live_upstream(refit, tree) == nullptr) {
      WEFT_TRY_STATUS(add_upstream(plan.nodes[place.parent->value], tree, slots, refit));
    }
    for (const NodeIndex child : place.children) {
      const wire::Endpoint& node = plan.nodes[child.value];
      if (live_downstream(refit, tree, node.process) != nullptr) continue;
      WEFT_TRY_STATUS(add_downstream(node, tree, refit));
    }
  }
  return ok();
}

// Each tree has a range of its own: frames of one tree never wait for another's, so that trees over
// the same nodes cannot wait in a circle.
Result<std::uint32_t> RelayCore::choose_range_slots(std::uint32_t ranges) const {
  if (ranges == 0) return std::uint32_t{0};
  const std::uint32_t free = pool_.free_count();
  const std::uint32_t slots =
      std::max(kSlotsPerLinkMin, std::min(range_slots(ranges), free / ranges));
  if (std::uint64_t{ranges} * slots > free) {
    return failure(ErrorCode::kResourceLimit, Stage::kRelay,
                   std::to_string(ranges) + " trees need " + std::to_string(ranges * slots) +
                       " free slots, the slab has " + std::to_string(free) + " of " +
                       std::to_string(pool_.slot_count()) + ": raise its slot count");
  }
  return slots;
}

// Of each of so many ranges, when there is room.
std::uint32_t RelayCore::range_slots(std::uint32_t ranges) const {
  const std::uint32_t share = pool_.slot_count() / 2 / ranges;  // half stays for the next refit
  const std::uint32_t wish =
      std::clamp(options_.slots_per_link, kSlotsPerLinkMin, kSlotsPerLinkMax);
  return std::max(kSlotsPerLinkMin, std::min(wish, share));
}

// Free slots that are kept for the ranges of new parents, one for each tree that has none: frames
// read meanwhile may wait here for a slow child, and a plan could not be entered.
std::uint32_t RelayCore::room_for_parents() {
  std::uint32_t orphaned = 0;
  std::uint32_t taken = options_.send_reserve + quarantined_;
  for (const auto& refit : refits_) {
    for (const auto& link : refit->upstream) {
      if (link->phase != LinkPhase::kEnded) taken += link->place().slot_count;
    }
    if (!refit->leaving) orphaned += trees_without_parent(*refit);
  }
  if (orphaned == 0) return 0;
  // In a small slab reading goes on with half of what there is.
  const std::uint32_t usable = pool_.slot_count() - std::min(pool_.slot_count(), taken);
  return std::min(orphaned * range_slots(orphaned), usable / 2);
}

Status RelayCore::add_upstream(const wire::Endpoint& parent, TreeIndex tree, std::uint32_t slots,
                               OpenRefit& refit) {
  const ProducerIndex producer{tree.value / refit.stripes};
  auto first = pool_.take_range(slots);
  while (!first && slots > kSlotsPerLinkMin) first = pool_.take_range(--slots);
  if (!first) {
    return failure(ErrorCode::kResourceLimit, Stage::kRelay,
                   "no " + std::to_string(slots) + " neighbouring free slots in the slab");
  }
  const auto give_back = [&] {
    for (std::uint32_t i = 0; i < slots; ++i) pool_.release(*first + i, false);
  };
  const std::size_t slot_bytes = pool_.slot_bytes();
  const auto range = pool_.memory().subspan(*first * slot_bytes, slots * slot_bytes);
  auto memory = fabric_->register_memory(range, MemoryAccess::kRemoteWrite);
  auto peer = join_peer(parent);
  if (!memory || !peer) {
    if (memory) fabric_->unregister(*memory);
    if (peer) unjoin_peer(*peer);
    give_back();
    return memory ? std::move(peer).error() : std::move(memory).error();
  }
  UpstreamLink::Place place{refit.identity.refit, tree,   producer, *peer, draw_link(),
                            next_incarnation_++,  *first, slots,    1,     *memory};
  ++(*peer)->beats;
  refit.upstream.push_back(std::make_unique<UpstreamLink>(place, now_));
  refit.upstream.back()->deadline = now_ + options_.times.connect;
  refit.ledgers[producer.value].reserve();
  for (std::uint32_t slot = *first; slot < *first + slots; ++slot) {
    clear_magic(slot);
    link_of_slot_[slot] = refit.upstream.back().get();
  }
  return ok();
}

Status RelayCore::add_downstream(const wire::Endpoint& child, TreeIndex tree, OpenRefit& refit) {
  const ProducerIndex producer{tree.value / refit.stripes};
  WEFT_TRY(Peer* const peer, join_peer(child));
  const bool awaited = !takes_turns(refit);
  peer->beats += awaited ? 1 : 0;
  refit.downstream.push_back(std::make_unique<DownstreamLink>(
      DownstreamLink::Place{refit.identity.refit, tree, producer, peer}, pool_.slot_count()));
  refit.downstream.back()->awaited = awaited;
  refit.downstream.back()->deadline = now_ + options_.times.connect;
  refit.downstream.back()->last_progress = now_;
  // What has come already is not written over a link that was not there.
  refit.downstream.back()->skipped = refit.ledgers[producer.value].horizon() > 0 ? 1 : 0;
  refit.children[tree.value].push_back(refit.downstream.back().get());
  return ok();
}

Result<Peer*> RelayCore::join_peer(const wire::Endpoint& endpoint) {
  for (const auto& peer : peers_) {
    if (peer->process != endpoint.process) continue;
    ++peer->links;
    return peer.get();
  }
  const auto rail = std::find_if(
      endpoint.rails.begin(), endpoint.rails.end(), [&](const wire::RailAddress& candidate) {
        return candidate.protocol == fabric_->facts().protocol &&
               candidate.address.size() <= limits::kFabricAddressBytesMax;
      });
  if (rail == endpoint.rails.end()) {
    std::string theirs;
    for (const wire::RailAddress& other : endpoint.rails) theirs += " " + other.provider;
    return failure(ErrorCode::kUnsupported, Stage::kRelay,
                   "no common fabric protocol with " + name_of(endpoint) + ": this node has " +
                       fabric_->facts().provider + ", it has" +
                       (theirs.empty() ? " none" : theirs));
  }
  WEFT_TRY(const PeerHandle handle, fabric_->insert_peer(rail->address));
  auto peer = std::make_unique<Peer>();
  peer->process = endpoint.process;
  peer->member_id = endpoint.member_id;
  peer->handle = handle;
  peer->links = 1;
  peer->last_heard = now_;
  peers_.push_back(std::move(peer));
  return peers_.back().get();
}

// A peer whose writes are still out keeps its address until they are over.
void RelayCore::unjoin_peer(Peer* peer) {
  if (peer->links > 0) --peer->links;
  if (peer->links > 0 || peer->operations > 0) return;
  fabric_->remove_peer(peer->handle);
  const auto place = std::find_if(peers_.begin(), peers_.end(),
                                  [&](const auto& known) { return known.get() == peer; });
  peers_.erase(place);
}

void RelayCore::unjoin_link(Peer* peer) {
  --peer->beats;
  unjoin_peer(peer);
}

void RelayCore::unjoin_child(const DownstreamLink& link) {
  Peer* const peer = link.place().child;
  peer->beats -= link.awaited ? 1 : 0;
  unjoin_peer(peer);
}

// Of a refit that could not be entered: nobody has heard of its links yet.
void RelayCore::forget_links(OpenRefit& refit) {
  for (const auto& link : refit.upstream) {
    fabric_->unregister(link->place().memory);
    for (std::uint32_t i = 0; i < link->place().slot_count; ++i) {
      link_of_slot_[link->place().first_slot + i] = nullptr;
      pool_.release(link->place().first_slot + i, false);
    }
    unjoin_link(link->place().parent);
  }
  for (const auto& link : refit.downstream) unjoin_child(*link);
}

}  // namespace weft::transport
