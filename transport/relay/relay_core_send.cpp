// SPDX-License-Identifier: Apache-2.0
// RelayCore: what goes out: frames into granted slots, control messages.
#include <chrono>

#include "transport/relay/relay_core.hpp"

namespace weft::transport {
namespace {

constexpr std::uint32_t kPostsPerTurn = 32;
constexpr Duration kHelloInterval = std::chrono::milliseconds(50);
constexpr Duration kCloseInterval = std::chrono::milliseconds(50);

}  // namespace

// A producer's frames take its trees in turn.
TreeIndex RelayCore::tree_of(const OpenRefit& refit, ProducerIndex producer,
                             FrameSequence sequence) {
  return {producer.value * refit.stripes + sequence.value % refit.stripes};
}

void RelayCore::forward(OpenRefit& refit, TreeIndex tree, const SharedSlot& frame) {
  for (DownstreamLink* const link : refit.children[tree.value]) {
    const bool over = link->phase == LinkPhase::kEnded || link->phase == LinkPhase::kClosing;
    if (over || link->demoted) continue;
    if (link->push(frame)) continue;
    observer_.on_fault(refit.identity.refit, options_.member_id,
                       failure(ErrorCode::kProtocol, Stage::kRelay,
                               "a frame is queued twice for " + link->place().child->member_id));
  }
}

bool RelayCore::pump() {
  std::uint32_t budget = kPostsPerTurn;
  bool posted = false;
  const std::size_t count = refits_.size();
  for (std::size_t i = 0; i < count && budget > 0; ++i) {
    // The next refit starts next turn, and within a refit one frame per link goes round.
    OpenRefit& refit = *refits_[(pump_start_ + i) % count];
    bool again = !refit.leaving;
    while (again && budget > 0) {
      again = false;
      for (const auto& link : refit.downstream) again |= pump_link(*link, budget);
      posted |= again;
    }
  }
  ++pump_start_;
  return posted;
}

bool RelayCore::pump_link(DownstreamLink& link, std::uint32_t& budget) {
  if (budget == 0 || idle_writes_.empty() || link.operations >= link.window) return false;
  const auto next = link.next();
  if (!next) return false;
  const Posted posted = post_frame(link, *next);
  note_post(*link.place().child, posted);
  if (posted != Posted::kPosted) return false;
  --budget;
  link.posted(*next, now_);
  return true;
}

Posted RelayCore::post_frame(DownstreamLink& link, const DownstreamLink::Next& next) {
  const std::uint32_t index = idle_writes_.back();
  WriteUnderWay& write = writes_[index];
  const auto frame = next.frame->frame();
  const auto slot_room = std::uint64_t{link.offer().slot_bytes} - limits::kHeaderPageBytes +
                         limits::kFrameHeaderBytes - limits::kSlotTailBytes;
  if (frame.size() > slot_room) return Posted::kRefused;  // never beyond the granted slot
  RemoteOperation operation;
  operation.peer = link.place().child->handle;
  operation.local = slab_memory_;
  // The pool's own memory: the fabric only reads it.
  operation.bytes = {pool_.slot(next.frame->slot_index()).memory + limits::kHeaderPageBytes -
                         limits::kFrameHeaderBytes,
                     frame.size()};
  operation.remote = next.target;
  operation.immediate = next.doorbell.pack();
  operation.cookie = (std::uint64_t{write.round + 1} << 32) | index;
  const Posted posted = fabric_->post_write(operation);
  if (posted != Posted::kPosted) return posted;
  idle_writes_.pop_back();
  ++write.round;
  write.frame = *next.frame;
  write.link = &link;
  write.peer = link.place().child;
  write.place = next.place;
  write.generation = next.doorbell.generation;
  write.busy = true;
  write.since = now_;
  ++write.peer->operations;
  ++counters_.frames_posted;
  counters_.bytes_posted += frame.size();
  ++link.frames;
  link.bytes += frame.size();
  return posted;
}

void RelayCore::note_post(Peer& peer, Posted posted) {
  if (posted == Posted::kPosted) {
    peer.refusing = false;
  } else if (!peer.refusing) {
    peer.refusing = true;
    peer.refusing_since = now_;
  }
}

bool RelayCore::send(Peer& peer, ControlMessage& message) {
  message.sender = process_;
  message.target = peer.process;
  ControlBytes room;
  const Posted posted = fabric_->post_send(peer.handle, encode_control(message, room));
  note_post(peer, posted);
  return posted == Posted::kPosted;
}

bool RelayCore::send_control_due() {
  bool sent = false;
  for (const auto& refit : refits_) {
    for (const auto& link : refit->upstream) {
      if (link->phase == LinkPhase::kEnded) continue;
      const bool table = link->phase == LinkPhase::kOpen && link->table_due(now_);
      if (table || now_ >= link->next_message) sent |= send_upstream(*link);
    }
    for (const auto& link : refit->downstream) {
      const bool silent = link->link() == 0 || link->phase == LinkPhase::kEnded;
      if (silent) continue;
      if (link->table_owed || now_ >= link->next_message) sent |= send_downstream(*refit, *link);
    }
  }
  return sent;
}

bool RelayCore::send_upstream(UpstreamLink& link) {
  ControlMessage message;
  message.link = link.place().link;
  message.number = ++link.number_out;
  Duration interval = options_.times.heartbeat;
  message.kind = ControlKind::kGrants;
  message.offer = {link.place().refit,
                   link.place().tree,
                   fabric_->facts().protocol,
                   link.place().first_slot,
                   pool_.slot_bytes(),
                   link.place().incarnation,
                   fabric_->remote_memory(link.place().memory)};
  if (link.phase == LinkPhase::kConnecting) {
    message.kind = ControlKind::kHello;
    interval = kHelloInterval;
  }
  if (link.phase == LinkPhase::kClosing || link.parent_done) {
    message.kind = ControlKind::kClose;
    interval = kCloseInterval;
  }
  link.fill_table(message);
  if (!send(*link.place().parent, message)) {
    --link.number_out;  // nobody has heard of it
    return false;
  }
  link.next_message = now_ + interval;
  link.table_sent(now_);
  return true;
}

bool RelayCore::send_downstream(const OpenRefit& refit, DownstreamLink& link) {
  // Closed means that nothing of ours is under way: until then we are only alive.
  const bool closed = link.phase == LinkPhase::kClosing && link.operations == 0;
  ControlMessage message;
  message.link = link.link();
  message.number = ++link.number_out;
  message.kind = closed ? ControlKind::kClosed : ControlKind::kWritten;
  link.fill_table(message);
  message.frame_count = refit.producers[link.place().producer.value].frame_count;
  if (!send(*link.place().child, message)) return false;
  link.closed_sent |= closed;
  link.table_owed = false;
  const bool closing = link.phase == LinkPhase::kClosing && !link.child_done;
  link.next_message = now_ + (closing ? kCloseInterval : options_.times.heartbeat);
  return true;
}

}  // namespace weft::transport
