// SPDX-License-Identifier: Apache-2.0
// The reader's side of repair, as a state machine without I/O: whom to ask for what is missing, and
// when.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "transport/relay/frame_ledger.hpp"
#include "transport/relay/repair_message.hpp"
#include "weft/base/clock.hpp"
#include "weft/base/ids.hpp"

namespace weft::transport {

// RepairReader asks the holders of one producer's frames, nearest first, for those that this node
// lacks. It asks while one of these holds:
//   orphan:    no parent writes to this node, so that whatever comes, comes from here;
//   gap:       frames may have passed before a parent's link was there; ends when a holder answers
//              that it has nothing more;
//   goal:      the number of frames is known, some are missing and none has come for a while.
// Threads: one at a time.
class RepairReader {
 public:
  // Nearest first; the producer last. Asking starts again at the first.
  void set_holders(std::vector<ProcessId> holders);
  void set_orphan(bool orphan, TimePoint now);
  // Frames before `now` may be missing; `skip`: holders at the head of the list not to ask first.
  void open_gap(TimePoint now, std::size_t skip = 0);
  // The same, because a parent says so, who is asked first.
  void open_gap_below(ProcessId parent, TimePoint now);
  void set_goal(std::uint32_t frames) {
    goal_ = frames;
    sealed_ = true;
  }
  // The same while other streams go on: a link that is there has more time to bring them.
  void expect(std::uint32_t frames) {
    if (!goal_) goal_ = frames;
  }
  // A frame that was taken and forwarded, and is bad: once more from above the parent.
  void refetch(FrameSequence sequence, TimePoint now);
  bool is_refetched(FrameSequence sequence) const;

  // The holder to ask now, if one is to be asked.
  std::optional<ProcessId> due(const FrameLedger& ledger, TimePoint now);
  // The request's number and what it says is held.
  void fill(RepairMessage& request, const FrameLedger& ledger, TimePoint now);
  // False: not from the holder that was asked.
  bool answered(const RepairMessage& offer, ProcessId from, const FrameLedger& ledger,
                TimePoint now);
  // A frame came, over a link or by a read; a read one is a reason to ask on at once.
  void arrived(bool by_read, TimePoint now);
  bool idle(const FrameLedger& ledger) const { return !orphan_ && !gap_ && complete(ledger); }

 private:
  bool complete(const FrameLedger& ledger) const { return !goal_ || ledger.count() >= *goal_; }
  void next_holder(TimePoint now);

  std::vector<ProcessId> holders_;
  std::vector<FrameSequence> refetched_;
  std::size_t holder_ = 0;
  bool orphan_ = false;
  bool gap_ = false;
  std::optional<std::uint32_t> goal_;
  bool sealed_ = false;
  std::uint32_t number_ = 0;
  TimePoint gap_since_;
  TimePoint asked_at_;
  TimePoint next_request_;
  TimePoint last_arrival_;
  TimePoint last_success_;  // a frame or another holder
};

}  // namespace weft::transport
