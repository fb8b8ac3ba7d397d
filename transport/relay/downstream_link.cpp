// SPDX-License-Identifier: Apache-2.0
#include "transport/relay/downstream_link.hpp"

#include <algorithm>
#include <bit>

namespace weft::transport {

DownstreamLink::DownstreamLink(const Place& place, std::size_t queue_capacity)
    : place_(place), queue_(queue_capacity) {}

bool DownstreamLink::accept(const ControlMessage& hello, TimePoint now) {
  const bool late = phase == LinkPhase::kClosing && link_ == 0;
  if (phase != LinkPhase::kConnecting && !late) return hello.link == link_;
  const LinkOffer& offer = hello.offer;
  const bool fits = hello.slot_count >= 1 && offer.slot_bytes > limits::kHeaderPageBytes &&
                    offer.first_slot + hello.slot_count <= 4096;
  if (!fits) return false;
  offer_ = offer;
  link_ = hello.link;
  slot_count_ = hello.slot_count;
  if (!late) phase = LinkPhase::kOpen;
  next_message = now;
  last_progress = now;
  table_owed = true;
  return true;
}

bool DownstreamLink::push(SharedSlot frame) {
  if (queue_.full()) return false;
  queue_.push_back({std::move(frame), 0});
  return true;
}

std::optional<DownstreamLink::Next> DownstreamLink::next() {
  if (phase != LinkPhase::kOpen || granted_ == 0 || queue_.empty()) return std::nullopt;
  Next next;
  next.place = static_cast<std::uint32_t>(std::countr_zero(granted_));
  next.doorbell = {offer_.incarnation, cells_[next.place].generation,
                   offer_.first_slot + next.place};
  next.frame = &queue_.front().slot;
  next.target = {offer_.memory.address + std::uint64_t{next.place} * offer_.slot_bytes +
                     limits::kHeaderPageBytes - limits::kFrameHeaderBytes,
                 offer_.memory.key};
  return next;
}

void DownstreamLink::posted(const Next& next, TimePoint now) {
  Cell& cell = cells_[next.place];
  granted_ &= ~(std::uint64_t{1} << next.place);
  cell.granted = false;
  cell.state = WriteState::kPosted;
  cell.frame = queue_.pop_front();
  ++in_slots_;
  ++operations;
  last_progress = now;
}

void DownstreamLink::completed(std::uint32_t place, std::uint32_t generation, bool failed) {
  --operations;
  Cell& cell = cells_[place];
  if (cell.generation != generation || cell.state != WriteState::kPosted) return;
  cell.state = failed ? WriteState::kFailed : WriteState::kWritten;
  table_owed |= failed;
}

DownstreamLink::Outcome DownstreamLink::read_table(const ControlMessage& table, TimePoint now) {
  Outcome outcome;
  // Serial comparison: the numbers may wrap.
  const bool stale = static_cast<std::int32_t>(table.number - number_in) <= 0;
  if (stale || table.slot_count != slot_count_) return outcome;
  number_in = table.number;
  const std::uint64_t granted_before = granted_;
  for (std::uint32_t i = 0; i < slot_count_; ++i) read_word(i, table.slots[i], outcome);
  const bool granted_more = (granted_ & ~granted_before) != 0;
  const bool nothing_to_do = untaken() == 0 && !demoted;
  if (granted_more || outcome.taken > 0 || nothing_to_do) last_progress = now;
  return outcome;
}

void DownstreamLink::read_word(std::uint32_t place, const SlotWord& word, Outcome& outcome) {
  Cell& cell = cells_[place];
  const auto state = static_cast<GrantState>(word.state);
  if (cell.state != WriteState::kNone) {
    const bool same = word.generation == cell.generation;
    const bool next = word.generation == next_generation(cell.generation);
    if (!same && !next) return;
    if (same && state == GrantState::kGranted) return;  // it has not seen the frame yet
    const bool taken = next ? !word.previous_rejected : state == GrantState::kTaken;
    if (taken) {
      cell.frame = {};
      cell.state = WriteState::kNone;
      --in_slots_;
      ++outcome.taken;
    } else {
      resend(cell, outcome);
    }
  }
  const bool newer = !cell.known || word.generation != cell.generation || cell.granted;
  cell.granted = state == GrantState::kGranted && newer;
  if (cell.granted) {
    cell.known = true;
    cell.generation = word.generation;
    granted_ |= std::uint64_t{1} << place;
  } else {
    granted_ &= ~(std::uint64_t{1} << place);
  }
}

void DownstreamLink::resend(Cell& cell, Outcome& outcome) {
  Frame frame = std::exchange(cell.frame, {});
  attempts_max_ = std::max(attempts_max_, ++frame.attempts);
  cell.state = WriteState::kNone;
  --in_slots_;
  ++outcome.rejected;
  if (!frame.slot) return;  // demoted meanwhile: it reads that frame too
  queue_.push_front(std::move(frame));
}

void DownstreamLink::demote(TimePoint now) {
  while (!queue_.empty()) queue_.pop_front();
  for (Cell& cell : cells_) cell.frame.slot.drop();
  demoted = true;
  ++demotions;
  held = 0;
  last_request = last_progress = now;
  ++skipped;
  table_owed = true;
}

std::size_t DownstreamLink::drop_all() {
  const std::size_t dropped = untaken();
  demoted = false;
  while (!queue_.empty()) queue_.pop_front();
  for (Cell& cell : cells_) cell.frame = {};
  in_slots_ = 0;
  granted_ = 0;
  return dropped;
}

void DownstreamLink::fill_table(ControlMessage& message) const {
  message.slot_count = slot_count_;
  message.skipped = skipped;
  for (std::uint32_t i = 0; i < slot_count_; ++i) {
    message.slots[i] = {cells_[i].generation, static_cast<std::uint8_t>(cells_[i].state), false};
  }
}

}  // namespace weft::transport
