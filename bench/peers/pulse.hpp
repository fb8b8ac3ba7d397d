// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "bench/peers/peer_tensor.hpp"

namespace weft::bench {

// Pulse is our reading of PULSE's description, delta-coded positions as small integers and the new
// values: gaps as bytes (255: 255 and more to come) of all tensors, then the new words of all,
// zstd level 1.
// Threads: one at a time.
class Pulse {
 public:
  static constexpr const char* kName = "pulse";

  std::uint64_t encode(std::span<const PeerTensor> tensors) {
    parts_.clear();
    plain_.clear();
    word_count_ = 0;
    for (const PeerTensor& tensor : tensors) add(tensor);
    const std::size_t gaps_end = plain_.size();
    plain_.resize(gaps_end + 2 * word_count_);
    if (word_count_ != 0) std::memcpy(plain_.data() + gaps_end, words_.data(), 2 * word_count_);
    packed_bytes_ = zstd_.pack(plain_, packed_);
    return packed_bytes_;
  }

  // Applies what encode() gave last, in place; applied again it changes nothing more.
  void decode(std::span<const std::span<std::byte>> live) {
    zstd_.unpack(std::span(packed_).first(packed_bytes_), plain_);
    const std::byte* at = plain_.data();
    const std::byte* words = plain_.data() + plain_.size() - 2 * word_count_;
    std::size_t change = 0;
    for (std::size_t t = 0; t < parts_.size(); ++t) {
      std::size_t position = 0;
      for (const std::byte* const end = at + parts_[t].gap_bytes; at != end; ++at) {
        const auto gap = static_cast<std::size_t>(*at);
        position += gap;
        if (gap == 255) continue;
        set_word(live[t].data(), position++, word_at(words, change++));
      }
    }
  }

 private:
  struct Part {
    std::size_t gap_bytes = 0;
  };

  void add(const PeerTensor& tensor) {
    // The most bytes that the gaps can take: one per change, and one per 255 elements skipped.
    const std::size_t start = plain_.size();
    const std::size_t element_count = tensor.old_bytes.size() / 2;
    std::size_t end = start;
    std::size_t next = 0;
    for_each_run(tensor, positions_, [&](const ChangedRun& run) {
      const std::size_t room = end + run.positions.size() + element_count / 255 + 1;
      if (plain_.size() < room) plain_.resize(2 * room);
      if (words_.size() < word_count_ + run.positions.size()) {
        words_.resize(2 * words_.size() + 65'536);
      }
      for (const std::uint32_t position : run.positions) {
        std::size_t gap = run.start + position - next;
        for (; gap >= 255; gap -= 255) plain_[end++] = std::byte{255};
        plain_[end++] = static_cast<std::byte>(gap);
        words_[word_count_++] = word_at(run.after, position);
        next = run.start + position + 1;
      }
    });
    parts_.push_back({end - start});
    plain_.resize(end);
  }

  PeerZstd zstd_;
  std::vector<Part> parts_;
  std::vector<std::uint32_t> positions_;
  std::vector<std::uint16_t> words_;  // of all tensors
  std::size_t word_count_ = 0;
  std::vector<std::byte> plain_;
  std::vector<std::byte> packed_;
  std::size_t packed_bytes_ = 0;
};

}  // namespace weft::bench
