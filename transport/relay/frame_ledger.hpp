// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "weft/base/ids.hpp"

namespace weft::transport {

// Frames of one producer and refit that a node has taken, with 64 bits of each checksum: tells a
// repetition from a conflict, and what is missing.
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
    std::uint64_t& seen = mark_of(sequence.value);
    const std::uint64_t mark = checksum == 0 ? 1 : checksum;  // 0: not seen
    if (seen == mark || seen == kHeldBefore) return Entry::kRepeated;
    if (seen != 0) return Entry::kConflict;
    seen = mark;
    counted(sequence.value);
    return Entry::kNew;
  }
  // Taken by an earlier process of this node: whatever its checksum is, it is not taken again.
  void note_held(FrameSequence sequence) {
    if (sequence.value >= kFramesMax) return;
    std::uint64_t& seen = mark_of(sequence.value);
    if (seen != 0) return;
    seen = kHeldBefore;
    counted(sequence.value);
  }
  // As if it had never come: it is taken again, whatever it is then.
  void forget(FrameSequence sequence) {
    if (!holds(sequence.value)) return;
    mark_of(sequence.value) = 0;
    --count_;
    first_missing_ = std::min(first_missing_, sequence.value);
  }

  bool holds(std::uint32_t sequence) const {
    const std::size_t index = sequence / kFramesPerBlock;
    return index < blocks_.size() && blocks_[index] != nullptr &&
           (*blocks_[index])[sequence % kFramesPerBlock] != 0;
  }
  std::uint32_t count() const { return count_; }
  // One above the highest that has been seen.
  std::uint32_t horizon() const { return horizon_; }
  std::uint32_t first_missing() const { return first_missing_; }

 private:
  static constexpr std::uint64_t kHeldBefore = ~std::uint64_t{0};
  using Block = std::array<std::uint64_t, kFramesPerBlock>;

  std::uint64_t& mark_of(std::uint32_t sequence) {
    return (*block_of(sequence))[sequence % kFramesPerBlock];
  }
  void counted(std::uint32_t sequence) {
    ++count_;
    horizon_ = std::max(horizon_, sequence + 1);
    while (first_missing_ < horizon_ && holds(first_missing_)) ++first_missing_;
  }
  Block* block_of(std::uint32_t sequence) {
    const std::size_t index = sequence / kFramesPerBlock;
    if (index >= blocks_.size()) blocks_.resize(index + 1);
    if (blocks_[index] == nullptr) blocks_[index] = std::make_unique<Block>();
    return blocks_[index].get();
  }

  std::vector<std::unique_ptr<Block>> blocks_;
  std::uint32_t count_ = 0;
  std::uint32_t horizon_ = 0;
  std::uint32_t first_missing_ = 0;
};

}  // namespace weft::transport
