// SPDX-License-Identifier: Apache-2.0
#include "transport/relay/repair_message.hpp"

#include <string>

#include "transport/relay/control_bytes.hpp"

namespace weft::transport {
namespace {

constexpr std::uint32_t kMoreFlag = 1;
constexpr std::size_t kRefitBytes = 20 + 4;
constexpr std::size_t kOfferBytes = 28;
constexpr std::size_t kDoneBytes = 8;
static_assert(kControlHeaderBytes + kRefitBytes + 4 + kRepairWindowFrames / 8 <= kControlBytesMax);
static_assert(kControlHeaderBytes + kRefitBytes + kRepairOffersMax * kOfferBytes <=
              kControlBytesMax);

Error not_a_message(std::size_t bytes) {
  return failure(ErrorCode::kProtocol, Stage::kRelay,
                 "repair message of " + std::to_string(bytes) + " bytes is not one of version 1");
}

std::size_t body_bytes(RepairKind kind, std::uint16_t count) {
  switch (kind) {
    case RepairKind::kRequest:
      return sizeof(std::uint32_t) + count;
    case RepairKind::kOffer:
      return count * kOfferBytes;
    case RepairKind::kDone:
      return count * kDoneBytes;
  }
  return 0;
}

std::uint16_t count_max(RepairKind kind) {
  return kind == RepairKind::kRequest ? kRepairWindowFrames / 8 : kRepairOffersMax;
}

void write_offer(FixedWriter& out, const FrameOffer& offer, bool whole) {
  out.write(offer.sequence.value);
  out.write(offer.ticket);
  if (!whole) return;
  out.write(offer.frame_bytes);
  out.write(offer.memory.address);
  out.write(offer.memory.key);
}

void read_offer(wire::ByteReader& in, FrameOffer& offer, bool whole) {
  offer.sequence.value = in.read<std::uint32_t>();
  offer.ticket = in.read<std::uint32_t>();
  if (!whole) return;
  offer.frame_bytes = in.read<std::uint32_t>();
  offer.memory.address = in.read<std::uint64_t>();
  offer.memory.key = in.read<std::uint64_t>();
}

}  // namespace

bool is_repair_message(std::span<const std::byte> bytes) {
  if (bytes.size() <= kControlKindOffset) return false;
  const auto kind = std::to_integer<std::uint8_t>(bytes[kControlKindOffset]);
  return kind >= static_cast<std::uint8_t>(RepairKind::kRequest) &&
         kind <= static_cast<std::uint8_t>(RepairKind::kDone);
}

std::span<const std::byte> encode_repair(const RepairMessage& message, ControlBytes& room) {
  FixedWriter out(room.data());
  ControlHeader header;
  header.kind = static_cast<std::uint8_t>(message.kind);
  const bool request = message.kind == RepairKind::kRequest;
  header.count =
      static_cast<std::uint16_t>(request ? message.held.byte_count : message.offer_count);
  header.sender = message.sender;
  header.target = message.target;
  header.number = message.number;
  header.flags = message.more ? kMoreFlag : 0;
  write_header(out, header);
  out.write(message.refit.epoch.number);
  out.write(message.refit.epoch.coordinator.value);
  out.write(message.refit.attempt);
  out.write(message.producer.value);
  if (request) {
    out.write(message.held.first);
    out.write_bytes(std::span(message.held.bits).first(message.held.byte_count));
    return seal_control(out, room);
  }
  for (std::uint32_t i = 0; i < message.offer_count; ++i) {
    write_offer(out, message.offers[i], message.kind == RepairKind::kOffer);
  }
  return seal_control(out, room);
}

Result<RepairMessage> decode_repair(std::span<const std::byte> bytes) {
  ControlHeader header;
  if (!is_repair_message(bytes) || !read_header(bytes, header)) return not_a_message(bytes.size());
  RepairMessage message;
  message.kind = static_cast<RepairKind>(header.kind);
  const bool whole =
      header.count <= count_max(message.kind) &&
      bytes.size() == kControlHeaderBytes + kRefitBytes + body_bytes(message.kind, header.count);
  if (!whole) return not_a_message(bytes.size());
  message.sender = header.sender;
  message.target = header.target;
  message.number = header.number;
  message.more = (header.flags & kMoreFlag) != 0;
  wire::ByteReader in(bytes.subspan(kControlHeaderBytes));
  message.refit = in.read_refit_id();
  message.producer.value = in.read<std::uint32_t>();
  if (message.kind == RepairKind::kRequest) {
    message.held.first = in.read<std::uint32_t>();
    message.held.byte_count = header.count;
    for (std::uint32_t i = 0; i < header.count; ++i) {
      message.held.bits[i] = static_cast<std::byte>(in.read<std::uint8_t>());
    }
    return message;
  }
  message.offer_count = header.count;
  for (std::uint32_t i = 0; i < header.count; ++i) {
    read_offer(in, message.offers[i], message.kind == RepairKind::kOffer);
  }
  return message;
}

}  // namespace weft::transport
