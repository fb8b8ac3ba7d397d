// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <zstd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "codec/kernels/kernel_set.hpp"

namespace weft::bench {

// NemoRl is the published NeMo-RL delta format for 16-bit elements, in our own code, with our scan:
// per tensor the sorted flat positions as gaps in the smallest of u16, u32 and u64, then the XOR
// values; all tensors concatenated, zstd level 1.
// Threads: one at a time.
class NemoRl {
 public:
  NemoRl() : encoder_(ZSTD_createCCtx()), decoder_(ZSTD_createDCtx()) {}
  NemoRl(const NemoRl&) = delete;
  NemoRl& operator=(const NemoRl&) = delete;
  ~NemoRl() {
    ZSTD_freeCCtx(encoder_);
    ZSTD_freeDCtx(decoder_);
  }

  // The bytes of one tensor, valid until the next call.
  std::span<const std::byte> encode(std::span<const std::byte> old_bytes,
                                    std::span<const std::byte> new_bytes) {
    gather(old_bytes, new_bytes);
    const std::uint32_t gap_max = gaps_.empty() ? 0 : *std::max_element(gaps_.begin(), gaps_.end());
    gap_bytes_ = gap_max < 65'536 ? 2 : 4;  // no tensor here needs u64
    count_ = gaps_.size();
    plain_.resize(count_ * (gap_bytes_ + 2));
    for (std::size_t i = 0; i < count_; ++i) {
      std::memcpy(plain_.data() + i * gap_bytes_, &gaps_[i], gap_bytes_);
    }
    std::memcpy(plain_.data() + count_ * gap_bytes_, masks_.data(), count_ * 2);
    packed_.resize(ZSTD_compressBound(plain_.size()));
    packed_bytes_ = ZSTD_compressCCtx(encoder_, packed_.data(), packed_.size(), plain_.data(),
                                      plain_.size(), 1);
    return {packed_.data(), packed_bytes_};
  }

  // Applies what encode() gave last, in place.
  void decode(std::span<std::byte> live) {
    plain_.resize(count_ * (gap_bytes_ + 2));
    ZSTD_decompressDCtx(decoder_, plain_.data(), plain_.size(), packed_.data(), packed_bytes_);
    const std::byte* masks = plain_.data() + count_ * gap_bytes_;
    if (gap_bytes_ == 2) {
      apply<std::uint16_t>(live, masks);
    } else {
      apply<std::uint32_t>(live, masks);
    }
  }

 private:
  void gather(std::span<const std::byte> old_bytes, std::span<const std::byte> new_bytes) {
    constexpr std::size_t kRun = 65'536;
    const std::size_t element_count = old_bytes.size() / 2;
    gaps_.resize(element_count);
    masks_.resize(element_count);
    std::size_t count = 0;
    std::uint32_t next = 0;
    positions_.resize(kRun + 64);
    for (std::size_t start = 0; start < element_count; start += kRun) {
      const std::size_t here = std::min(kRun, element_count - start);
      const std::uint32_t found =
          codec::kernels().scan(old_bytes.data() + 2 * start, new_bytes.data() + 2 * start,
                                static_cast<std::uint32_t>(here), 2, positions_.data());
      for (std::uint32_t i = 0; i < found; ++i, ++count) {
        const auto position = static_cast<std::uint32_t>(start) + positions_[i];
        std::uint16_t before;
        std::uint16_t after;
        std::memcpy(&before, old_bytes.data() + 2 * std::size_t{position}, 2);
        std::memcpy(&after, new_bytes.data() + 2 * std::size_t{position}, 2);
        gaps_[count] = position - next;
        masks_[count] = static_cast<std::uint16_t>(before ^ after);
        next = position + 1;
      }
    }
    gaps_.resize(count);
    masks_.resize(count);
  }

  template <typename Gap>
  void apply(std::span<std::byte> live, const std::byte* masks) const {
    std::size_t position = 0;
    for (std::size_t i = 0; i < count_; ++i, ++position) {
      Gap gap;
      std::memcpy(&gap, plain_.data() + i * sizeof(Gap), sizeof(Gap));
      position += gap;
      std::uint16_t word;
      std::uint16_t mask;
      std::memcpy(&mask, masks + 2 * i, 2);
      std::memcpy(&word, live.data() + 2 * position, 2);
      word = static_cast<std::uint16_t>(word ^ mask);
      std::memcpy(live.data() + 2 * position, &word, 2);
    }
  }

  ZSTD_CCtx* encoder_;
  ZSTD_DCtx* decoder_;
  std::vector<std::uint32_t> positions_;
  std::vector<std::uint32_t> gaps_;
  std::vector<std::uint16_t> masks_;
  std::vector<std::byte> plain_;
  std::vector<std::byte> packed_;
  std::size_t packed_bytes_ = 0;
  std::size_t gap_bytes_ = 2;
  std::size_t count_ = 0;
};

}  // namespace weft::bench
