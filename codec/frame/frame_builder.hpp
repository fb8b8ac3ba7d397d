// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "weft/base/ids.hpp"
#include "weft/base/lease.hpp"
#include "weft/wire/frame.hpp"

namespace weft::codec {

// What every frame of one stream carries.
// Threads: a value; one at a time.
struct FrameIds {
  FleetId fleet;
  RefitId refit;
  Digest lattice;
  ProducerIndex producer;
};

// FrameBuilder fills one leased slot with whole chunks and seals it.
// Life:    open -> add, as often as it answers true -> close.
// Owns:    the lease, until close() hands the slot out.
// Threads: one at a time.
class FrameBuilder {
 public:
  // Slot room that a first chunk of that payload needs.
  static std::size_t room_for(std::size_t payload_bytes);

  // The slot must have room for its first chunk (room_for). A frame takes chunks until it
  // has reached frame_bytes (a ceiling for all but its first chunk).
  FrameBuilder(Lease lease, const FrameIds& ids, std::uint32_t frame_bytes);

  // Copies the payload in. False: no room left, nothing changed; close this frame. Chunks come in
  // ascending order (asserted); a first chunk always fits.
  bool add(const wire::IndexEntry& entry, std::span<const std::byte> payload);

  bool empty() const { return index_.empty(); }
  std::uint32_t chunk_count() const { return static_cast<std::uint32_t>(index_.size()); }
  // Of the frame if it were closed now.
  std::uint32_t frame_bytes() const;

  // Writes index, header and checksum. At least one chunk must have been added.
  std::pair<SharedSlot, wire::FrameHeader> close(FrameSequence sequence) &&;

 private:
  Lease lease_;
  FrameIds ids_;
  std::uint32_t frame_bytes_max_;
  std::uint32_t payload_bytes_ = 0;
  std::vector<wire::IndexEntry> index_;
};

}  // namespace weft::codec
