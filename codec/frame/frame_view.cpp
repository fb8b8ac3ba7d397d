// SPDX-License-Identifier: Apache-2.0
#include "codec/frame/frame_view.hpp"

#include <string>
#include <utility>

#include "codec/encode/encode_chunk.hpp"

namespace weft::codec {

namespace {

Error wrong(ErrorCode code, const wire::FrameHeader& header, const std::string& what) {
  return failure(code, Stage::kFrame,
                 "frame " + std::to_string(header.sequence) + " of producer " +
                     std::to_string(header.producer) + ": " + what);
}

Status check_identity(const wire::FrameHeader& header, const FrameExpected& expected) {
  const auto other = [&header](const char* what) {
    return wrong(ErrorCode::kProtocol, header, std::string("is of another ") + what);
  };
  if (expected.fleet && header.fleet() != *expected.fleet) return other("fleet");
  if (expected.refit && header.refit() != *expected.refit) return other("refit");
  if (expected.producer && header.producer != expected.producer->value) return other("producer");
  if (expected.lattice == nullptr) return ok();
  if (header.lattice() != expected.lattice->digest()) return other("lattice");
  if (header.producer >= expected.lattice->producer_count()) {
    return wrong(ErrorCode::kProtocol, header, "there is no such producer");
  }
  return ok();
}

// An entry against the chunk that it names.
Status check_place(const wire::FrameHeader& header, const wire::IndexEntry& entry,
                   const Lattice& lattice) {
  if (!lattice.chunks_of({header.producer}).contains(entry.chunk)) {
    return wrong(ErrorCode::kProtocol, header,
                 "chunk " + std::to_string(entry.chunk.value) + " is not this producer's");
  }
  const ChunkPlace place = lattice.place(entry.chunk);
  if (entry.payload_bytes > payload_bytes_max(place.bytes()) ||
      entry.changed_count > place.element_count) {
    return wrong(ErrorCode::kDecodeLimit, header,
                 "chunk " + std::to_string(entry.chunk.value) + " of " +
                     std::to_string(place.bytes()) + " bytes claims " +
                     std::to_string(entry.payload_bytes) + " payload bytes and " +
                     std::to_string(entry.changed_count) + " changes");
  }
  return ok();
}

}  // namespace

Result<FrameView> FrameView::open(std::span<const std::byte> frame, const FrameExpected& expected) {
  FrameView view;
  WEFT_TRY(view.header_, wire::load_frame_header(frame));
  const wire::FrameHeader& header = view.header_;
  WEFT_TRY_STATUS(check_identity(header, expected));
  view.body_ = frame.subspan(limits::kFrameHeaderBytes,
                             std::size_t{header.index_bytes} + header.payload_bytes);
  if (expected.verify_checksum && wire::frame_checksum(header, view.body_) != header.checksum()) {
    return wrong(ErrorCode::kCorruptPayload, header, "wrong checksum");
  }
  // chunk_count is at most kFrameChunksMax here.
  view.entries_.reserve(header.chunk_count);
  view.offsets_.reserve(header.chunk_count);
  std::uint64_t offset = header.index_bytes;
  for (std::uint32_t i = 0; i < header.chunk_count; ++i) {
    const wire::IndexEntry entry =
        wire::load_index_entry(view.body_.data() + std::size_t{i} * wire::kIndexEntryBytes);
    const auto type = static_cast<std::uint8_t>(entry.type);
    if (type == 0 || type >= wire::kChunkTypeCount) {
      return wrong(ErrorCode::kCorruptPayload, header,
                   "chunk type " + std::to_string(type) + " is not one that is sent");
    }
    if (i > 0 && !(view.entries_.back().chunk < entry.chunk)) {
      return wrong(ErrorCode::kCorruptPayload, header, "chunks do not ascend");
    }
    if (expected.lattice != nullptr) {
      WEFT_TRY_STATUS(check_place(header, entry, *expected.lattice));
    }
    view.entries_.push_back(entry);
    view.offsets_.push_back(static_cast<std::uint32_t>(offset));
    offset += entry.payload_bytes;
    if (offset > view.body_.size()) break;
  }
  if (offset != view.body_.size()) {
    return wrong(ErrorCode::kCorruptPayload, header, "payloads do not fill the frame");
  }
  return view;
}

}  // namespace weft::codec
