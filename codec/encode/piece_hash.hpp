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
  // Elements of a piece: large enough to be no burden, small enough to stay in the second cache.
  static constexpr std::uint32_t kElements = 16'384;

  PieceHash(std::span<const std::byte> bytes, bool wanted) : bytes_(bytes), wanted_(wanted) {}

  // All bytes before `end`, whatever of them was hashed before.
  void reach(std::size_t end) {
    if (wanted_ && end > done_) {
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
