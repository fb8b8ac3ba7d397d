// SPDX-License-Identifier: Apache-2.0
// The child's side of a link: a range of slots that one parent may write to, as a state machine
// without I/O.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "transport/fabric/fabric.hpp"
#include "transport/relay/control_message.hpp"
#include "weft/base/clock.hpp"
#include "weft/base/ids.hpp"

namespace weft::transport {

enum class LinkPhase : std::uint8_t {
  kConnecting = 1,  // nothing heard on this link
  kOpen = 2,
  kClosing = 3,  // orderly end under way
  kEnded = 4,    // closed or lost
};

struct Peer;

// UpstreamLink grants slots, notes what arrived in them and says so in grant tables.
// A slot's life here:
//   idle -> granted(g) -> taken(g) -> granted(g+1) -> ...
//                      -> granted(g+1, rejected): a corrupt frame, to be sent again
//                      -> retired(g): a write may still be under way; granted(g+1, rejected) once
//                         it has arrived
// Invariant: a slot that a write may still reach is granted or retired, never taken, never idle.
// Threads:   one at a time.
class UpstreamLink {
 public:
  struct Place {
    RefitId refit;
    TreeIndex tree;
    ProducerIndex producer;
    Peer* parent = nullptr;
    std::uint64_t link = 0;
    std::uint8_t incarnation = 0;
    std::uint32_t first_slot = 0;
    std::uint32_t slot_count = 0;
    std::uint32_t first_generation = 1;
    MemoryHandle memory;
  };
  UpstreamLink(const Place& place, TimePoint now);

  const Place& place() const { return place_; }
  bool holds(std::uint32_t slot) const {
    return slot >= place_.first_slot && slot < place_.first_slot + place_.slot_count;
  }

  // A doorbell for one of our slots: kExpected must be settled with take, reject or retire.
  enum class Ring : std::uint8_t { kStray = 1, kExpected = 2, kLate = 3 };
  Ring ring(const Doorbell& bell) const;
  void take(std::uint32_t slot, TimePoint now);
  void reject(std::uint32_t slot, TimePoint now);
  void retire(std::uint32_t slot, TimePoint now);
  // The late write of a retired slot has arrived: it can be granted again.
  void revive(std::uint32_t slot, TimePoint now);
  // The last reader of a taken slot is done. True: granted anew, clear it before the next table.
  bool give_again(std::uint32_t slot, TimePoint now);

  // The parent's word on a slot. kLook: it says that it has written what we have not seen.
  enum class Claim : std::uint8_t { kNothing = 1, kLook = 2, kOverdue = 3 };
  Claim weigh(std::uint32_t place, const SlotWord& word, TimePoint now, Duration patience);

  GrantState state(std::uint32_t slot) const { return cell(slot).state; }
  std::uint32_t generation(std::uint32_t slot) const { return cell(slot).generation; }
  std::uint32_t count(GrantState state) const;
  // The parent says that it has posted a write here which we have not seen.
  bool claimed(std::uint32_t slot) const { return cell(slot).claimed; }
  void set_idle(std::uint32_t slot) { cell(slot).state = GrantState::kIdle; }
  void fill_table(ControlMessage& message) const;
  // Whether the parent should hear of changes now.
  bool table_due(TimePoint now) const;
  void table_sent(TimePoint now);

  LinkPhase phase = LinkPhase::kConnecting;
  bool parent_done = false;      // CLOSED has been heard
  std::uint32_t number_out = 0;  // of our last message
  std::uint32_t number_in = 0;   // of the last one taken from the parent
  std::uint32_t rejections = 0;  // in a row
  std::uint32_t skipped = 0;     // as the parent said last
  TimePoint deadline;            // of connecting or closing
  TimePoint last_heard;          // of this link: a message or a doorbell
  TimePoint next_message;        // heartbeat, hello or close, whichever is due
  std::uint64_t frames = 0;      // taken
  std::uint64_t bytes = 0;

 private:
  struct Cell {
    GrantState state = GrantState::kGranted;
    bool previous_rejected = false;
    bool claimed = false;  // the parent says it has written
    std::uint32_t generation = 1;
    TimePoint claimed_at;
  };
  Cell& cell(std::uint32_t slot) { return cells_[slot - place_.first_slot]; }
  const Cell& cell(std::uint32_t slot) const { return cells_[slot - place_.first_slot]; }
  void grant_next(Cell& cell, bool rejected, TimePoint now);
  void changed(TimePoint now);

  Place place_;
  std::array<Cell, kSlotsPerLinkMax> cells_;
  std::uint32_t unsent_ = 0;
  std::uint32_t announced_ = 0;  // grants the parent knows of and has not used, as far as we know
  TimePoint unsent_since_;
};

}  // namespace weft::transport
