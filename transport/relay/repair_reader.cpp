// SPDX-License-Identifier: Apache-2.0
#include "transport/relay/repair_reader.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace weft::transport {
namespace {

constexpr Duration kRequestInterval = std::chrono::milliseconds(50);
constexpr Duration kHolderPatience = std::chrono::seconds(1);
constexpr Duration kQuiet = std::chrono::milliseconds(200);  // a seal overtakes the last frames
constexpr Duration kQuietBeforeSeal = std::chrono::seconds(2);

}  // namespace

void RepairReader::set_holders(std::vector<ProcessId> holders) {
  if (holders == holders_) return;
  holders_ = std::move(holders);
  holder_ = 0;
}

void RepairReader::set_orphan(bool orphan, TimePoint now) {
  if (orphan && !orphan_) {
    next_request_ = now;
    last_success_ = now;
  }
  orphan_ = orphan;
}

void RepairReader::open_gap(TimePoint now, std::size_t skip) {
  gap_ = true;
  gap_since_ = now;
  next_request_ = now;
  last_success_ = now;
  holder_ = skip < holders_.size() ? skip : 0;
}

void RepairReader::open_gap_below(ProcessId parent, TimePoint now) {
  const auto found = std::find(holders_.begin(), holders_.end(), parent);
  open_gap(now, static_cast<std::size_t>(found - holders_.begin()));
}

void RepairReader::refetch(FrameSequence sequence, TimePoint now) {
  refetched_.push_back(sequence);
  open_gap(now, 1);
}

bool RepairReader::is_refetched(FrameSequence sequence) const {
  return std::find(refetched_.begin(), refetched_.end(), sequence) != refetched_.end();
}

std::optional<ProcessId> RepairReader::due(const FrameLedger& ledger, TimePoint now) {
  // With an open gap even who has everything asks once more: a parent may wait to hear that.
  const bool done = goal_ && complete(ledger) && !gap_;
  if (holders_.empty() || now < next_request_ || done) return std::nullopt;
  const bool missing = goal_ && now - last_arrival_ >= (sealed_ ? kQuiet : kQuietBeforeSeal);
  if (!orphan_ && !gap_ && !missing) return std::nullopt;
  // One that says nothing, or has what it never gives, is not asked for ever.
  if (number_ > 0 && now - last_success_ >= kHolderPatience) next_holder(now);
  return holders_[holder_];
}

void RepairReader::next_holder(TimePoint now) {
  holder_ = (holder_ + 1) % holders_.size();
  last_success_ = now;
}

void RepairReader::fill(RepairMessage& request, const FrameLedger& ledger, TimePoint now) {
  request.number = ++number_;
  HeldFrames& held = request.held;
  held.first = ledger.first_missing();
  const std::uint32_t beyond =
      std::min(ledger.horizon() - std::min(ledger.horizon(), held.first), kRepairWindowFrames);
  held.byte_count = (beyond + 7) / 8;
  for (std::uint32_t i = 0; i < beyond; ++i) {
    if (!ledger.holds(held.first + i)) continue;
    held.bits[i / 8] |= static_cast<std::byte>(1U << (i % 8));
  }
  if (asked_at_ == TimePoint{}) last_success_ = now;
  asked_at_ = now;
  next_request_ = now + kRequestInterval;
}

bool RepairReader::answered(const RepairMessage& offer, ProcessId from, const FrameLedger& ledger,
                            TimePoint now) {
  if (holders_.empty() || from != holders_[holder_]) return false;
  const bool nothing = offer.offer_count == 0 && !offer.more && offer.number == number_;
  if (!nothing) return true;
  // It is there and has all that we have: who is orphaned waits for what it gets next.
  last_success_ = now;
  if (goal_ && !complete(ledger)) {
    next_holder(now);
  } else if (gap_ && asked_at_ >= gap_since_) {
    gap_ = false;
  }
  return true;
}

void RepairReader::arrived(bool by_read, TimePoint now) {
  last_arrival_ = now;
  if (!by_read) return;
  last_success_ = now;
  next_request_ = now;
}

}  // namespace weft::transport
