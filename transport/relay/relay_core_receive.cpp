// SPDX-License-Identifier: Apache-2.0
// RelayCore: what comes in: doorbells, messages, completions, troubles.
#include <algorithm>
#include <bit>
#include <chrono>

#include "transport/relay/relay_core.hpp"
#include "weft/wire/byte_io.hpp"

namespace weft::transport {
namespace {

constexpr std::uint32_t kFrameStart = limits::kHeaderPageBytes - limits::kFrameHeaderBytes;
constexpr Duration kProbeInterval = std::chrono::milliseconds(50);

}  // namespace

bool RelayCore::drain_events() {
  const std::size_t stored = fabric_->poll(event_room_);
  for (std::size_t i = 0; i < stored; ++i) {
    const FabricEvent& event = event_room_[i];
    switch (event.kind) {
      case FabricEventKind::kDoorbell:
        on_doorbell(event.immediate);
        break;
      case FabricEventKind::kMessage:
        on_message(event.message);
        break;
      case FabricEventKind::kCompleted:
      case FabricEventKind::kFailed:
        on_operation(event);
        break;
      case FabricEventKind::kTrouble:
        on_trouble(event);
        break;
    }
  }
  return stored > 0;
}

void RelayCore::on_doorbell(std::uint32_t immediate) {
  const Doorbell bell = Doorbell::unpack(immediate);
  UpstreamLink* const link = bell.slot < link_of_slot_.size() ? link_of_slot_[bell.slot] : nullptr;
  const auto ring = link == nullptr ? UpstreamLink::Ring::kStray : link->ring(bell);
  if (ring == UpstreamLink::Ring::kStray) {
    ++counters_.doorbells_stray;
    return;
  }
  // A write that arrives is a sign of life: on a slow link no message may get past it.
  link->place().parent->last_heard = link->last_heard = now_;
  if (link->phase == LinkPhase::kConnecting) open_upstream(*link);
  if (ring == UpstreamLink::Ring::kLate) {
    clear_magic(bell.slot);
    link->revive(bell.slot, now_);
    return;
  }
  receive(*link, bell.slot, true);
}

// `final`: the write is over, so that what does not hold now is corrupt.
RelayCore::Arrival RelayCore::receive(UpstreamLink& link, std::uint32_t slot, bool final) {
  OpenRefit* const refit = find(link.place().refit);
  WEFT_ASSERT(refit != nullptr);
  if (refit->leaving) {
    // Nobody wants it any more, but the write is over.
    if (final) link.set_idle(slot);
    return Arrival::kNothingYet;
  }
  FrameIdentity expected = refit->identity;
  expected.producer = link.place().producer;
  const auto room =
      std::span<const std::byte>(pool_.slot(slot).memory, pool_.slot_bytes())
          .subspan(kFrameStart, pool_.slot_bytes() - kFrameStart - limits::kSlotTailBytes);
  const bool empty = wire::load_le<std::uint32_t>(room.data()) == 0;
  if (empty && !final) return Arrival::kNothingYet;
  auto header = check_frame(room, expected);
  if (!header && !final && header.error().code == ErrorCode::kCorruptPayload) {
    return Arrival::kNothingYet;
  }
  if (!header) {
    refuse(*refit, link, slot, header.error());
    return Arrival::kRefused;
  }
  deliver(*refit, link, slot, *header);
  return Arrival::kTaken;
}

void RelayCore::refuse(OpenRefit& refit, UpstreamLink& link, std::uint32_t slot,
                       const Error& error) {
  ++counters_.frames_refused;
  clear_magic(slot);
  if (error.code == ErrorCode::kProtocol) {
    // It would be the same again: taken, dropped and granted anew.
    link.take(slot, now_);
    link.give_again(slot, now_);
  } else {
    link.reject(slot, now_);
  }
  observer_.on_fault(refit.identity.refit, link.place().parent->member_id, error);
}

void RelayCore::deliver(OpenRefit& refit, UpstreamLink& link, std::uint32_t slot,
                        const wire::FrameHeader& header) {
  link.take(slot, now_);
  ++link.frames;
  link.bytes += header.frame_bytes();
  // The lease is the range's: its last drop shows up in take_returned().
  SharedSlot frame =
      Lease(&pool_.slot(slot)).share(static_cast<std::uint32_t>(header.frame_bytes()));
  take_frame(refit, header, std::move(frame), *link.place().parent, false);
}

// The frame has been checked; its producer is one of the refit's.
void RelayCore::take_frame(OpenRefit& refit, const wire::FrameHeader& header, SharedSlot frame,
                           const Peer& from, bool by_read) {
  const ProducerIndex producer{header.producer};
  const FrameSequence sequence{header.sequence};
  const auto entry = refit.ledgers[producer.value].note(sequence, header.checksum_low);
  refit.readers[producer.value].arrived(by_read, now_);
  if (entry == FrameLedger::Entry::kNew) {
    ++counters_.frames_received;
    counters_.frames_read += by_read ? 1 : 0;
    // The children have the bad one under the same number and look after themselves.
    if (!refit.readers[producer.value].is_refetched(sequence)) {
      forward(refit, tree_of(refit, producer, sequence), frame);
    }
    observer_.on_frame(refit.identity.refit, producer, sequence, std::move(frame));
    return;
  }
  if (entry == FrameLedger::Entry::kRepeated) {
    ++counters_.frames_repeated;
    return;
  }
  ++counters_.frames_refused;
  const bool conflict = entry == FrameLedger::Entry::kConflict;
  observer_.on_fault(
      refit.identity.refit, from.member_id,
      failure(conflict ? ErrorCode::kPayloadConflict : ErrorCode::kProtocol, Stage::kRelay,
              "frame " + std::to_string(header.sequence) + " of producer " +
                  std::to_string(producer.value) +
                  (conflict ? " has come before with another checksum"
                            : " is beyond the frames of a refit")));
}

bool RelayCore::collect_returned() {
  bool found = false;
  for (std::uint32_t word = 0; word < pool_.word_count(); ++word) {
    std::uint64_t returned = pool_.take_returned(word);
    found |= returned != 0;
    for (; returned != 0; returned &= returned - 1) {
      const std::uint32_t slot = word * 64 + static_cast<std::uint32_t>(std::countr_zero(returned));
      if (desk_.owns(slot)) {
        desk_.returned(slot, now_);
        continue;
      }
      UpstreamLink* const link = link_of_slot_[slot];
      if (link == nullptr) continue;  // released meanwhile
      clear_magic(slot);
      link->give_again(slot, now_);
    }
  }
  return found;
}

void RelayCore::clear_magic(std::uint32_t slot) {
  wire::store_le(pool_.slot(slot).memory + kFrameStart, std::uint32_t{0});
}

void RelayCore::on_message(std::span<const std::byte> bytes) {
  if (is_repair_message(bytes)) return on_repair_message(bytes);
  const auto message = decode_control(bytes);
  // The same address may be another process by now, on either side.
  if (!message || message->target != process_) {
    ++counters_.messages_stray;
    return;
  }
  for (const auto& peer : peers_) {
    if (peer->process != message->sender) continue;
    peer->last_heard = now_;
    peer->suspect = false;
  }
  const bool from_parent =
      message->kind == ControlKind::kWritten || message->kind == ControlKind::kClosed;
  if (from_parent) {
    on_parent_message(*message);
  } else {
    on_child_message(*message);
  }
}

void RelayCore::on_child_message(const ControlMessage& message) {
  for (const auto& refit : refits_) {
    for (const auto& link : refit->downstream) {
      if (link->place().child->process != message.sender) continue;
      const bool hello =
          (message.kind == ControlKind::kHello || message.kind == ControlKind::kClose) &&
          message.offer.refit == refit->identity.refit && message.offer.tree == link->place().tree;
      if (!hello && link->link() != message.link) continue;
      if (hello && !link->accept(message, now_)) continue;
      welcome(*link);
      return on_child_table(*refit, *link, message);
    }
  }
  // A child may know a plan before its parent does: it will ask again.
  if (!on_new_child(message)) ++counters_.messages_stray;
}

// A child of the plan that was given up here, or has given its last link up, starts a new one.
bool RelayCore::on_new_child(const ControlMessage& message) {
  OpenRefit* const refit = find(message.offer.refit);
  const TreeIndex tree = message.offer.tree;
  if (message.kind != ControlKind::kHello || refit == nullptr || refit->leaving ||
      tree.value >= refit->plan.trees.size()) {
    return false;
  }
  const auto& children = refit->plan.trees[tree.value].nodes[refit->self.value].children;
  const auto child = std::find_if(children.begin(), children.end(), [&](NodeIndex node) {
    return refit->plan.nodes[node.value].process == message.sender;
  });
  const bool late = std::any_of(refit->downstream.begin(), refit->downstream.end(),
                                [&](const auto& link) { return link->link() == message.link; });
  if (child == children.end() || late) return false;
  if (DownstreamLink* const old = live_downstream(*refit, tree, message.sender)) {
    old->drop_all();
    end_downstream(*old);
  }
  if (!add_downstream(refit->plan.nodes[child->value], tree, *refit)) return false;
  set_windows(*refit);
  DownstreamLink& link = *refit->downstream.back();
  if (!link.accept(message, now_)) return true;
  welcome(link);
  on_child_table(*refit, link, message);
  return true;
}

void RelayCore::on_child_table(OpenRefit& refit, DownstreamLink& link,
                               const ControlMessage& message) {
  if (link.phase == LinkPhase::kEnded && message.kind != ControlKind::kClose) return;
  if (message.kind == ControlKind::kClose) {
    // Of a refit that goes on: then it has every frame, and is answered a while longer.
    if (!link.child_done) link.deadline = now_ + options_.times.settle;
    link.child_done = true;
    link.drop_all();
    link.table_owed = true;
    if (link.phase == LinkPhase::kOpen) link.phase = LinkPhase::kClosing;
    return;
  }
  if (link.phase != LinkPhase::kOpen) return;
  link.last_heard = now_;
  link.read_table(message, now_);
  constexpr std::uint32_t kAttemptsMax = 4;
  if (link.attempts_max() >= kAttemptsMax) {
    lose_downstream(refit, link,
                    failure(ErrorCode::kCorruptPayload, Stage::kRelay,
                            link.place().child->member_id + " has refused a frame " +
                                std::to_string(kAttemptsMax) + " times"));
  }
}

void RelayCore::on_parent_message(const ControlMessage& message) {
  UpstreamLink* const link = find_upstream(message.link);
  const bool known = link != nullptr && link->place().parent->process == message.sender &&
                     link->phase != LinkPhase::kEnded;
  if (!known || static_cast<std::int32_t>(message.number - link->number_in) <= 0) {
    counters_.messages_stray += known ? 0 : 1;
    return;
  }
  link->number_in = message.number;
  link->last_heard = now_;
  if (link->phase == LinkPhase::kConnecting) open_upstream(*link);
  OpenRefit* const refit = find(link->place().refit);
  if (message.frame_count) note_end(*refit, link->place().producer, *message.frame_count);
  if (message.skipped != link->skipped) {
    link->skipped = message.skipped;
    refit->readers[link->place().producer.value].open_gap_below(message.sender, now_);
    requests_due_ = true;
  }
  const std::uint32_t count = std::min(message.slot_count, link->place().slot_count);
  for (std::uint32_t i = 0; i < count; ++i) {
    const auto claim = link->weigh(i, message.slots[i], now_, options_.times.lost);
    if (claim == UpstreamLink::Claim::kNothing) continue;
    const std::uint32_t slot = link->place().first_slot + i;
    const Arrival arrival = receive(*link, slot, false);
    if (arrival == Arrival::kTaken) ++counters_.frames_healed;
    if (arrival == Arrival::kNothingYet && claim == UpstreamLink::Claim::kOverdue) {
      link->retire(slot, now_);
    }
  }
  if (message.kind == ControlKind::kClosed && !link->parent_done) {
    link->parent_done = true;
    if (link->phase == LinkPhase::kOpen) link->deadline = now_ + options_.times.settle;
    send_upstream(*link);  // the parent waits for our close
    settle_upstream(*link, false);
  }
}

void RelayCore::open_upstream(UpstreamLink& link) {
  link.phase = LinkPhase::kOpen;
  link.last_heard = now_;
  link.next_message = now_;
}

void RelayCore::on_operation(const FabricEvent& event) {
  const auto index = static_cast<std::uint32_t>(event.cookie);
  const auto round = static_cast<std::uint32_t>(event.cookie >> 32);
  if ((index & kReadCookie) != 0) {
    const std::uint32_t read = index & ~kReadCookie;
    WEFT_ASSERT(read < reads_.size() && reads_[read].busy && reads_[read].round == round);
    return on_read(read, event.kind == FabricEventKind::kFailed);
  }
  WEFT_ASSERT(index < writes_.size() && writes_[index].busy && writes_[index].round == round);
  WriteUnderWay& write = writes_[index];
  const bool failed = event.kind == FabricEventKind::kFailed;
  ++counters_.frames_completed;
  if (failed) write.peer->suspect = true;
  if (write.link != nullptr) write.link->completed(write.place, write.generation, failed);
  Peer* const peer = write.peer;
  --peer->operations;
  write = WriteUnderWay{};
  write.round = round;
  idle_writes_.push_back(index);
  if (peer->links == 0) unjoin_peer(peer);
}

// The fabric does not say which link broke: all of them are probed.
void RelayCore::on_trouble(const FabricEvent& event) {
  if (counters_.fabric_troubles++ == 0) {
    const EventField fields[] = {{"native", std::to_string(event.native)}};
    events_.report(Severity::kWarning, "fabric_trouble", fields);
  }
  if (now_ < next_probe_) return;
  next_probe_ = now_ + kProbeInterval;
  for (const auto& refit : refits_) {
    for (const auto& link : refit->upstream) link->next_message = now_;
    for (const auto& link : refit->downstream) link->next_message = now_;
  }
}

}  // namespace weft::transport
