// SPDX-License-Identifier: Apache-2.0
#include "transport/control/body_shelf.hpp"

#include <algorithm>
#include <string>

#include "weft/base/limits.hpp"
#include "weft/wire/digest.hpp"

namespace weft::transport {

namespace {

constexpr std::size_t kBodiesMax = 4;

Error refused(ErrorCode code, const Digest& digest, const std::string& what) {
  return failure(code, Stage::kControl, "body " + to_hex(digest) + ": " + what);
}

}  // namespace

Status BodyShelf::put(const Digest& digest, std::uint64_t total_bytes, std::uint64_t offset,
                      std::span<const std::byte> piece) {
  if (total_bytes == 0 || total_bytes > limits::kLatticeBytesMax) {
    return refused(ErrorCode::kResourceLimit, digest,
                   std::to_string(total_bytes) + " bytes; at most " +
                       std::to_string(limits::kLatticeBytesMax));
  }
  if (offset > total_bytes || piece.size() > total_bytes - offset || piece.empty()) {
    return refused(ErrorCode::kProtocol, digest, "a piece beyond its end");
  }
  return bodies_.with([&](std::deque<Body>& bodies) -> Status {
    auto found = std::find_if(bodies.begin(), bodies.end(),
                              [&](const Body& body) { return body.digest == digest; });
    if (found == bodies.end()) {
      if (offset != 0) return refused(ErrorCode::kProtocol, digest, "begins with a gap");
      if (bodies.size() == kBodiesMax) bodies.pop_front();
      found = bodies.insert(bodies.end(), Body{digest, total_bytes, {}, false});
    }
    if (found->total_bytes != total_bytes || offset > found->bytes.size()) {
      return refused(ErrorCode::kProtocol, digest, "a gap, or another length than before");
    }
    const std::uint64_t known = found->bytes.size() - offset;
    if (known >= piece.size()) return ok();
    const auto fresh = piece.subspan(static_cast<std::size_t>(known));
    found->bytes.insert(found->bytes.end(), fresh.begin(), fresh.end());
    if (found->bytes.size() < total_bytes) return ok();
    found->whole = wire::digest128(found->bytes) == digest;
    if (found->whole) return ok();
    bodies.erase(found);
    return refused(ErrorCode::kCorruptPayload, digest, "its bytes have another digest");
  });
}

Result<BodyPiece> BodyShelf::get(const Digest& digest, std::uint64_t offset) const {
  return bodies_.with([&](const std::deque<Body>& bodies) -> Result<BodyPiece> {
    const auto found = std::find_if(bodies.begin(), bodies.end(), [&](const Body& body) {
      return body.whole && body.digest == digest;
    });
    if (found == bodies.end()) {
      return refused(ErrorCode::kUnsupported, digest, "the coordinator does not have it");
    }
    if (offset >= found->total_bytes) {
      return refused(ErrorCode::kProtocol, digest, "an offset beyond its end");
    }
    const auto rest = std::span(found->bytes).subspan(static_cast<std::size_t>(offset));
    const auto part = rest.first(std::min<std::size_t>(rest.size(), limits::kLatticePieceBytesMax));
    return BodyPiece{found->total_bytes, {part.begin(), part.end()}};
  });
}

}  // namespace weft::transport
