// SPDX-License-Identifier: Apache-2.0
// The parent's side of a link: frames that wait for a child's grants, as a state machine without
// I/O.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <optional>

#include "transport/relay/bounded_ring.hpp"
#include "transport/relay/control_message.hpp"
#include "transport/relay/upstream_link.hpp"
#include "weft/base/clock.hpp"
#include "weft/base/lease.hpp"

namespace weft::transport {

// DownstreamLink sends each frame into a granted slot and holds it until the child has taken it.
// A frame's life here: queued -> posted into (slot, generation) -> taken, or queued again when the
// child's table says that it was rejected or will not come.
// Owns:    one reference to every frame that the child has not taken.
// Threads: one at a time.
class DownstreamLink {
 public:
  struct Place {
    RefitId refit;
    TreeIndex tree;
    ProducerIndex producer;
    Peer* child = nullptr;
  };
  DownstreamLink(const Place& place, std::size_t queue_capacity);

  const Place& place() const { return place_; }
  const LinkOffer& offer() const { return offer_; }
  std::uint64_t link() const { return link_; }
  std::uint32_t slot_count() const { return slot_count_; }  // 0 before the hello
  std::uint32_t credits() const { return static_cast<std::uint32_t>(std::popcount(granted_)); }

  // The child's hello. False: it does not fit, or another one is in use.
  bool accept(const ControlMessage& hello, TimePoint now);
  // False when full, which only a frame queued twice can cause.
  bool push(SharedSlot frame);
  std::size_t waiting() const { return queue_.size(); }
  std::size_t untaken() const { return queue_.size() + in_slots_; }

  struct Next {
    std::uint32_t place = 0;  // within the child's range
    Doorbell doorbell;
    const SharedSlot* frame = nullptr;
    RemoteMemory target;  // of the frame's first byte
  };
  // The next frame and the slot for it, if there are both.
  std::optional<Next> next();
  void posted(const Next& next, TimePoint now);
  // A write into (place, generation) is locally over.
  void completed(std::uint32_t place, std::uint32_t generation, bool failed);

  struct Outcome {
    std::uint32_t taken = 0;
    std::uint32_t rejected = 0;
  };
  // The child's table; stale ones change nothing.
  Outcome read_table(const ControlMessage& table, TimePoint now);
  // Lets go of every frame; those that are under way may still be taken. The child reads what it
  // lacks, and nothing is queued for it until it has caught up.
  void demote(TimePoint now);
  // Drops every frame; returns how many.
  std::size_t drop_all();
  // Times the frame at the head of the queue has been refused.
  std::uint32_t attempts_max() const { return attempts_max_; }
  void fill_table(ControlMessage& message) const;

  LinkPhase phase = LinkPhase::kConnecting;
  bool closed_sent = false;
  bool child_done = false;   // CLOSE has been heard
  bool awaited = true;       // its silence counts: false while it may be busy with other trees
  bool not_planned = false;  // a new plan has another parent for this child
  bool demoted = false;      // reads from spools at its own pace
  bool table_owed = false;   // a failed write or a hello: the child should hear at once
  std::uint32_t number_out = 0;
  std::uint32_t number_in = 0;
  std::uint32_t operations = 0;             // writes that are not locally over
  std::uint32_t window = kSlotsPerLinkMax;  // writes under way at most
  std::uint32_t skipped = 0;  // times that frames passed this link by: the child asks for them
  TimePoint deadline;         // of connecting or closing
  TimePoint last_heard;       // of this link
  TimePoint next_message;
  TimePoint last_progress;  // a grant, a frame taken or read, or nothing to do
  Duration behind_for{};    // how long it has held back its siblings
  TimePoint last_request;   // of a demoted child: when it asked, or was reminded to
  std::uint32_t held = 0;   // of a demoted child: frames that it says it has
  std::uint32_t demotions = 0;
  std::uint64_t frames = 0;  // written, repetitions included
  std::uint64_t bytes = 0;

 private:
  struct Frame {
    SharedSlot slot;
    std::uint32_t attempts = 0;
  };
  struct Cell {
    WriteState state = WriteState::kNone;
    bool granted = false;
    bool known = false;
    std::uint32_t generation = 0;
    Frame frame;
  };
  void read_word(std::uint32_t place, const SlotWord& word, Outcome& outcome);
  void resend(Cell& cell, Outcome& outcome);

  Place place_;
  LinkOffer offer_;
  std::uint64_t link_ = 0;
  std::uint32_t slot_count_ = 0;
  std::array<Cell, kSlotsPerLinkMax> cells_;
  std::uint64_t granted_ = 0;  // bit per place
  BoundedRing<Frame> queue_;
  std::size_t in_slots_ = 0;
  std::uint32_t attempts_max_ = 0;
};

}  // namespace weft::transport
