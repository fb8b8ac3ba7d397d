// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "bench/peers/peer_tensor.hpp"

namespace weft::bench {

// NemoRl is the published NeMo-RL delta format for 16-bit elements, in our own code, with our scan:
// per tensor the sorted flat positions as gaps in the smallest of u16, u32 and u64; behind the gaps
// of all tensors the XOR values of all, zstd level 1. (Gaps and values tensor by tensor are up to
// 5 % larger; this order gives what NeMo-RL's own code does.)
// Threads: one at a time.
class NemoRl {
 public:
  static constexpr const char* kName = "nemo_rl";

  // Bytes of all tensors; what decode() applies.
  std::uint64_t encode(std::span<const PeerTensor> tensors) {
    parts_.clear();
    plain_.clear();
    mask_count_ = 0;
    for (const PeerTensor& tensor : tensors) add(tensor);
    const std::size_t gaps_end = plain_.size();
    plain_.resize(gaps_end + 2 * mask_count_);
    if (mask_count_ != 0) std::memcpy(plain_.data() + gaps_end, masks_.data(), 2 * mask_count_);
    packed_bytes_ = zstd_.pack(plain_, packed_);
    return packed_bytes_;
  }
  // The bytes of one tensor, valid until the next call.
  std::span<const std::byte> encode(std::span<const std::byte> old_bytes,
                                    std::span<const std::byte> new_bytes) {
    const PeerTensor tensor{old_bytes, new_bytes};
    encode(std::span(&tensor, 1));
    return std::span(packed_).first(packed_bytes_);
  }

  // Applies what encode() gave last, in place; applied again it takes the changes back.
  void decode(std::span<const std::span<std::byte>> live) {
    zstd_.unpack(std::span(packed_).first(packed_bytes_), plain_);
    const std::byte* gaps = plain_.data();
    const std::byte* masks = plain_.data() + plain_.size() - 2 * mask_count_;
    for (std::size_t t = 0; t < parts_.size(); ++t) {
      const Part& part = parts_[t];
      if (part.gap_bytes == 2) {
        apply<std::uint16_t>(live[t].data(), gaps, masks, part.count);
      } else if (part.gap_bytes == 4) {
        apply<std::uint32_t>(live[t].data(), gaps, masks, part.count);
      } else {
        apply<std::uint64_t>(live[t].data(), gaps, masks, part.count);
      }
      gaps += part.count * part.gap_bytes;
      masks += part.count * 2;
    }
  }
  void decode(std::span<std::byte> live) { decode(std::span(&live, 1)); }

 private:
  struct Part {
    std::size_t count = 0;
    std::size_t gap_bytes = 2;
  };

  void add(const PeerTensor& tensor) {
    if (tensor.old_bytes.size() >> 33 == 0) {
      add_gaps<std::uint32_t>(tensor, narrow_gaps_);
    } else {
      add_gaps<std::uint64_t>(tensor, wide_gaps_);
    }
  }

  template <typename Position>
  void add_gaps(const PeerTensor& tensor, std::vector<Position>& gaps) {
    std::size_t count = 0;
    Position next = 0;
    Position gap_max = 0;
    for_each_run(tensor, positions_, [&](const ChangedRun& run) {
      if (gaps.size() < count + run.positions.size()) gaps.resize(2 * gaps.size() + 65'536);
      if (masks_.size() < mask_count_ + run.positions.size()) {
        masks_.resize(2 * masks_.size() + 65'536);
      }
      for (const std::uint32_t position : run.positions) {
        const auto gap = static_cast<Position>(run.start + position - next);
        gap_max = std::max(gap_max, gap);
        gaps[count++] = gap;
        masks_[mask_count_++] = static_cast<std::uint16_t>(word_at(run.before, position) ^
                                                           word_at(run.after, position));
        next = static_cast<Position>(run.start + position + 1);
      }
    });
    const std::uint64_t widest = gap_max;
    const Part part{count, widest >> 16 == 0 ? 2U : widest >> 32 == 0 ? 4U : 8U};
    parts_.push_back(part);
    const std::size_t start = plain_.size();
    plain_.resize(start + count * part.gap_bytes);
    std::byte* const at = plain_.data() + start;
    const auto found = std::span(gaps).first(count);
    if (part.gap_bytes == 2) {
      narrow<std::uint16_t>(found, at);
    } else if (part.gap_bytes == 4) {
      narrow<std::uint32_t>(found, at);
    } else {
      narrow<std::uint64_t>(found, at);
    }
  }

  template <typename Gap, typename Position>
  static void narrow(std::span<Position> gaps, std::byte* at) {
    for (const Position wide : gaps) {
      const auto gap = static_cast<Gap>(wide);
      std::memcpy(at, &gap, sizeof(Gap));
      at += sizeof(Gap);
    }
  }

  template <typename Gap>
  static void apply(std::byte* live, const std::byte* gaps, const std::byte* masks,
                    std::size_t count) {
    std::size_t position = 0;
    for (std::size_t i = 0; i < count; ++i, ++position) {
      Gap gap;
      std::memcpy(&gap, gaps + i * sizeof(Gap), sizeof(Gap));
      position += gap;
      const auto word = static_cast<std::uint16_t>(word_at(live, position) ^ word_at(masks, i));
      set_word(live, position, word);
    }
  }

  PeerZstd zstd_;
  std::vector<Part> parts_;
  std::vector<std::uint32_t> positions_;
  std::vector<std::uint32_t> narrow_gaps_;
  std::vector<std::uint64_t> wide_gaps_;  // of tensors of 2^32 elements and more
  std::vector<std::uint16_t> masks_;      // of all tensors
  std::size_t mask_count_ = 0;
  std::vector<std::byte> plain_;
  std::vector<std::byte> packed_;
  std::size_t packed_bytes_ = 0;
};

}  // namespace weft::bench
