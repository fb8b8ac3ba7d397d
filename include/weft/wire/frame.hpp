// SPDX-License-Identifier: Apache-2.0
// The frame's byte layout, format version 1; docs/formats/frame.md is the truth and golden files
// pin it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>

#include "weft/base/ids.hpp"
#include "weft/base/limits.hpp"
#include "weft/base/result.hpp"
#include "weft/wire/byte_io.hpp"
#include "weft/wire/digest.hpp"

namespace weft::wire {

inline constexpr std::uint32_t kFrameMagic = 0x4D52'4657;  // "WFRM" in memory order
inline constexpr std::uint16_t kFrameFormatVersion = 1;

// Chunk types; the numbers are on the wire for ever. kSame is never sent.
enum class ChunkType : std::uint8_t {
  kSame = 0,
  kClassed = 1,
  kSparse = 2,
  kXor = 3,
  kOverwrite = 4,
  kPlanes = 5,
  kRaw = 6,
  kBytes = 7,
};
inline constexpr std::uint8_t kChunkTypeCount = 8;

constexpr const char* to_string(ChunkType type) {
  switch (type) {
    case ChunkType::kSame:
      return "same";
    case ChunkType::kClassed:
      return "classed";
    case ChunkType::kSparse:
      return "sparse";
    case ChunkType::kXor:
      return "xor";
    case ChunkType::kOverwrite:
      return "overwrite";
    case ChunkType::kPlanes:
      return "planes";
    case ChunkType::kRaw:
      return "raw";
    case ChunkType::kBytes:
      return "bytes";
  }
  return "unknown";
}

// 128 bytes, little-endian, no padding. `checksum` is the XXH3-128 of the whole frame with this
// field taken as zero.
struct FrameHeader {
  std::uint32_t magic = kFrameMagic;
  std::uint16_t format_version = kFrameFormatVersion;
  std::uint16_t header_bytes = limits::kFrameHeaderBytes;
  std::uint64_t fleet_low = 0;
  std::uint64_t fleet_high = 0;
  std::uint64_t epoch_number = 0;
  std::uint64_t epoch_coordinator = 0;
  std::uint64_t lattice_low = 0;
  std::uint64_t lattice_high = 0;
  std::uint32_t attempt = 0;
  std::uint32_t producer = 0;
  std::uint32_t sequence = 0;
  std::uint32_t chunk_count = 0;
  std::uint32_t index_bytes = 0;  // 20 * chunk_count
  std::uint32_t payload_bytes = 0;
  std::array<std::uint8_t, 32> reserved{};  // zero
  std::uint64_t checksum_low = 0;
  std::uint64_t checksum_high = 0;

  FleetId fleet() const { return FleetId{{fleet_low, fleet_high}}; }
  RefitId refit() const { return {{epoch_number, ProcessId{epoch_coordinator}}, attempt}; }
  Digest lattice() const { return Digest{{lattice_low, lattice_high}}; }
  Digest checksum() const { return Digest{{checksum_low, checksum_high}}; }
  std::uint64_t frame_bytes() const {
    return std::uint64_t{limits::kFrameHeaderBytes} + index_bytes + payload_bytes;
  }
  void set_fleet(const FleetId& id) { fleet_low = id.low, fleet_high = id.high; }
  void set_refit(const RefitId& id) {
    epoch_number = id.epoch.number, epoch_coordinator = id.epoch.coordinator.value,
    attempt = id.attempt;
  }
  void set_lattice(const Digest& digest) { lattice_low = digest.low, lattice_high = digest.high; }
};
static_assert(sizeof(FrameHeader) == limits::kFrameHeaderBytes);
static_assert(std::is_trivially_copyable_v<FrameHeader>);
static_assert(std::has_unique_object_representations_v<FrameHeader>);

// Index entry of one chunk: 20 bytes on the wire, unaligned there; load with load_index_entry.
struct IndexEntry {
  ChunkIndex chunk;
  ChunkType type = ChunkType::kSame;
  std::uint32_t payload_bytes = 0;  // 28 bits on the wire, below the 4 type bits
  std::uint32_t changed_count = 0;  // elements whose bits differ
  std::uint64_t new_digest = 0;     // XXH3-64 of the chunk's new bytes
};
inline constexpr std::uint32_t kIndexEntryBytes = 20;

// The type nibble is not validated here: values of 8 and above must be refused by the reader.
inline IndexEntry load_index_entry(const std::byte* from) {
  IndexEntry entry;
  entry.chunk.value = load_le<std::uint32_t>(from);
  const auto packed = load_le<std::uint32_t>(from + 4);
  entry.type = static_cast<ChunkType>(packed >> 28);
  entry.payload_bytes = packed & 0x0FFF'FFFFU;
  entry.changed_count = load_le<std::uint32_t>(from + 8);
  entry.new_digest = load_le<std::uint64_t>(from + 12);
  return entry;
}
inline void store_index_entry(std::byte* to, const IndexEntry& entry) {
  store_le(to, entry.chunk.value);
  store_le(to + 4, (static_cast<std::uint32_t>(entry.type) << 28) | entry.payload_bytes);
  store_le(to + 8, entry.changed_count);
  store_le(to + 12, entry.new_digest);
}

// `header` is the caller's private copy; `body` is index and payload.
inline Digest frame_checksum(FrameHeader header, std::span<const std::byte> body) {
  header.checksum_low = header.checksum_high = 0;
  Digester digester;
  digester.update(std::as_bytes(std::span(&header, 1)));
  digester.update(body);
  return digester.digest();
}

// Copies the header out of hostile, possibly changing memory and checks every field that needs no
// context. Errors: kCorruptPayload (not a frame, lengths that do not add up), kUnsupported (format
// version).
inline Result<FrameHeader> load_frame_header(std::span<const std::byte> frame) {
  const auto corrupt = [](const std::string& what) {
    return failure(ErrorCode::kCorruptPayload, Stage::kFrame, "frame header: " + what);
  };
  if (frame.size() < limits::kFrameHeaderBytes) return corrupt("truncated");
  FrameHeader header;
  std::memcpy(&header, frame.data(), sizeof(header));
  if (header.magic != kFrameMagic) return corrupt("wrong magic");
  if (header.format_version != kFrameFormatVersion) {
    return failure(
        ErrorCode::kUnsupported, Stage::kFrame,
        "frame format version " + std::to_string(header.format_version) + "; this build reads 1");
  }
  if (header.header_bytes != limits::kFrameHeaderBytes) return corrupt("wrong header length");
  if (header.chunk_count == 0 || header.chunk_count > limits::kFrameChunksMax)
    return corrupt("chunk count");
  if (header.index_bytes != header.chunk_count * kIndexEntryBytes) return corrupt("index length");
  if (header.frame_bytes() > frame.size()) return corrupt("length beyond the buffer");
  for (const std::uint8_t byte : header.reserved) {
    if (byte != 0) return corrupt("reserved bytes are not zero");
  }
  return header;
}

}  // namespace weft::wire
