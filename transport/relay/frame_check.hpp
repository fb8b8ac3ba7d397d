// SPDX-License-Identifier: Apache-2.0
// What a relay looks at before it forwards a frame it never opens.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "weft/base/ids.hpp"
#include "weft/wire/frame.hpp"

namespace weft::transport {

// What every frame of one link must say of itself.
struct FrameIdentity {
  FleetId fleet;
  RefitId refit;
  Digest lattice;
  ProducerIndex producer;
};

// `room`: the slot from the frame's first byte on; other hosts may still write there, so that only
// the private copy of the header is trusted. Identity is refused before the payload is looked at.
// Errors: kProtocol (a frame of another fleet, refit, lattice or producer), kCorruptPayload.
inline Result<wire::FrameHeader> check_frame(std::span<const std::byte> room,
                                             const FrameIdentity& expected) {
  WEFT_TRY(const wire::FrameHeader header, wire::load_frame_header(room));
  const char* foreign = nullptr;
  if (header.fleet() != expected.fleet) foreign = "fleet";
  if (header.refit() != expected.refit) foreign = "refit";
  if (header.lattice() != expected.lattice) foreign = "lattice";
  if (header.producer != expected.producer.value) foreign = "producer";
  if (foreign != nullptr) {
    return failure(ErrorCode::kProtocol, Stage::kRelay,
                   std::string("frame of another ") + foreign + " on a link of refit " +
                       to_string(expected.refit));
  }
  const auto body =
      room.subspan(limits::kFrameHeaderBytes, header.frame_bytes() - limits::kFrameHeaderBytes);
  if (wire::frame_checksum(header, body) != header.checksum()) {
    return failure(ErrorCode::kCorruptPayload, Stage::kRelay,
                   "checksum of frame " + std::to_string(header.sequence) + " of producer " +
                       std::to_string(header.producer) + " does not hold");
  }
  return header;
}

}  // namespace weft::transport
