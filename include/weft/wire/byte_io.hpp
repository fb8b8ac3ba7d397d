// SPDX-License-Identifier: Apache-2.0
// Bounded little-endian reading and writing, for every byte layout of the project.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/ids.hpp"

namespace weft::wire {

static_assert(std::endian::native == std::endian::little,
              "weft runs on little-endian machines only");

template <std::unsigned_integral T>
T load_le(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}
template <std::unsigned_integral T>
void store_le(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof(T));
}

// Reads past the end give zeros and make ok() false: check ok() once, behind the last read.
// Owns:    nothing; the bytes must outlive the reader.
// Threads: one at a time.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <std::unsigned_integral T>
  T read() {
    if (!require(sizeof(T))) return T{};
    const T value = load_le<T>(bytes_.data() + offset_);
    offset_ += sizeof(T);
    return value;
  }
  std::span<const std::byte> read_bytes(std::size_t count) {
    if (!require(count)) return {};
    const auto part = bytes_.subspan(offset_, count);
    offset_ += count;
    return part;
  }
  // A 32-bit length, then that many bytes; longer than `bytes_max` is not ok.
  std::string read_string(std::size_t bytes_max) {
    const auto count = read<std::uint32_t>();
    if (count > bytes_max) ok_ = false;
    const auto part = read_bytes(ok_ ? count : 0);
    return std::string(reinterpret_cast<const char*>(part.data()), part.size());
  }
  Bits128 read_bits128() {
    const auto low = read<std::uint64_t>();
    const auto high = read<std::uint64_t>();
    return {low, high};
  }
  RefitId read_refit_id() {
    RefitId id;
    id.epoch.number = read<std::uint64_t>();
    id.epoch.coordinator.value = read<std::uint64_t>();
    id.attempt = read<std::uint32_t>();
    return id;
  }
  Content read_content() {
    Content content;
    content.version.value = read<std::uint64_t>();
    content.lattice = Digest{read_bits128()};
    content.root = Digest{read_bits128()};
    return content;
  }

  bool ok() const { return ok_; }
  std::size_t offset() const { return offset_; }
  std::size_t remaining() const { return bytes_.size() - offset_; }

 private:
  bool require(std::size_t count) {
    if (!ok_ || count > bytes_.size() - offset_) ok_ = false;
    return ok_;
  }

  std::span<const std::byte> bytes_;
  std::size_t offset_ = 0;
  bool ok_ = true;
};

// Threads: one at a time.
class ByteWriter {
 public:
  template <std::unsigned_integral T>
  void write(T value) {
    std::byte raw[sizeof(T)];
    store_le(raw, value);
    bytes_.insert(bytes_.end(), raw, raw + sizeof(T));
  }
  void write_bytes(std::span<const std::byte> part) {
    bytes_.insert(bytes_.end(), part.begin(), part.end());
  }
  void write_string(std::string_view text) {
    write(static_cast<std::uint32_t>(text.size()));
    write_bytes(std::as_bytes(std::span(text)));
  }
  void write_bits128(const Bits128& value) {
    write(value.low);
    write(value.high);
  }
  void write_refit_id(const RefitId& id) {
    write(id.epoch.number);
    write(id.epoch.coordinator.value);
    write(id.attempt);
  }
  void write_content(const Content& content) {
    write(content.version.value);
    write_bits128(content.lattice);
    write_bits128(content.root);
  }

  const std::vector<std::byte>& bytes() const { return bytes_; }
  std::vector<std::byte> take() && { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace weft::wire
