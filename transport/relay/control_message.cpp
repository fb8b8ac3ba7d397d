// SPDX-License-Identifier: Apache-2.0
#include "transport/relay/control_message.hpp"

#include <algorithm>
#include <cstring>

#include "weft/wire/byte_io.hpp"
#include "weft/wire/digest.hpp"

namespace weft::transport {
namespace {

constexpr std::uint32_t kControlMagic = 0x5443'4657;  // "WFCT" in memory order
constexpr std::uint8_t kControlVersion = 1;
constexpr std::size_t kHeaderBytes = 48;
constexpr std::size_t kChecksumOffset = 40;
constexpr std::size_t kOfferBytes = 60;
constexpr std::uint32_t kRejectedBit = 0x80;
static_assert(kHeaderBytes + kOfferBytes + 4 * kSlotsPerLinkMax <= kControlBytesMax);

bool has_offer(ControlKind kind) {
  return kind == ControlKind::kHello || kind == ControlKind::kClose;
}

// Writes into a fixed buffer whose size the constants above guarantee.
// Threads: one at a time.
class FixedWriter {
 public:
  explicit FixedWriter(std::byte* to) : to_(to) {}
  template <typename T>
  void write(T value) {
    wire::store_le(to_, value);
    to_ += sizeof(T);
  }
  std::byte* end() const { return to_; }

 private:
  std::byte* to_;
};

void write_offer(FixedWriter& out, const LinkOffer& offer) {
  out.write(offer.refit.epoch.number);
  out.write(offer.refit.epoch.coordinator.value);
  out.write(offer.refit.attempt);
  out.write(offer.producer.value);
  out.write(offer.protocol);
  out.write(offer.first_slot);
  out.write(offer.slot_bytes);
  out.write(std::uint32_t{offer.incarnation});
  out.write(offer.memory.address);
  out.write(offer.memory.key);
  out.write(std::uint32_t{0});
}

LinkOffer read_offer(wire::ByteReader& in) {
  LinkOffer offer;
  offer.refit = in.read_refit_id();
  offer.producer.value = in.read<std::uint32_t>();
  offer.protocol = in.read<std::uint32_t>();
  offer.first_slot = in.read<std::uint32_t>();
  offer.slot_bytes = in.read<std::uint32_t>();
  offer.incarnation = static_cast<std::uint8_t>(in.read<std::uint32_t>());
  offer.memory.address = in.read<std::uint64_t>();
  offer.memory.key = in.read<std::uint64_t>();
  in.read<std::uint32_t>();
  return offer;
}

// Over the message with the checksum taken as zero.
std::uint64_t checksum(std::span<const std::byte> message) {
  ControlBytes copy;
  std::memcpy(copy.data(), message.data(), message.size());
  wire::store_le(copy.data() + kChecksumOffset, std::uint64_t{0});
  return wire::digest64(std::span(copy).first(message.size()));
}

Error not_a_message(std::size_t bytes) {
  return failure(
      ErrorCode::kProtocol, Stage::kRelay,
      "fabric control message of " + std::to_string(bytes) + " bytes is not one of version 1");
}

}  // namespace

std::span<const std::byte> encode_control(const ControlMessage& message, ControlBytes& room) {
  FixedWriter out(room.data());
  out.write(kControlMagic);
  out.write(kControlVersion);
  out.write(static_cast<std::uint8_t>(message.kind));
  out.write(static_cast<std::uint16_t>(message.slot_count));
  out.write(message.sender.value);
  out.write(message.target.value);
  out.write(message.link);
  out.write(message.number);
  out.write(std::uint32_t{0});
  out.write(std::uint64_t{0});
  if (has_offer(message.kind)) write_offer(out, message.offer);
  for (std::uint32_t i = 0; i < message.slot_count; ++i) {
    const SlotWord& word = message.slots[i];
    out.write(((word.generation & kGenerationMask) << 8) |
              (word.previous_rejected ? kRejectedBit : 0U) | word.state);
  }
  const auto filled = std::span(room).first(static_cast<std::size_t>(out.end() - room.data()));
  wire::store_le(room.data() + kChecksumOffset, checksum(filled));
  return filled;
}

Result<ControlMessage> decode_control(std::span<const std::byte> bytes) {
  if (bytes.size() < kHeaderBytes || bytes.size() > kControlBytesMax) {
    return not_a_message(bytes.size());
  }
  wire::ByteReader in(bytes);
  ControlMessage message;
  const bool known =
      in.read<std::uint32_t>() == kControlMagic && in.read<std::uint8_t>() == kControlVersion;
  const auto kind = in.read<std::uint8_t>();
  message.kind = static_cast<ControlKind>(kind);
  message.slot_count = in.read<std::uint16_t>();
  message.sender.value = in.read<std::uint64_t>();
  message.target.value = in.read<std::uint64_t>();
  message.link = in.read<std::uint64_t>();
  message.number = in.read<std::uint32_t>();
  in.read<std::uint32_t>();
  const auto expected_checksum = in.read<std::uint64_t>();
  const std::size_t offer_bytes = has_offer(message.kind) ? kOfferBytes : 0;
  if (!known || kind < 1 || kind > 5 || message.slot_count > kSlotsPerLinkMax ||
      bytes.size() != kHeaderBytes + offer_bytes + 4 * message.slot_count ||
      checksum(bytes) != expected_checksum) {
    return not_a_message(bytes.size());
  }
  if (offer_bytes != 0) message.offer = read_offer(in);
  for (std::uint32_t i = 0; i < message.slot_count; ++i) {
    const auto packed = in.read<std::uint32_t>();
    message.slots[i].generation = packed >> 8;
    message.slots[i].previous_rejected = (packed & kRejectedBit) != 0;
    message.slots[i].state = static_cast<std::uint8_t>(packed & (kRejectedBit - 1));
    if (message.slots[i].state > 3) return not_a_message(bytes.size());
  }
  return message;
}

}  // namespace weft::transport
