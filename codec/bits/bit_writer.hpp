// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "weft/wire/byte_io.hpp"

namespace weft::codec {

// BitWriter appends bits, lowest first, to private memory.
// Limits:  8 bytes behind the last written bit must be writable; callers size their buffers for the
//          worst case, so that no put() is checked.
// Threads: one at a time.
class BitWriter {
 public:
  explicit BitWriter(std::byte* at) : at_(at) {}

  // count <= 56, value < 2^count.
  void put(std::uint64_t value, std::uint32_t count) {
    pending_ |= value << pending_bits_;
    wire::store_le(at_, pending_);
    pending_bits_ += count;
    at_ += pending_bits_ >> 3;
    const std::uint32_t stored = pending_bits_ & ~7U;
    pending_ = stored < 64 ? pending_ >> stored : 0;
    pending_bits_ &= 7;
  }

  // Any count up to 64.
  void put_wide(std::uint64_t value, std::uint32_t count) {
    if (count > 32) {
      put(value & 0xFFFF'FFFFU, 32);
      value >>= 32;
      count -= 32;
    }
    put(value, count);
  }

  // A positive number below 2^32: 5 bits for the width less one, then the bits below the top one.
  void put_count(std::uint32_t number) {
    const auto width = static_cast<std::uint32_t>(32 - __builtin_clz(number));
    put(width - 1, 5);
    put(number & ~(std::uint32_t{1} << (width - 1)), width - 1);
  }

  // Inlined always: kernels call these with functions of a wider target, which cannot be inlined
  // into a copy of a narrower one.
  //
  // Writes zeros up to `length`, with ones where next() says: positions that ascend and lie below
  // length, `count` of them.
  template <typename Next>
  [[gnu::always_inline]] inline void put_ones(std::uint32_t count, std::uint64_t length,
                                              Next&& next) {
    std::uint64_t word = pending_;
    std::uint64_t word_index = 0;
    for (std::uint32_t i = 0; i < count; ++i) {
      const std::uint64_t at = pending_bits_ + next(i);
      while ((at >> 6) != word_index) {
        wire::store_le(at_ + 8 * word_index, word);
        word = 0;
        ++word_index;
      }
      word |= std::uint64_t{1} << (at & 63);
    }
    end_ones(word, word_index, length);
  }

  // The same where only the gaps are known: each one stands zeros(i) zeros behind the one before
  // it, and the last one ends the plane.
  template <typename Zeros>
  [[gnu::always_inline]] inline void put_unary(std::uint32_t count, Zeros&& zeros) {
    std::uint64_t word = pending_;
    std::uint64_t word_index = 0;
    std::uint64_t at = pending_bits_;
    for (std::uint32_t i = 0; i < count; ++i) {
      at += zeros(i);
      while ((at >> 6) != word_index) {
        wire::store_le(at_ + 8 * word_index, word);
        word = 0;
        ++word_index;
      }
      word |= std::uint64_t{1} << (at & 63);
      ++at;
    }
    end_ones(word, word_index, at - pending_bits_);
  }

  std::uint64_t bits_since(const std::byte* start) const {
    return static_cast<std::uint64_t>(at_ - start) * 8 + pending_bits_;
  }

  // Zero bits up to the next whole byte; returns where the next byte goes.
  std::byte* align() {
    if (pending_bits_ != 0) put(0, 8 - pending_bits_);
    return at_;
  }

 private:
  void end_ones(std::uint64_t word, std::uint64_t word_index, std::uint64_t length) {
    const std::uint64_t end = pending_bits_ + length;
    for (; word_index <= (end >> 6); ++word_index) {
      wire::store_le(at_ + 8 * word_index, word);
      word = 0;
    }
    at_ += end >> 3;
    pending_bits_ = static_cast<std::uint32_t>(end & 7);
    pending_ = static_cast<std::uint64_t>(*at_) & ((std::uint64_t{1} << pending_bits_) - 1);
  }

  std::byte* at_;
  std::uint64_t pending_ = 0;
  std::uint32_t pending_bits_ = 0;
};

}  // namespace weft::codec
