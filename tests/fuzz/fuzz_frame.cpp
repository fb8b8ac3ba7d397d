// SPDX-License-Identifier: Apache-2.0
// Any bytes as a frame; the checksum is set right first, so that what stands behind it is reached.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

#include "codec/frame/frame_view.hpp"
#include "weft/wire/frame.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  using namespace weft;
  std::vector<std::byte> frame(size);
  if (size != 0) std::memcpy(frame.data(), bytes, size);
  if (codec::FrameView::open(frame, {}) && size < limits::kFrameHeaderBytes) std::abort();
  if (size < limits::kFrameHeaderBytes) return 0;
  wire::FrameHeader header;
  std::memcpy(&header, frame.data(), sizeof(header));
  header.magic = wire::kFrameMagic;
  header.format_version = wire::kFrameFormatVersion;
  header.header_bytes = limits::kFrameHeaderBytes;
  header.reserved = {};
  const std::size_t body_bytes = std::min<std::size_t>(
      size - limits::kFrameHeaderBytes, std::size_t{header.index_bytes} + header.payload_bytes);
  const Digest checksum =
      wire::frame_checksum(header, std::span(frame).subspan(limits::kFrameHeaderBytes, body_bytes));
  header.checksum_low = checksum.low;
  header.checksum_high = checksum.high;
  std::memcpy(frame.data(), &header, sizeof(header));
  const auto view = codec::FrameView::open(frame, {});
  if (!view) return 0;
  std::size_t total = header.index_bytes;
  for (std::uint32_t i = 0; i < view->chunk_count(); ++i) {
    const auto payload = view->payload(i);
    if (payload.data() < frame.data() ||
        payload.data() + payload.size() > frame.data() + frame.size()) {
      std::abort();
    }
    total += payload.size();
  }
  if (total != body_bytes) std::abort();
  return 0;
}
