// SPDX-License-Identifier: Apache-2.0
// What every message on the fabric starts with, and how it is closed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "transport/relay/control_message.hpp"
#include "weft/wire/byte_io.hpp"
#include "weft/wire/digest.hpp"

namespace weft::transport {

inline constexpr std::uint32_t kControlMagic = 0x5443'4657;  // "WFCT" in memory order
inline constexpr std::uint8_t kControlVersion = 1;
inline constexpr std::size_t kControlKindOffset = 5;
inline constexpr std::size_t kControlHeaderBytes = 48;
inline constexpr std::size_t kControlChecksumOffset = 40;

// Writes into a fixed buffer whose size the callers' constants guarantee.
// Threads: one at a time.
class FixedWriter {
 public:
  explicit FixedWriter(std::byte* to) : to_(to) {}
  template <typename T>
  void write(T value) {
    wire::store_le(to_, value);
    to_ += sizeof(T);
  }
  void write_bytes(std::span<const std::byte> bytes) {
    std::memcpy(to_, bytes.data(), bytes.size());
    to_ += bytes.size();
  }
  std::byte* end() const { return to_; }

 private:
  std::byte* to_;
};

// Over the message with the checksum taken as zero.
inline std::uint64_t control_checksum(std::span<const std::byte> message) {
  ControlBytes copy;
  std::memcpy(copy.data(), message.data(), message.size());
  wire::store_le(copy.data() + kControlChecksumOffset, std::uint64_t{0});
  return wire::digest64(std::span(copy).first(message.size()));
}

// The 48 bytes in front of every message; the checksum is zero until seal_control().
struct ControlHeader {
  std::uint8_t kind = 0;
  std::uint16_t count = 0;  // of slots, bytes or offers, by kind
  ProcessId sender;
  ProcessId target;
  std::uint64_t link = 0;
  std::uint32_t number = 0;
  std::uint32_t flags = 0;
};

inline void write_header(FixedWriter& out, const ControlHeader& header) {
  out.write(kControlMagic);
  out.write(kControlVersion);
  out.write(header.kind);
  out.write(header.count);
  out.write(header.sender.value);
  out.write(header.target.value);
  out.write(header.link);
  out.write(header.number);
  out.write(header.flags);
  out.write(std::uint64_t{0});
}

inline std::span<const std::byte> seal_control(const FixedWriter& out, ControlBytes& room) {
  const auto filled = std::span(room).first(static_cast<std::size_t>(out.end() - room.data()));
  wire::store_le(room.data() + kControlChecksumOffset, control_checksum(filled));
  return filled;
}

// False: not a message of this version, or damaged.
inline bool read_header(std::span<const std::byte> bytes, ControlHeader& header) {
  if (bytes.size() < kControlHeaderBytes || bytes.size() > kControlBytesMax) return false;
  wire::ByteReader in(bytes);
  const bool known =
      in.read<std::uint32_t>() == kControlMagic && in.read<std::uint8_t>() == kControlVersion;
  header.kind = in.read<std::uint8_t>();
  header.count = in.read<std::uint16_t>();
  header.sender.value = in.read<std::uint64_t>();
  header.target.value = in.read<std::uint64_t>();
  header.link = in.read<std::uint64_t>();
  header.number = in.read<std::uint32_t>();
  header.flags = in.read<std::uint32_t>();
  return known && in.read<std::uint64_t>() == control_checksum(bytes);
}

}  // namespace weft::transport
