// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "codec/project/lattice.hpp"
#include "weft/base/ids.hpp"
#include "weft/base/result.hpp"
#include "weft/wire/frame.hpp"

namespace weft::codec {

// What a reader knows before it opens a frame. Unset fields are not checked.
// Threads: a value; one at a time.
struct FrameExpected {
  std::optional<FleetId> fleet;
  std::optional<RefitId> refit;
  const Lattice* lattice = nullptr;  // its digest, the chunks' places and sizes
  std::optional<ProducerIndex> producer;
  bool verify_checksum = true;  // false: the caller has compared it already
};

// FrameView is a checked frame: a private copy of header and index, and where the payloads lie.
// Invariant: entries are in strictly ascending chunk order, their types are known and sent types,
//            their payloads lie inside the frame one behind the other and fill it.
// Owns:      header and index; borrows the frame's bytes, whose payload may be hostile.
// Threads:   immutable.
class FrameView {
 public:
  // Errors: kCorruptPayload, kUnsupported (format version), kProtocol (other fleet, refit, lattice
  // or producer; a chunk of another producer), kDecodeLimit (a payload longer than its chunk may
  // have).
  static Result<FrameView> open(std::span<const std::byte> frame, const FrameExpected& expected);

  const wire::FrameHeader& header() const { return header_; }
  std::uint32_t chunk_count() const { return static_cast<std::uint32_t>(entries_.size()); }
  const std::vector<wire::IndexEntry>& entries() const { return entries_; }
  // Of entries()[position].
  std::span<const std::byte> payload(std::uint32_t position) const {
    return body_.subspan(offsets_[position], entries_[position].payload_bytes);
  }

 private:
  wire::FrameHeader header_;
  std::vector<wire::IndexEntry> entries_;
  std::vector<std::uint32_t> offsets_;  // into body_
  std::span<const std::byte> body_;     // index and payload
};

}  // namespace weft::codec
