// SPDX-License-Identifier: Apache-2.0
// One reader per chunk type. Each fills the chunk's new bytes, or returns false because the payload
// (or the old values under it) is not right.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "codec/bits/words.hpp"
#include "codec/decode/decode_chunk.hpp"
#include "codec/decode/decode_workspace.hpp"
#include "codec/kernels/kernel_set.hpp"

namespace weft::codec {

// Threads: one at a time.
struct ArrivingChunk {
  const DecodeInput& input;
  const KernelSet& kernels;
  DecodeWorkspace::Lists& lists;
  std::span<const std::byte> payload;  // private; BitReader::kTailBytes zeros behind it
  std::span<std::byte> new_bytes;
  std::uint32_t element_count = 0;

  std::uint32_t changed_count() const { return input.entry.changed_count; }
  std::uint32_t word_bits() const { return input.format.element_bytes * 8U; }
  std::uint64_t old_word(std::uint32_t element) const {
    return load_word(input.old_bytes.data(), element, input.format.element_bytes);
  }
  void set_new_word(std::uint32_t element, std::uint64_t word) const {
    store_word(new_bytes.data(), element, input.format.element_bytes, word);
  }
};

bool read_classed(const ArrivingChunk& chunk);
bool read_sparse(const ArrivingChunk& chunk);
bool read_xor(const ArrivingChunk& chunk);
bool read_overwrite(const ArrivingChunk& chunk);
bool read_raw(const ArrivingChunk& chunk);
bool read_planes(const ArrivingChunk& chunk);
bool read_bytes(const ArrivingChunk& chunk);

}  // namespace weft::codec
