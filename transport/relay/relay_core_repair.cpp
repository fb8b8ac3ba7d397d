// SPDX-License-Identifier: Apache-2.0
// RelayCore: frames that no link brings: asked for, loaded from a spool, read one-sided.
#include <algorithm>
#include <chrono>

#include "transport/relay/relay_core.hpp"

namespace weft::transport {
namespace {

constexpr std::uint32_t kFrameStart = limits::kHeaderPageBytes - limits::kFrameHeaderBytes;
constexpr std::uint32_t kLoadsPerTurn = 4;

}  // namespace

void RelayCore::provide(SharedSlot frame) {
  owner_.check();
  now_ = clock_.now();
  const std::uint32_t slot = frame.slot_index();
  const auto load = desk_.load_in(slot);
  const auto reader = desk_.loaded(std::move(frame), now_);
  if (!load || !reader) return;
  ++counters_.frames_offered;
  OpenRefit* const refit = find(load->refit);
  if (refit == nullptr || refit->leaving) return desk_.end(load->refit);
  if (Peer* const peer = repair_peer(*refit, *reader)) send_offers(*refit, load->producer, *peer);
}

void RelayCore::mark_held(const RefitId& id, ProducerIndex producer,
                          std::span<const FrameSequence> sequences) {
  owner_.check();
  OpenRefit* const refit = find(id);
  if (refit == nullptr || producer.value >= refit->ledgers.size()) return;
  for (const FrameSequence sequence : sequences) {
    refit->ledgers[producer.value].note_held(sequence);
  }
}

void RelayCore::set_goal(const RefitId& id, std::span<const std::uint32_t> frame_counts) {
  owner_.check();
  OpenRefit* const refit = find(id);
  if (refit == nullptr || frame_counts.size() != refit->readers.size()) return;
  for (std::size_t p = 0; p < frame_counts.size(); ++p) {
    refit->readers[p].set_goal(frame_counts[p]);
    refit->producers[p].frame_count = frame_counts[p];
  }
}

void RelayCore::refetch(const RefitId& id, ProducerIndex producer, FrameSequence sequence) {
  owner_.check();
  now_ = clock_.now();
  OpenRefit* const refit = find(id);
  if (refit == nullptr || producer.value >= refit->ledgers.size()) return;
  refit->ledgers[producer.value].forget(sequence);
  refit->readers[producer.value].refetch(sequence, now_);
  requests_due_ = true;
}

// Another node of the plan, known from now on until the refit is left.
Peer* RelayCore::repair_peer(OpenRefit& refit, ProcessId process) {
  for (Peer* const peer : refit.repair_peers) {
    if (peer->process == process) return peer;
  }
  const auto node =
      std::find_if(refit.plan.nodes.begin(), refit.plan.nodes.end(),
                   [&](const wire::Endpoint& each) { return each.process == process; });
  if (node == refit.plan.nodes.end() || process == process_) return nullptr;
  auto peer = join_peer(*node);
  if (!peer) return nullptr;
  refit.repair_peers.push_back(*peer);
  return *peer;
}

// The way up from here, nearest first, without those that are lost; the producer stays in any case.
std::vector<ProcessId> RelayCore::holders_above(const OpenRefit& refit, std::uint32_t producer) {
  const auto contains = [](const std::vector<ProcessId>& all, ProcessId process) {
    return std::find(all.begin(), all.end(), process) != all.end();
  };
  const auto parent_in = [&](std::uint32_t stripe, NodeIndex node) {
    return refit.plan.trees[producer * refit.stripes + stripe].nodes[node.value].parent;
  };
  std::vector<ProcessId> holders;
  std::vector<std::optional<NodeIndex>> level;  // one step up in each tree of the producer
  for (std::uint32_t s = 0; s < refit.stripes; ++s) level.push_back(parent_in(s, refit.self));
  bool further = true;
  for (std::size_t steps = 0; further && steps < refit.plan.nodes.size(); ++steps) {
    further = false;
    for (std::uint32_t s = 0; s < refit.stripes; ++s) {
      if (!level[s] || level[s]->value == producer) continue;  // the producer comes last
      const ProcessId process = refit.plan.nodes[level[s]->value].process;
      if (!contains(refit.lost_processes, process) && !contains(holders, process)) {
        holders.push_back(process);
      }
      level[s] = parent_in(s, *level[s]);
      further = true;
    }
  }
  const bool below = std::any_of(level.begin(), level.end(), [](const auto& at) { return at; });
  if (below) holders.push_back(refit.plan.nodes[producer].process);
  return holders;
}

void RelayCore::set_holders(OpenRefit& refit) {
  for (std::uint32_t p = 0; p < refit.plan.producer_count; ++p) {
    refit.readers[p].set_holders(holders_above(refit, p));
  }
}

void RelayCore::scan_orphans(OpenRefit& refit) {
  if (refit.leaving) return;
  for (std::uint32_t p = 0; p < refit.plan.producer_count; ++p) {
    bool orphan = false;
    for (std::uint32_t t = p * refit.stripes; t < (p + 1) * refit.stripes; ++t) {
      const bool has_parent = refit.plan.trees[t].nodes[refit.self.value].parent.has_value();
      orphan |= has_parent && is_open(refit, TreeIndex{t}) &&
                live_upstream(refit, TreeIndex{t}) == nullptr;
    }
    refit.readers[p].set_orphan(orphan, now_);
  }
}

void RelayCore::send_requests() {
  requests_due_ = false;
  for (const auto& refit : refits_) {
    if (refit->leaving) continue;
    for (std::uint32_t p = 0; p < refit->readers.size(); ++p) {
      RepairReader& reader = refit->readers[p];
      const auto holder = reader.due(refit->ledgers[p], now_);
      Peer* const peer = holder ? repair_peer(*refit, *holder) : nullptr;
      if (peer == nullptr) continue;
      RepairMessage request;
      request.kind = RepairKind::kRequest;
      request.refit = refit->identity.refit;
      request.producer = ProducerIndex{p};
      reader.fill(request, refit->ledgers[p], now_);
      send_repair(*peer, request);
    }
  }
}

bool RelayCore::send_repair(Peer& peer, RepairMessage& message) {
  message.sender = process_;
  message.target = peer.process;
  ControlBytes room;
  return fabric_->post_send(peer.handle, encode_repair(message, room)) == Posted::kPosted;
}

void RelayCore::on_repair_message(std::span<const std::byte> bytes) {
  const auto message = decode_repair(bytes);
  OpenRefit* const refit = message && message->target == process_ ? find(message->refit) : nullptr;
  if (refit == nullptr || refit->leaving || message->producer.value >= refit->readers.size()) {
    ++counters_.messages_stray;
    return;
  }
  switch (message->kind) {
    case RepairKind::kRequest:
      return on_request(*refit, *message);
    case RepairKind::kOffer:
      return on_offer(*refit, *message);
    case RepairKind::kDone:
      return desk_.done(*message);
  }
}

void RelayCore::on_request(OpenRefit& refit, const RepairMessage& message) {
  Peer* const reader = repair_peer(refit, message.sender);
  if (reader == nullptr) {
    ++counters_.messages_stray;
    return;
  }
  desk_.wish(message, now_);
  note_request(refit, message);
  send_offers(refit, message.producer, *reader);
}

void RelayCore::send_offers(OpenRefit& refit, ProducerIndex producer, Peer& reader) {
  RepairMessage offers;
  offers.kind = RepairKind::kOffer;
  offers.refit = refit.identity.refit;
  offers.producer = producer;
  offers.target = reader.process;
  desk_.fill(refit.ledgers[producer.value],
             {fabric_->remote_memory(reserve_memory_), pool_.slot_bytes()}, offers);
  if (send_repair(reader, offers)) end_demotion(refit, offers);
}

bool RelayCore::load_wanted() {
  const auto ledger_of = [&](const RefitId& id, ProducerIndex producer) -> const FrameLedger* {
    const OpenRefit* const refit = find(id);
    return refit == nullptr || refit->leaving ? nullptr : &refit->ledgers[producer.value];
  };
  bool any = false;
  for (std::uint32_t i = 0; i < kLoadsPerTurn; ++i) {
    const auto load = desk_.next_load(ledger_of, now_);
    if (!load) break;
    any = true;
    observer_.on_frame_wanted(
        {load->refit, load->producer, load->sequence, Lease(&pool_.slot(load->slot))});
  }
  return any;
}

void RelayCore::on_offer(OpenRefit& refit, const RepairMessage& message) {
  RepairReader& reader = refit.readers[message.producer.value];
  FrameLedger& ledger = refit.ledgers[message.producer.value];
  Peer* const holder = repair_peer(refit, message.sender);
  if (holder == nullptr || !reader.answered(message, message.sender, ledger, now_)) return;
  requests_due_ = true;
  for (std::uint32_t i = 0; i < message.offer_count; ++i) {
    const FrameOffer& offer = message.offers[i];
    if (ledger.holds(offer.sequence.value)) continue;
    start_read(refit, message.producer, *holder, offer);
  }
}

bool RelayCore::is_reading(const RefitId& refit, ProducerIndex producer,
                           const FrameOffer& offer) const {
  return std::any_of(reads_.begin(), reads_.end(), [&](const ReadUnderWay& read) {
    // One that never comes back does not keep its frame from being read elsewhere.
    return read.busy && read.producer == producer && read.offer.sequence == offer.sequence &&
           read.refit == refit && now_ - read.since < options_.times.suspect;
  });
}

void RelayCore::start_read(OpenRefit& refit, ProducerIndex producer, Peer& holder,
                           const FrameOffer& offer) {
  const std::uint32_t room = pool_.slot_bytes() - kFrameStart - limits::kSlotTailBytes;
  const bool fits = offer.frame_bytes >= limits::kFrameHeaderBytes && offer.frame_bytes <= room;
  const auto idle = std::find_if(reads_.begin(), reads_.end(),
                                 [](const ReadUnderWay& read) { return !read.busy; });
  if (!fits || idle == reads_.end() || is_reading(refit.identity.refit, producer, offer)) return;
  // Offered again when there is none.
  if (pool_.free_count() <= room_for_parents()) return;
  auto lease = pool_.try_acquire();
  if (!lease) return;
  RemoteOperation operation;
  operation.peer = holder.handle;
  operation.local = slab_memory_;
  operation.bytes = {pool_.slot(lease->slot_index()).memory + kFrameStart, offer.frame_bytes};
  operation.remote = offer.memory;
  const auto index = static_cast<std::uint32_t>(idle - reads_.begin());
  operation.cookie = (std::uint64_t{idle->round + 1} << 32) | index | kReadCookie;
  if (fabric_->post_read(operation) != Posted::kPosted) return;
  ++idle->round;
  idle->room = std::move(*lease);
  idle->peer = &holder;
  idle->refit = refit.identity.refit;
  idle->producer = producer;
  idle->offer = offer;
  idle->busy = true;
  idle->since = now_;
  ++holder.operations;
  ++counters_.reads_posted;
}

void RelayCore::send_done(const ReadUnderWay& read) {
  RepairMessage done;
  done.kind = RepairKind::kDone;
  done.refit = read.refit;
  done.producer = read.producer;
  done.offer_count = 1;
  done.offers[0] = read.offer;
  send_repair(*read.peer, done);
}

void RelayCore::on_read(std::uint32_t index, bool failed) {
  ReadUnderWay& entry = reads_[index];
  ReadUnderWay read = std::move(entry);
  entry = ReadUnderWay{};
  entry.round = read.round;
  ++counters_.reads_completed;
  OpenRefit* const refit = find(read.refit);
  const bool wanted = !failed && refit != nullptr && !refit->leaving;
  if (wanted) {
    send_done(read);
    FrameIdentity expected = refit->identity;
    expected.producer = read.producer;
    const auto frame = std::span<const std::byte>(
        pool_.slot(read.room.slot_index()).memory + kFrameStart, read.offer.frame_bytes);
    const auto header = check_frame(frame, expected);
    // The offer may have ended under the read: then this is another frame, or half of one.
    if (header && header->sequence == read.offer.sequence.value) {
      take_frame(*refit, *header,
                 std::move(read.room).share(static_cast<std::uint32_t>(header->frame_bytes())),
                 *read.peer, true);
      requests_due_ = true;
    } else {
      ++counters_.reads_refused;
    }
  }
  --read.peer->operations;
  if (read.peer->links == 0) unjoin_peer(read.peer);
}

// At the end: nobody reads any more.
void RelayCore::release_reserve() {
  for (std::uint32_t i = 0; i < options_.send_reserve; ++i) {
    pool_.release(reserve_first_ + i, !desk_.is_free(reserve_first_ + i));
  }
}

}  // namespace weft::transport
