// SPDX-License-Identifier: Apache-2.0
// Every bound that a peer, a file or a configuration can meet. Rooms refer to these by name.
#pragma once

#include <cstdint>

#include "weft/base/units.hpp"

namespace weft::limits {

// Chunks and frames (design: codec.md "Units").
inline constexpr std::uint32_t kChunkElementsMax = 262'144;
inline constexpr std::uint32_t kChunkBytesMax = 512 * 1024;
inline constexpr std::uint32_t kHeaderPageBytes =
    4096;  // a slot's first page; the frame header is its end
inline constexpr std::uint32_t kFrameHeaderBytes = 128;
inline constexpr std::uint32_t kSlotBytes = 1024 * 1024;  // default slot, header page included
inline constexpr std::uint32_t kSlotTailBytes = 64;       // readable bytes behind the payload
// Largest frame (header, index and payload) that fits a default slot.
inline constexpr std::uint32_t kFrameBytesMax =
    kSlotBytes - kHeaderPageBytes + kFrameHeaderBytes - kSlotTailBytes;
inline constexpr std::uint32_t kFrameBytesMin =
    64 * 1024;  // a producer closes no frame below this early
inline constexpr std::uint32_t kFrameChunksMax = 16'384;
inline constexpr std::uint32_t kFramesPerRefitTarget = 128;

// safetensors (the published format's header limit; the rest are ours, case B-089).
inline constexpr std::uint64_t kSafetensorsHeaderBytesMax = 100'000'000;
inline constexpr std::uint32_t kSafetensorsNestingMax = 32;
inline constexpr std::uint32_t kTensorNameBytesMax = 1024 * 1024;
inline constexpr std::uint32_t kIndexBytesMax = 256 * 1024 * 1024;
inline constexpr std::uint32_t kTensorsMax = 4'000'000;
inline constexpr std::uint32_t kFilesMax = 100'000;

// Lattice.
inline constexpr std::uint32_t kTilesMax = 1'000'000;
inline constexpr std::uint32_t kTilesPerTensorMax = 4;
inline constexpr std::uint32_t kTileAxesMax = 3;  // of a box in its shortest form, beside its runs
inline constexpr std::uint32_t kBoxRankMax = 8;
inline constexpr std::uint32_t kProducersMax = 65'536;
inline constexpr std::uint32_t kChunksMax = 0x7FFF'FFFF;

// Fleet and control.
inline constexpr std::uint32_t kMembersMax = 4096;
inline constexpr std::uint32_t kControlMessageBytesMax = 1024 * 1024;
inline constexpr std::uint32_t kMemberMessageBytesMax = 64 * 1024;  // member to coordinator
inline constexpr std::uint32_t kStatusBytesMax = 64 * 1024 * 1024;  // answer to the Status call
inline constexpr std::uint32_t kLatticeBytesMax = 128 * 1024 * 1024;
inline constexpr std::uint32_t kLatticePieceBytesMax = 60 * 1024;  // of it in one call
inline constexpr std::uint32_t kMemberIdBytesMax = 255;
inline constexpr std::uint32_t kRegionBytesMax = 63;
inline constexpr std::uint32_t kShapeBytesMax = 127;
inline constexpr std::uint32_t kProviderNameBytesMax = 63;
inline constexpr std::uint32_t kRailsMax = 64;
inline constexpr std::uint32_t kFabricControlBytesMax = 4096;
inline constexpr std::uint32_t kFabricAddressBytesMax = 128;
inline constexpr std::uint32_t kChildrenMax = 64;
inline constexpr std::uint32_t kTreesOpenMax = 8;
inline constexpr std::uint32_t kRefitRetriesMax = 16;
inline constexpr std::uint32_t kErrorDetailBytesMax = 4096;
inline constexpr std::uint32_t kQueueDepthMax = 65'536;

// Disk.
inline constexpr std::uint32_t kApplyBlockBytes = 1024 * 1024;
inline constexpr std::uint32_t kIoRetriesMax = 1000;
inline constexpr std::uint32_t kRetainRefits = 4;

}  // namespace weft::limits
