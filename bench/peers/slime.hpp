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
      masks_.resize(tensor.old_bytes.size());
      mix(tensor.old_bytes.data(), tensor.new_bytes.data(), masks_);
      zstd_.pack(masks_, packed_[t]);
      bytes += packed_[t].size();
    }
    return bytes;
  }

  // Applies what encode() gave last, in place; applied again it takes the changes back.
  void decode(std::span<const std::span<std::byte>> live) {
    for (std::size_t t = 0; t < packed_.size(); ++t) {
      masks_.resize(live[t].size());
      zstd_.unpack(packed_[t], masks_);
      mix(live[t].data(), masks_.data(), live[t]);
    }
  }

 private:
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
  std::vector<std::vector<std::byte>> packed_;
};

}  // namespace weft::bench
