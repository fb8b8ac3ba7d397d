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

// Slime is the dense method that slime describes: old XOR new of every byte, zstd level 1, tensor
// by tensor.
// Threads: one at a time.
class Slime {
 public:
  static constexpr const char* kName = "slime";

  std::uint64_t encode(std::span<const PeerTensor> tensors) {
    packed_.resize(tensors.size());
    std::uint64_t bytes = 0;
    for (std::size_t t = 0; t < tensors.size(); ++t) {
      const PeerTensor& tensor = tensors[t];
      const std::span<std::byte> masks = masks_of(tensor.old_bytes.size());
      mix(tensor.old_bytes.data(), tensor.new_bytes.data(), masks);
      packed_[t].frame_bytes = zstd_.pack(masks, packed_[t].room);
      bytes += packed_[t].frame_bytes;
    }
    return bytes;
  }

  // Applies what encode() gave last, in place; applied again it takes the changes back.
  void decode(std::span<const std::span<std::byte>> live) {
    for (std::size_t t = 0; t < packed_.size(); ++t) {
      const std::span<std::byte> masks = masks_of(live[t].size());
      zstd_.unpack(std::span(packed_[t].room).first(packed_[t].frame_bytes), masks);
      mix(live[t].data(), masks.data(), live[t]);
    }
  }

 private:
  struct Packed {
    std::vector<std::byte> room;
    std::size_t frame_bytes = 0;
  };

  std::span<std::byte> masks_of(std::size_t bytes) {
    if (masks_.size() < bytes) masks_.resize(bytes);
    return std::span(masks_).first(bytes);
  }
  static void mix(const std::byte* left, const std::byte* right, std::span<std::byte> into) {
    std::size_t i = 0;
    for (; i + 8 <= into.size(); i += 8) {
      std::uint64_t a;
      std::uint64_t b;
      std::memcpy(&a, left + i, 8);
      std::memcpy(&b, right + i, 8);
      a ^= b;
      std::memcpy(into.data() + i, &a, 8);
    }
    for (; i < into.size(); ++i) into[i] = left[i] ^ right[i];
  }

  PeerZstd zstd_;
  std::vector<std::byte> masks_;
  std::vector<Packed> packed_;
};

}  // namespace weft::bench
