// SPDX-License-Identifier: Apache-2.0
#include "transport/relay/repair_desk.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "weft/wire/frame.hpp"

namespace weft::transport {
namespace {

constexpr Duration kLease = std::chrono::seconds(1);
constexpr Duration kWishLife = std::chrono::seconds(1);
constexpr Duration kLoadRetry = std::chrono::milliseconds(20);  // its spool may be behind

}  // namespace

RepairDesk::RepairDesk(std::uint32_t first_slot, std::uint32_t slot_count)
    : first_slot_(first_slot), cells_(slot_count) {
  wishes_.reserve(kReadersMax);
}

RepairDesk::Wish* RepairDesk::find(const RefitId& refit, ProducerIndex producer, ProcessId reader) {
  return const_cast<Wish*>(std::as_const(*this).find(refit, producer, reader));
}

const RepairDesk::Wish* RepairDesk::find(const RefitId& refit, ProducerIndex producer,
                                         ProcessId reader) const {
  const auto found = std::find_if(wishes_.begin(), wishes_.end(), [&](const Wish& wish) {
    return wish.reader == reader && wish.producer == producer && wish.refit == refit;
  });
  return found == wishes_.end() ? nullptr : &*found;
}

void RepairDesk::wish(const RepairMessage& request, TimePoint now) {
  Wish* wish = find(request.refit, request.producer, request.sender);
  if (wish == nullptr) {
    if (wishes_.size() == kReadersMax) return;
    wish = &wishes_.emplace_back();
    wish->refit = request.refit;
    wish->producer = request.producer;
    wish->reader = request.sender;
  } else if (static_cast<std::int32_t>(request.number - wish->number) <= 0) {
    return;  // overtaken by a later one
  }
  wish->number = request.number;
  wish->held = request.held;
  wish->cursor = std::max(wish->cursor, request.held.first);
  wish->heard_at = now;
  changed_ = true;
  for (Cell& cell : cells_) {
    const bool theirs = cell.state == State::kOffered && cell.reader == request.sender &&
                        cell.producer == request.producer && cell.refit == request.refit;
    if (!theirs) continue;
    if (request.held.holds(cell.sequence.value)) {
      leave(cell);
    } else {
      cell.until = now + kLease;
    }
  }
}

void RepairDesk::done(const RepairMessage& message) {
  for (std::uint32_t i = 0; i < message.offer_count; ++i) {
    const FrameOffer& offer = message.offers[i];
    for (Cell& cell : cells_) {
      const bool same = cell.state == State::kOffered && cell.ticket == offer.ticket &&
                        cell.reader == message.sender && cell.sequence == offer.sequence;
      if (same) leave(cell);
    }
  }
}

bool RepairDesk::serves(const Wish& wish, std::uint32_t sequence) const {
  return std::any_of(cells_.begin(), cells_.end(), [&](const Cell& cell) {
    return (cell.state == State::kLoading || cell.state == State::kOffered) &&
           cell.reader == wish.reader && cell.sequence.value == sequence &&
           cell.producer == wish.producer && cell.refit == wish.refit;
  });
}

std::optional<std::uint32_t> RepairDesk::next_of(Wish& wish, const FrameLedger& ledger,
                                                 TimePoint now) const {
  const std::uint32_t end =
      std::min(ledger.horizon(), wish.held.first + std::min(kRepairWindowFrames, ledger.horizon()));
  for (int round = 0; round < 2; ++round) {
    for (std::uint32_t at = wish.cursor; at < end; ++at) {
      if (wish.held.holds(at) || !ledger.holds(at) || serves(wish, at)) continue;
      wish.cursor = at + 1;
      return at;
    }
    // Round again; after a failure not at once.
    wish.cursor = wish.held.first;
    if (wish.failed) {
      wish.failed = false;
      wish.not_before = now + kLoadRetry;
      return std::nullopt;
    }
  }
  return std::nullopt;
}

RepairDesk::Load RepairDesk::start(Cell& cell, const Wish& wish, std::uint32_t sequence) {
  cell.state = State::kLoading;
  cell.refit = wish.refit;
  cell.producer = wish.producer;
  cell.sequence = FrameSequence{sequence};
  cell.reader = wish.reader;
  cell.ticket = next_ticket_++;
  const auto slot = first_slot_ + static_cast<std::uint32_t>(&cell - cells_.data());
  return {slot, cell.refit, cell.producer, cell.sequence};
}

std::optional<ProcessId> RepairDesk::loaded(SharedSlot frame, TimePoint now) {
  if (!frame || !owns(frame.slot_index())) return std::nullopt;
  Cell& cell = cells_[frame.slot_index() - first_slot_];
  wire::FrameHeader header;
  std::memcpy(&header, frame.frame().data(), sizeof(header));
  const bool wanted = cell.state == State::kLoading && header.refit() == cell.refit &&
                      header.producer == cell.producer.value &&
                      header.sequence == cell.sequence.value;
  if (!wanted) return std::nullopt;  // its drop gives the slot back
  cell.state = State::kOffered;
  cell.frame = std::move(frame);
  cell.until = now + kLease;
  return cell.reader;
}

void RepairDesk::returned(std::uint32_t slot, TimePoint now) {
  Cell& cell = cells_[slot - first_slot_];
  if (cell.state == State::kLoading) {
    if (Wish* const wish = find(cell.refit, cell.producer, cell.reader)) {
      wish->failed = true;
      wish->heard_at = std::max(wish->heard_at, now - kWishLife / 2);
    }
  }
  cell.state = State::kFree;
  changed_ = true;
}

void RepairDesk::leave(Cell& cell) {
  cell.state = State::kLeaving;
  cell.frame.drop();
}

void RepairDesk::expire(TimePoint now) {
  changed_ = !wishes_.empty();  // a spool may have caught up
  for (Cell& cell : cells_) {
    if (cell.state == State::kOffered && now >= cell.until) leave(cell);
  }
  std::erase_if(wishes_, [&](const Wish& wish) { return now - wish.heard_at >= kWishLife; });
}

void RepairDesk::end(const RefitId& refit) {
  for (Cell& cell : cells_) {
    if (cell.state == State::kOffered && cell.refit == refit) leave(cell);
  }
  std::erase_if(wishes_, [&](const Wish& wish) { return wish.refit == refit; });
}

void RepairDesk::clear() {
  for (Cell& cell : cells_) {
    if (cell.state == State::kOffered) leave(cell);
  }
  wishes_.clear();
}

std::optional<RepairDesk::Load> RepairDesk::load_in(std::uint32_t slot) const {
  if (!owns(slot)) return std::nullopt;
  const Cell& cell = cells_[slot - first_slot_];
  if (cell.state != State::kLoading) return std::nullopt;
  return Load{slot, cell.refit, cell.producer, cell.sequence};
}

void RepairDesk::fill(const FrameLedger& ledger, const Memory& memory,
                      RepairMessage& message) const {
  const Wish* const wish = find(message.refit, message.producer, message.target);
  if (wish == nullptr) return;
  message.number = wish->number;
  for (std::size_t i = 0; i < cells_.size(); ++i) {
    const Cell& cell = cells_[i];
    const bool theirs = cell.state == State::kOffered && cell.reader == message.target &&
                        cell.producer == message.producer && cell.refit == message.refit;
    if (!theirs || message.offer_count == kRepairOffersMax) continue;
    FrameOffer& offer = message.offers[message.offer_count++];
    offer.sequence = cell.sequence;
    offer.ticket = cell.ticket;
    offer.frame_bytes = static_cast<std::uint32_t>(cell.frame.frame().size());
    offer.memory = memory.first_slot;
    offer.memory.address +=
        i * std::uint64_t{memory.slot_bytes} + limits::kHeaderPageBytes - limits::kFrameHeaderBytes;
  }
  std::uint32_t lacking = 0;
  for (std::uint32_t at = wish->held.first; at < ledger.horizon() && lacking <= message.offer_count;
       ++at) {
    lacking += ledger.holds(at) && !wish->held.holds(at) ? 1 : 0;
  }
  message.more = lacking > message.offer_count;
}

}  // namespace weft::transport
