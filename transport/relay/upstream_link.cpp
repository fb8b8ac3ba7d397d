// SPDX-License-Identifier: Apache-2.0
#include "transport/relay/upstream_link.hpp"

#include <algorithm>
#include <chrono>

#include "weft/base/assert.hpp"

namespace weft::transport {
namespace {

constexpr Duration kTableDelay = std::chrono::microseconds(200);

}  // namespace

UpstreamLink::UpstreamLink(const Place& place, TimePoint now) : place_(place) {
  WEFT_ASSERT(place.slot_count <= kSlotsPerLinkMax);
  for (Cell& cell : cells_) cell.generation = place.first_generation & kGenerationMask;
  announced_ = place.slot_count;  // by the hello
  next_message = now;
  unsent_since_ = now;
}

UpstreamLink::Ring UpstreamLink::ring(const Doorbell& bell) const {
  const Cell& at = cell(bell.slot);
  const bool matches =
      bell.incarnation == place_.incarnation && (at.generation & 0xFFFU) == bell.generation;
  if (!matches) return Ring::kStray;
  if (at.state == GrantState::kGranted) return Ring::kExpected;
  return at.state == GrantState::kRetired ? Ring::kLate : Ring::kStray;
}

void UpstreamLink::changed(TimePoint now) {
  if (unsent_++ == 0) unsent_since_ = now;
}

void UpstreamLink::take(std::uint32_t slot, TimePoint now) {
  cell(slot).state = GrantState::kTaken;
  rejections = 0;
  if (announced_ > 0) --announced_;
  changed(now);
}

void UpstreamLink::reject(std::uint32_t slot, TimePoint now) {
  ++rejections;
  if (announced_ > 0) --announced_;
  grant_next(cell(slot), true, now);
}

void UpstreamLink::retire(std::uint32_t slot, TimePoint now) {
  cell(slot).state = GrantState::kRetired;
  if (announced_ > 0) --announced_;
  changed(now);
}

void UpstreamLink::revive(std::uint32_t slot, TimePoint now) { grant_next(cell(slot), true, now); }

bool UpstreamLink::give_again(std::uint32_t slot, TimePoint now) {
  Cell& at = cell(slot);
  WEFT_ASSERT(at.state == GrantState::kTaken);
  if (phase != LinkPhase::kOpen || parent_done) {
    at.state = GrantState::kIdle;
    return false;
  }
  grant_next(at, false, now);
  return true;
}

void UpstreamLink::grant_next(Cell& at, bool rejected, TimePoint now) {
  at.state = GrantState::kGranted;
  at.generation = next_generation(at.generation);
  at.previous_rejected = rejected;
  at.claimed = false;
  changed(now);
}

UpstreamLink::Claim UpstreamLink::weigh(std::uint32_t place, const SlotWord& word, TimePoint now,
                                        Duration patience) {
  Cell& at = cells_[place];
  const auto written = static_cast<WriteState>(word.state);
  const bool ours = at.state == GrantState::kGranted && word.generation == at.generation;
  if (!ours || written == WriteState::kNone || written == WriteState::kPosted) {
    return Claim::kNothing;
  }
  if (!at.claimed) {
    at.claimed = true;
    at.claimed_at = now;
  }
  // A failed write may have left anything behind, but nothing more will be reported about it.
  const bool overdue = written == WriteState::kFailed || now - at.claimed_at >= patience;
  return overdue ? Claim::kOverdue : Claim::kLook;
}

std::uint32_t UpstreamLink::count(GrantState state) const {
  return static_cast<std::uint32_t>(
      std::count_if(cells_.begin(), cells_.begin() + place_.slot_count,
                    [state](const Cell& at) { return at.state == state; }));
}

void UpstreamLink::fill_table(ControlMessage& message) const {
  message.slot_count = place_.slot_count;
  for (std::uint32_t i = 0; i < place_.slot_count; ++i) {
    message.slots[i] = {cells_[i].generation, static_cast<std::uint8_t>(cells_[i].state),
                        cells_[i].previous_rejected};
  }
}

bool UpstreamLink::table_due(TimePoint now) const {
  if (unsent_ == 0) return false;
  return unsent_ * 4 >= place_.slot_count || announced_ < 2 || now - unsent_since_ >= kTableDelay;
}

void UpstreamLink::table_sent(TimePoint) {
  unsent_ = 0;
  announced_ = count(GrantState::kGranted);
}

}  // namespace weft::transport
