// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "weft/base/ids.hpp"

namespace weft::transport {

// Frames of one producer and refit that a node has taken, with 64 bits of each checksum: tells a
// repetition from a conflict.
// Threads: one at a time.
// Limits:  kFramesMax frames; memory follows the sequences that were really seen.
class FrameLedger {
 public:
  static constexpr std::uint32_t kFramesPerBlock = 4096;
  static constexpr std::uint32_t kFramesMax = 1U << 22;

  enum class Entry : std::uint8_t { kNew = 1, kRepeated = 2, kConflict = 3, kBeyond = 4 };

  // Blocks for the first frames, so that a usual refit allocates nothing later.
  void reserve() { block_of(0); }

  Entry note(FrameSequence sequence, std::uint64_t checksum) {
    if (sequence.value >= kFramesMax) return Entry::kBeyond;
    std::uint64_t& seen = (*block_of(sequence.value))[sequence.value % kFramesPerBlock];
    const std::uint64_t mark = checksum == 0 ? 1 : checksum;  // 0: not seen
    if (seen == mark) return Entry::kRepeated;
    if (seen != 0) return Entry::kConflict;
    seen = mark;
    return Entry::kNew;
  }

 private:
  using Block = std::array<std::uint64_t, kFramesPerBlock>;
  Block* block_of(std::uint32_t sequence) {
    const std::size_t index = sequence / kFramesPerBlock;
    if (index >= blocks_.size()) blocks_.resize(index + 1);
    if (blocks_[index] == nullptr) blocks_[index] = std::make_unique<Block>();
    return blocks_[index].get();
  }
  std::vector<std::unique_ptr<Block>> blocks_;
};

}  // namespace weft::transport
