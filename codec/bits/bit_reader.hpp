// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "weft/wire/byte_io.hpp"

namespace weft::codec {

// BitReader reads what BitWriter wrote, from a private copy of hostile bytes.
// Limits:  kTailBytes zero bytes behind the last one must be readable: they belong to the copy.
//          Reads past the end give zeros and make ok() false: check ok() behind a group of reads.
// Threads: one at a time.
class BitReader {
 public:
  static constexpr std::size_t kTailBytes = 64;

  explicit BitReader(std::span<const std::byte> bytes)
      : start_(bytes.data()), end_(std::uint64_t{bytes.size()} * 8) {}

  bool ok() const { return ok_; }
  std::uint64_t position() const { return position_; }
  std::uint64_t end() const { return end_; }
  std::uint64_t remaining() const { return end_ - position_; }
  const std::byte* start() const { return start_; }

  // 57 bits from any bit position up to the end.
  std::uint64_t window(std::uint64_t position) const {
    return wire::load_le<std::uint64_t>(start_ + (position >> 3)) >> (position & 7);
  }

  // count <= 56.
  std::uint64_t take(std::uint32_t count) {
    const std::uint64_t value = window(position_) & ((std::uint64_t{1} << count) - 1);
    return skip(count) ? value : 0;
  }
  std::uint64_t take_wide(std::uint32_t count) {
    if (count <= 32) return take(count);
    const std::uint64_t low = take(32);
    return low | (take(count - 32) << 32);
  }
  // What put_count wrote: at least 1 when ok().
  std::uint32_t take_count() {
    const auto width = static_cast<std::uint32_t>(take(5));
    return static_cast<std::uint32_t>(take(width) | (std::uint64_t{1} << width));
  }
  bool skip(std::uint64_t count) {
    if (!ok_ || count > remaining()) {
      ok_ = false;
      position_ = end_;
      return false;
    }
    position_ += count;
    return true;
  }
  void fail() {
    ok_ = false;
    position_ = end_;
  }

  // Skips to the next whole byte; the bits skipped must be zero. Returns its offset.
  std::size_t align() {
    const auto padding = static_cast<std::uint32_t>(-position_ & 7);
    if (take(padding) != 0) fail();
    return static_cast<std::size_t>(position_ >> 3);
  }
  // True when everything was read and the padding of the last byte is zero.
  bool finished() {
    align();
    return ok_ && position_ == end_;
  }

 private:
  const std::byte* start_;
  std::uint64_t end_;
  std::uint64_t position_ = 0;
  bool ok_ = true;
};

}  // namespace weft::codec
