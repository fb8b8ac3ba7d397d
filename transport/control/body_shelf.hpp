// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "weft/base/guarded.hpp"
#include "weft/base/ids.hpp"
#include "weft/base/result.hpp"

namespace weft::transport {

// A piece of a body, and how long the whole one is.
// Threads: a value; one at a time.
struct BodyPiece {
  std::uint64_t total_bytes = 0;
  std::vector<std::byte> bytes;
};

// BodyShelf keeps the bodies that members fetch once per run (lattices), by digest. Anyone may put
// one: nothing is handed out before its bytes are all there and have the digest.
// Limits:  kBodiesMax bodies, the oldest goes first; kLatticeBytesMax bytes each. Memory grows with
//          what arrives, never with what is announced.
// Threads: any.
class BodyShelf {
 public:
  // Pieces come in order; one that is here already is fine, so that two producers may put the same
  // body. Errors: kProtocol (a gap, another total, bytes beyond it), kResourceLimit,
  // kCorruptPayload (whole, but of another digest: dropped).
  Status put(const Digest& digest, std::uint64_t total_bytes, std::uint64_t offset,
             std::span<const std::byte> piece);
  // Up to kLatticePieceBytesMax bytes from `offset` on. Errors: kUnsupported (no such body here, or
  // not whole yet), kProtocol (an offset beyond it).
  Result<BodyPiece> get(const Digest& digest, std::uint64_t offset) const;

 private:
  struct Body {
    Digest digest;
    std::uint64_t total_bytes = 0;
    std::vector<std::byte> bytes;
    bool whole = false;
  };
  Guarded<std::deque<Body>> bodies_;  // oldest first
};

}  // namespace weft::transport
