// SPDX-License-Identifier: Apache-2.0
#include "transport/relay/control_message.hpp"

#include <string>

#include "transport/relay/control_bytes.hpp"

namespace weft::transport {
namespace {

constexpr std::size_t kOfferBytes = 60;
constexpr std::size_t kCountBytes = 4;
constexpr std::uint32_t kNotKnown = 0xFFFF'FFFF;
constexpr std::uint32_t kRejectedBit = 0x80;
static_assert(kControlHeaderBytes + kOfferBytes + 4 * kSlotsPerLinkMax <= kControlBytesMax);

bool has_offer(ControlKind kind) {
  return kind == ControlKind::kHello || kind == ControlKind::kClose;
}

bool has_frame_count(ControlKind kind) {
  return kind == ControlKind::kWritten || kind == ControlKind::kClosed;
}

std::size_t body_bytes(ControlKind kind) {
  if (has_offer(kind)) return kOfferBytes;
  return has_frame_count(kind) ? kCountBytes : 0;
}

void write_offer(FixedWriter& out, const LinkOffer& offer) {
  out.write(offer.refit.epoch.number);
  out.write(offer.refit.epoch.coordinator.value);
  out.write(offer.refit.attempt);
  out.write(offer.tree.value);
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
  offer.tree.value = in.read<std::uint32_t>();
  offer.protocol = in.read<std::uint32_t>();
  offer.first_slot = in.read<std::uint32_t>();
  offer.slot_bytes = in.read<std::uint32_t>();
  offer.incarnation = static_cast<std::uint8_t>(in.read<std::uint32_t>());
  offer.memory.address = in.read<std::uint64_t>();
  offer.memory.key = in.read<std::uint64_t>();
  in.read<std::uint32_t>();
  return offer;
}

Error not_a_message(std::size_t bytes) {
  return failure(
      ErrorCode::kProtocol, Stage::kRelay,
      "fabric control message of " + std::to_string(bytes) + " bytes is not one of version 1");
}

}  // namespace

std::span<const std::byte> encode_control(const ControlMessage& message, ControlBytes& room) {
  FixedWriter out(room.data());
  write_header(
      out, {static_cast<std::uint8_t>(message.kind), static_cast<std::uint16_t>(message.slot_count),
            message.sender, message.target, message.link, message.number, message.skipped});
  if (has_offer(message.kind)) write_offer(out, message.offer);
  if (has_frame_count(message.kind)) out.write(message.frame_count.value_or(kNotKnown));
  for (std::uint32_t i = 0; i < message.slot_count; ++i) {
    const SlotWord& word = message.slots[i];
    out.write(((word.generation & kGenerationMask) << 8) |
              (word.previous_rejected ? kRejectedBit : 0U) | word.state);
  }
  return seal_control(out, room);
}

Result<ControlMessage> decode_control(std::span<const std::byte> bytes) {
  ControlHeader header;
  if (!read_header(bytes, header)) return not_a_message(bytes.size());
  ControlMessage message;
  message.kind = static_cast<ControlKind>(header.kind);
  message.slot_count = header.count;
  message.sender = header.sender;
  message.target = header.target;
  message.link = header.link;
  message.number = header.number;
  message.skipped = header.flags;
  if (header.kind < 1 || header.kind > 5 || message.slot_count > kSlotsPerLinkMax ||
      bytes.size() != kControlHeaderBytes + body_bytes(message.kind) + 4 * message.slot_count) {
    return not_a_message(bytes.size());
  }
  wire::ByteReader in(bytes.subspan(kControlHeaderBytes));
  if (has_offer(message.kind)) message.offer = read_offer(in);
  if (has_frame_count(message.kind)) {
    const auto count = in.read<std::uint32_t>();
    if (count != kNotKnown) message.frame_count = count;
  }
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
