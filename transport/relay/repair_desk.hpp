// SPDX-License-Identifier: Apache-2.0
// The holder's side of repair, as a state machine without I/O: which frame is loaded into which
// reserve slot, for whom, and until when.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "transport/relay/frame_ledger.hpp"
#include "transport/relay/repair_message.hpp"
#include "weft/base/clock.hpp"
#include "weft/base/ids.hpp"
#include "weft/base/lease.hpp"

namespace weft::transport {

// RepairDesk serves readers from a few slots that are never granted to anybody.
// A reserve slot's life: free -> loading (its lease is with the node) -> offered (until DONE, or
// until the lease ends) -> free when its last reference is dropped.
// Owns:    one reference to each offered frame.
// Threads: one at a time.
// Limits:  kReadersMax readers wait at once; further ones ask again.
class RepairDesk {
 public:
  static constexpr std::size_t kReadersMax = 128;

  RepairDesk(std::uint32_t first_slot, std::uint32_t slot_count);
  bool owns(std::uint32_t slot) const { return slot - first_slot_ < cells_.size(); }

  // What a reader lacks now. Offers of frames that it has are withdrawn, others live on.
  void wish(const RepairMessage& request, TimePoint now);
  // `message`: a DONE.
  void done(const RepairMessage& message);

  struct Load {
    std::uint32_t slot = 0;
    RefitId refit;
    ProducerIndex producer;
    FrameSequence sequence;
  };
  // The next frame to load, readers in turn. `ledger_of(refit, producer)`: none when not open here.
  template <typename LedgerOf>
  std::optional<Load> next_load(LedgerOf&& ledger_of, TimePoint now);
  // What is being loaded into a slot, if anything is.
  std::optional<Load> load_in(std::uint32_t slot) const;
  // The frame is in its slot. The reader it is for, to be told at once.
  std::optional<ProcessId> loaded(SharedSlot frame, TimePoint now);
  // The slot's last reference is gone; from `loading`, the frame could not be loaded.
  void returned(std::uint32_t slot, TimePoint now);
  // Ends offers whose lease is over and readers that ask no more.
  void expire(TimePoint now);
  // Nothing of this refit is offered any more.
  void end(const RefitId& refit);
  void clear();

  // Where the reserve slots are, as readers see them.
  struct Memory {
    RemoteMemory first_slot;
    std::uint32_t slot_bytes = 0;
  };
  // The offers that the message's target has now; refit, producer and target are set already.
  void fill(const FrameLedger& ledger, const Memory& memory, RepairMessage& message) const;
  bool is_free(std::uint32_t slot) const {
    return cells_[slot - first_slot_].state == State::kFree;
  }

 private:
  enum class State : std::uint8_t { kFree, kLoading, kOffered, kLeaving };
  struct Cell {
    State state = State::kFree;
    RefitId refit;
    ProducerIndex producer;
    FrameSequence sequence;
    ProcessId reader;
    std::uint32_t ticket = 0;
    SharedSlot frame;
    TimePoint until;
  };
  struct Wish {
    RefitId refit;
    ProducerIndex producer;
    ProcessId reader;
    std::uint32_t number = 0;
    HeldFrames held;
    std::uint32_t cursor = 0;  // frames below it were tried in this round
    TimePoint not_before;      // after a round in which something could not be loaded
    bool failed = false;
    TimePoint heard_at;
  };
  Wish* find(const RefitId& refit, ProducerIndex producer, ProcessId reader);
  const Wish* find(const RefitId& refit, ProducerIndex producer, ProcessId reader) const;
  bool serves(const Wish& wish, std::uint32_t sequence) const;
  std::optional<std::uint32_t> next_of(Wish& wish, const FrameLedger& ledger, TimePoint now) const;
  Load start(Cell& cell, const Wish& wish, std::uint32_t sequence);
  void leave(Cell& cell);

  std::uint32_t first_slot_;
  std::vector<Cell> cells_;
  std::vector<Wish> wishes_;
  std::size_t turn_ = 0;
  std::uint32_t next_ticket_ = 1;
  bool changed_ = false;  // since nothing was found to load
};

template <typename LedgerOf>
std::optional<RepairDesk::Load> RepairDesk::next_load(LedgerOf&& ledger_of, TimePoint now) {
  if (!changed_) return std::nullopt;
  Cell* room = nullptr;
  for (Cell& cell : cells_) {
    if (cell.state == State::kFree) room = &cell;
  }
  for (std::size_t i = 0; room != nullptr && i < wishes_.size(); ++i) {
    Wish& wish = wishes_[(turn_ + i) % wishes_.size()];
    const FrameLedger* const ledger = ledger_of(wish.refit, wish.producer);
    if (ledger == nullptr || now < wish.not_before) continue;
    const auto sequence = next_of(wish, *ledger, now);
    if (!sequence) continue;
    turn_ = (turn_ + i + 1) % wishes_.size();
    return start(*room, wish, *sequence);
  }
  changed_ = false;
  return std::nullopt;
}

}  // namespace weft::transport
