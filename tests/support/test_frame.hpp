// SPDX-License-Identifier: Apache-2.0
// Frames whose bytes follow from producer and sequence.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "weft/base/lease.hpp"
#include "weft/wire/frame.hpp"
#include "weft/wire/messages.hpp"

namespace weft::transport {

// The body of a frame: a window of one pattern, so that filling and checking are plain copies.
inline std::span<const std::byte> test_body(std::uint32_t producer, std::uint32_t sequence,
                                            std::size_t bytes) {
  constexpr std::size_t kWindows = 4096;
  static const std::vector<std::byte> pattern = [] {
    std::vector<std::byte> filled(kWindows + 2 * limits::kSlotBytes);
    std::uint32_t state = 1;
    for (std::byte& byte : filled) {
      state = state * 1'664'525 + 1'013'904'223;
      byte = static_cast<std::byte>(state >> 24);
    }
    return filled;
  }();
  return std::span(pattern).subspan((sequence * 31 + producer * 1009) % kWindows, bytes);
}

inline SharedSlot make_frame(Lease lease, const wire::Plan& plan, std::uint32_t producer,
                             std::uint32_t sequence, std::uint32_t payload_bytes = 3000) {
  wire::FrameHeader header;
  header.set_fleet(plan.fleet);
  header.set_refit(plan.refit);
  header.set_lattice(plan.base.lattice);
  header.producer = producer;
  header.sequence = sequence;
  header.chunk_count = 1;
  header.index_bytes = wire::kIndexEntryBytes;
  header.payload_bytes = payload_bytes;
  const auto room = lease.frame_room();
  const auto body = room.subspan(sizeof(header), header.index_bytes + payload_bytes);
  std::memcpy(body.data(), test_body(producer, sequence, body.size()).data(), body.size());
  const Digest checksum = wire::frame_checksum(header, body);
  header.checksum_low = checksum.low;
  header.checksum_high = checksum.high;
  std::memcpy(room.data(), &header, sizeof(header));
  return std::move(lease).share(static_cast<std::uint32_t>(header.frame_bytes()));
}

inline bool holds_test_bytes(std::span<const std::byte> frame) {
  wire::FrameHeader header;
  std::memcpy(&header, frame.data(), sizeof(header));
  const auto body = frame.subspan(sizeof(header));
  if (body.size() != header.frame_bytes() - sizeof(header)) return false;
  const auto expected = test_body(header.producer, header.sequence, body.size());
  return std::memcmp(body.data(), expected.data(), body.size()) == 0;
}

}  // namespace weft::transport
