// SPDX-License-Identifier: Apache-2.0
// One writer per chunk type. Each returns the end of its payload in the workspace's out buffer.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/bits/words.hpp"
#include "codec/encode/change_stats.hpp"
#include "codec/encode/class_choice.hpp"
#include "codec/encode/encode_chunk.hpp"
#include "codec/encode/encode_workspace.hpp"
#include "codec/encode/piece_hash.hpp"
#include "codec/kernels/kernel_set.hpp"

namespace weft::codec {

// A chunk whose changes are known: positions and flags lie in the workspace.
// Threads: one at a time.
struct ChangedChunk {
  const ChunkInput& input;
  const KernelSet& kernels;
  EncodeWorkspace::Lists& lists;
  std::uint32_t element_count = 0;
  std::uint32_t changed_count = 0;

  std::uint64_t old_word(std::uint32_t element) const {
    return load_word(input.old_bytes.data(), element, input.format.element_bytes);
  }
  std::uint64_t new_word(std::uint32_t element) const {
    return load_word(input.new_bytes.data(), element, input.format.element_bytes);
  }
  std::uint32_t word_bits() const { return input.format.element_bytes * 8U; }
  std::uint64_t word_mask() const { return ~std::uint64_t{0} >> (64 - word_bits()); }
};

// A chunk is gone through in pieces of this many elements.
inline constexpr std::uint32_t kPassElements = 16'384;

// Threads: a value; one at a time.
struct ClassedPayload {
  std::byte* end = nullptr;
  std::uint32_t changed_count = 0;
  double ideal_bits = 0;
};
// Needs no positions: it finds the changes itself, and hashes what is not hashed yet on the way.
ClassedPayload write_classed(const ChangedChunk& chunk, const ClassChoice& choice, PieceHash& hash);
std::byte* write_sparse(const ChangedChunk& chunk, std::uint32_t golomb_order);
std::byte* write_xor(const ChangedChunk& chunk, std::uint32_t golomb_order);
std::byte* write_overwrite(const ChangedChunk& chunk);
std::byte* write_raw(const ChangedChunk& chunk);
std::byte* write_planes(const ChangedChunk& chunk);
std::byte* write_bytes(const ChangedChunk& chunk);

}  // namespace weft::codec
