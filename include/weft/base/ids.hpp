// SPDX-License-Identifier: Apache-2.0
// Identities as one-field structs, so that an index, a version and a node never mix.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <functional>
#include <string>

namespace weft {

struct Version {
  std::uint64_t value = 0;
  auto operator<=>(const Version&) const = default;
};

// Number of a chunk in the lattice, 0-based, producers' tiles in lattice order.
struct ChunkIndex {
  std::uint32_t value = 0;
  auto operator<=>(const ChunkIndex&) const = default;
};

// Place of a tensor in the schema: tensors sorted by the UTF-8 bytes of their names.
struct TensorIndex {
  std::uint32_t value = 0;
  auto operator<=>(const TensorIndex&) const = default;
};

struct ProducerIndex {
  std::uint32_t value = 0;
  auto operator<=>(const ProducerIndex&) const = default;
};

// Number of a frame within one producer's stream of one refit, 0-based and dense.
struct FrameSequence {
  std::uint32_t value = 0;
  auto operator<=>(const FrameSequence&) const = default;
};

// Place of a node in one plan: producers first, then agents.
struct NodeIndex {
  std::uint32_t value = 0;
  auto operator<=>(const NodeIndex&) const = default;
};

// 128 bits, little-endian halves: digests (XXH3-128) and random identities.
struct Bits128 {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  auto operator<=>(const Bits128&) const = default;
  bool is_zero() const { return low == 0 && high == 0; }
};

// An XXH3-128 digest: schema, lattice, part, root, manifest.
struct Digest : Bits128 {
  auto operator<=>(const Digest&) const = default;
};

// Random, made with the decision log; members store it and refuse another.
struct FleetId : Bits128 {
  auto operator<=>(const FleetId&) const = default;
};

// A process's random start id: identity on the fabric and in epochs, never an address.
struct ProcessId {
  std::uint64_t value = 0;
  auto operator<=>(const ProcessId&) const = default;
};

// One coordinator start. A lower number, or an equal one from another process, is `fenced`.
struct Epoch {
  std::uint64_t number = 0;
  ProcessId coordinator;
  auto operator<=>(const Epoch&) const = default;
};

// One attempt at a refit, never used twice.
struct RefitId {
  Epoch epoch;
  std::uint32_t attempt = 0;
  auto operator<=>(const RefitId&) const = default;
};

// State of content: what a set of weight files is, under which lattice.
struct Content {
  Version version;
  Digest lattice;
  Digest root;
  auto operator<=>(const Content&) const = default;
};

// Lower-case hexadecimal, most significant digit first.
inline std::string to_hex(std::uint64_t value) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text(16, '0');
  for (int i = 15; i >= 0; --i, value >>= 4)
    text[static_cast<std::size_t>(i)] = kDigits[value & 0xF];
  return text;
}
inline std::string to_hex(const Bits128& value) { return to_hex(value.high) + to_hex(value.low); }

// `e<number>-<coordinator process, hex>-a<attempt>`: in logs and in spool and journal directory
// names.
inline std::string to_string(const RefitId& id) {
  return "e" + std::to_string(id.epoch.number) + "-" + to_hex(id.epoch.coordinator.value) + "-a" +
         std::to_string(id.attempt);
}

}  // namespace weft

template <>
struct std::hash<weft::Bits128> {
  std::size_t operator()(const weft::Bits128& id) const noexcept {
    return static_cast<std::size_t>(id.low ^ (id.high * 0x9E37'79B9'7F4A'7C15ULL));
  }
};
template <>
struct std::hash<weft::RefitId> {
  std::size_t operator()(const weft::RefitId& id) const noexcept {
    return static_cast<std::size_t>((id.epoch.number * 0x9E37'79B9'7F4A'7C15ULL) ^
                                    id.epoch.coordinator.value ^ (std::uint64_t{id.attempt} << 40));
  }
};
