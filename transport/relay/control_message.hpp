// SPDX-License-Identifier: Apache-2.0
// Control messages between a parent and a child on one link, as bytes
// (docs/formats/fabric-wire.md).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "transport/fabric/fabric.hpp"
#include "weft/base/ids.hpp"
#include "weft/base/limits.hpp"
#include "weft/base/result.hpp"

namespace weft::transport {

inline constexpr std::uint32_t kSlotsPerLinkMin = 3;
inline constexpr std::uint32_t kSlotsPerLinkMax = 64;

// Generations count a slot's grants, modulo 2^24.
inline constexpr std::uint32_t kGenerationMask = 0x00FF'FFFF;
constexpr std::uint32_t next_generation(std::uint32_t generation) {
  return (generation + 1) & kGenerationMask;
}

// The 32-bit immediate of a write: incarnation 8, generation (low bits) 12, slot 12.
struct Doorbell {
  std::uint8_t incarnation = 0;
  std::uint32_t generation = 0;  // low 12 bits
  std::uint32_t slot = 0;        // within the child's slab

  std::uint32_t pack() const {
    return (std::uint32_t{incarnation} << 24) | ((generation & 0xFFFU) << 12) | (slot & 0xFFFU);
  }
  static Doorbell unpack(std::uint32_t immediate) {
    return {static_cast<std::uint8_t>(immediate >> 24), (immediate >> 12) & 0xFFFU,
            immediate & 0xFFFU};
  }
};

// What the child says of a slot.
enum class GrantState : std::uint8_t {
  kIdle = 0,     // not to be written
  kGranted = 1,  // may be written once in this generation
  kTaken = 2,    // the frame of this generation has been taken
  kRetired = 3,  // a write may still be under way: the frame is to be sent again, elsewhere
};

// What the parent says of a slot.
enum class WriteState : std::uint8_t {
  kNone = 0,
  kPosted = 1,
  kWritten = 2,  // locally complete, which says nothing about arrival
  kFailed = 3,
};

struct SlotWord {
  std::uint32_t generation = 0;
  std::uint8_t state = 0;          // GrantState or WriteState
  bool previous_rejected = false;  // child: the frame of generation - 1 is to be sent again
};

enum class ControlKind : std::uint8_t {
  kHello = 1,    // child: this is my range; also a grant table
  kGrants = 2,   // child: the grant table, heartbeat
  kWritten = 3,  // parent: the write table, heartbeat, answer to hello
  kClose = 4,    // child: write no more; repeats the offer, for a parent that missed the hello
  kClosed = 5,   // parent: nothing will be written any more; final write table
};

// Place of a tree in a plan. A producer has one tree, or several that its frames take in turn.
struct TreeIndex {
  std::uint32_t value = 0;
  auto operator<=>(const TreeIndex&) const = default;
};

// What a child tells a parent once.
struct LinkOffer {
  RefitId refit;
  TreeIndex tree;
  std::uint32_t protocol = 0;
  std::uint32_t first_slot = 0;
  std::uint32_t slot_bytes = 0;
  std::uint8_t incarnation = 0;
  RemoteMemory memory;  // of the range's first byte
};

struct ControlMessage {
  ControlKind kind = ControlKind::kGrants;
  ProcessId sender;
  ProcessId target;
  std::uint64_t link = 0;    // random, drawn by the child
  std::uint32_t number = 0;  // per link and direction; lower ones are stale
  // kWritten, kClosed: grows when frames were passed over this link without being written; the
  // child asks for them.
  std::uint32_t skipped = 0;
  // kWritten, kClosed: how many frames the tree's producer has sent in all, once that is known.
  std::optional<std::uint32_t> frame_count;
  std::uint32_t slot_count = 0;
  std::array<SlotWord, kSlotsPerLinkMax> slots{};
  LinkOffer offer;  // of kHello and kClose
};

inline constexpr std::size_t kControlBytesMax = 512;
static_assert(kControlBytesMax <= limits::kFabricControlBytesMax);
using ControlBytes = std::array<std::byte, kControlBytesMax>;

// Returns the part of `room` that was filled.
std::span<const std::byte> encode_control(const ControlMessage& message, ControlBytes& room);
// Errors: kProtocol, whatever the bytes are.
Result<ControlMessage> decode_control(std::span<const std::byte> bytes);

}  // namespace weft::transport
