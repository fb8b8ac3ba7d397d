// SPDX-License-Identifier: Apache-2.0
#include "codec/frame/frame_builder.hpp"

#include <algorithm>
#include <cstring>

#include "weft/base/assert.hpp"
#include "weft/base/limits.hpp"

namespace weft::codec {

namespace {

constexpr std::uint32_t kHeaderBytes = limits::kFrameHeaderBytes;
// Payloads are collected behind an index of the usual size; close() moves them if it is another.
constexpr std::uint32_t kPayloadStart = kHeaderBytes + 16 * wire::kIndexEntryBytes;

}  // namespace

FrameBuilder::FrameBuilder(Lease lease, const FrameIds& ids, std::uint32_t frame_bytes)
    : lease_(std::move(lease)), ids_(ids) {
  WEFT_ASSERT(static_cast<bool>(lease_));
  const auto room = static_cast<std::uint32_t>(lease_.frame_room().size());
  frame_bytes_max_ = std::min(frame_bytes, room);
}

std::size_t FrameBuilder::room_for(std::size_t payload_bytes) {
  return kPayloadStart + payload_bytes;
}

std::uint32_t FrameBuilder::frame_bytes() const {
  return kHeaderBytes + chunk_count() * wire::kIndexEntryBytes + payload_bytes_;
}

bool FrameBuilder::add(const wire::IndexEntry& entry, std::span<const std::byte> payload) {
  WEFT_ASSERT(entry.payload_bytes == payload.size());
  WEFT_ASSERT(index_.empty() || index_.back().chunk < entry.chunk);
  const std::span<std::byte> room = lease_.frame_room();
  const std::size_t grown = frame_bytes() + wire::kIndexEntryBytes + payload.size();
  const std::size_t where = room_for(payload_bytes_);
  const bool fits =
      index_.empty() || (grown <= frame_bytes_max_ && where + payload.size() <= room.size() &&
                         index_.size() < limits::kFrameChunksMax);
  if (!fits) return false;
  WEFT_ASSERT(where + payload.size() <= room.size());
  if (!payload.empty()) std::memcpy(room.data() + where, payload.data(), payload.size());
  payload_bytes_ += entry.payload_bytes;
  index_.push_back(entry);
  return true;
}

std::pair<SharedSlot, wire::FrameHeader> FrameBuilder::close(FrameSequence sequence) && {
  WEFT_ASSERT(!empty());
  const std::span<std::byte> room = lease_.frame_room();
  wire::FrameHeader header;
  header.set_fleet(ids_.fleet);
  header.set_refit(ids_.refit);
  header.set_lattice(ids_.lattice);
  header.producer = ids_.producer.value;
  header.sequence = sequence.value;
  header.chunk_count = chunk_count();
  header.index_bytes = chunk_count() * wire::kIndexEntryBytes;
  header.payload_bytes = payload_bytes_;
  const std::uint32_t body_start = kHeaderBytes + header.index_bytes;
  if (body_start != kPayloadStart) {
    std::memmove(room.data() + body_start, room.data() + kPayloadStart, payload_bytes_);
  }
  std::byte* to = room.data() + kHeaderBytes;
  for (const wire::IndexEntry& entry : index_) {
    wire::store_index_entry(to, entry);
    to += wire::kIndexEntryBytes;
  }
  const std::uint32_t total = frame_bytes();
  const Digest checksum =
      wire::frame_checksum(header, room.subspan(kHeaderBytes, total - kHeaderBytes));
  header.checksum_low = checksum.low;
  header.checksum_high = checksum.high;
  std::memcpy(room.data(), &header, sizeof(header));
  return {std::move(lease_).share(total), header};
}

}  // namespace weft::codec
