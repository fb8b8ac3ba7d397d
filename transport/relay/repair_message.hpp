// SPDX-License-Identifier: Apache-2.0
// Messages between a reader that lacks frames and a node that holds them, as bytes
// (docs/formats/fabric-wire.md, "Repair").
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/relay/control_message.hpp"
#include "weft/base/ids.hpp"
#include "weft/base/result.hpp"

namespace weft::transport {

inline constexpr std::uint32_t kRepairWindowFrames = 2048;
inline constexpr std::uint32_t kRepairOffersMax = 8;

// Kinds above those of ControlKind.
enum class RepairKind : std::uint8_t {
  kRequest = 6,  // reader: these are the frames that I have; what else do you have?
  kOffer = 7,    // holder: read these within the lease
  kDone = 8,     // reader: I need these offers no longer
};

// A frame that may be read from the holder's memory.
struct FrameOffer {
  FrameSequence sequence;
  std::uint32_t frame_bytes = 0;
  std::uint32_t ticket = 0;  // names this offer at its holder
  RemoteMemory memory;       // of the frame's first byte
};

// Which frames of one producer a reader has: all below `first`, and those whose bit is set.
struct HeldFrames {
  std::uint32_t first = 0;                                // the lowest that is missing
  std::uint32_t byte_count = 0;                           // of `bits` that are sent
  std::array<std::byte, kRepairWindowFrames / 8> bits{};  // bit i: first + i

  bool holds(std::uint32_t sequence) const {
    if (sequence < first) return true;
    const std::uint32_t at = sequence - first;
    if (at >= byte_count * 8) return false;
    return (std::to_integer<unsigned>(bits[at / 8]) >> (at % 8) & 1U) != 0;
  }
};

struct RepairMessage {
  RepairKind kind = RepairKind::kRequest;
  ProcessId sender;
  ProcessId target;
  RefitId refit;
  ProducerIndex producer;
  std::uint32_t number = 0;       // of the request; an offer repeats that of the last request heard
  HeldFrames held;                // kRequest
  bool more = false;              // kOffer: the holder has, or is about to have, further frames
  std::uint32_t offer_count = 0;  // kOffer, kDone
  std::array<FrameOffer, kRepairOffersMax> offers{};
};

bool is_repair_message(std::span<const std::byte> bytes);
// Returns the part of `room` that was filled.
std::span<const std::byte> encode_repair(const RepairMessage& message, ControlBytes& room);
// Errors: kProtocol, whatever the bytes are.
Result<RepairMessage> decode_repair(std::span<const std::byte> bytes);

}  // namespace weft::transport
