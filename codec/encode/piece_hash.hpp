// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "weft/wire/digest.hpp"

namespace weft::codec {

// PieceHash is the digest of a chunk that is hashed piece by piece, right behind the pass that has
// brought each piece into the cache.
// Threads: one at a time.
class PieceHash {
 public:
  // Small enough to be in the second cache still; smaller ones cost more than they save, because
  // each update of the digest has its price.
  static constexpr std::size_t kPieceBytes = 128 * 1024;

  PieceHash(std::span<const std::byte> bytes, bool wanted) : bytes_(bytes), wanted_(wanted) {}

  // The bytes before `end` are in the cache.
  void reach(std::size_t end) {
    if (wanted_ && end > done_ && (end - done_ >= kPieceBytes || end == bytes_.size())) {
      digester_.update(bytes_.subspan(done_, end - done_));
      done_ = end;
    }
  }
  // 0 if it is not wanted.
  std::uint64_t digest() {
    reach(bytes_.size());
    return wanted_ ? digester_.digest() : 0;
  }

 private:
  std::span<const std::byte> bytes_;
  bool wanted_;
  std::size_t done_ = 0;
  wire::Digester64 digester_;
};

}  // namespace weft::codec
