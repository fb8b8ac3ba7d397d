// SPDX-License-Identifier: Apache-2.0
#include "transport/relay/control_message.hpp"

#include <gtest/gtest.h>

#include <cstdio>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "transport/relay/frame_ledger.hpp"

namespace weft::transport {
namespace {

std::string hex_of(std::span<const std::byte> bytes) {
  std::string text;
  char digits[3];
  for (const std::byte byte : bytes) {
    std::snprintf(digits, sizeof(digits), "%02x", static_cast<unsigned>(byte));
    text += digits;
  }
  return text;
}

ControlMessage grants_example() {
  ControlMessage message;
  message.kind = ControlKind::kGrants;
  message.sender = ProcessId{0x1111'2222'3333'4444};
  message.target = ProcessId{0x5555'6666'7777'8888};
  message.link = 0x0102'0304'0506'0708;
  message.number = 9;
  message.slot_count = 3;
  message.slots[0] = {5, static_cast<std::uint8_t>(GrantState::kGranted), false};
  message.slots[1] = {6, static_cast<std::uint8_t>(GrantState::kTaken), false};
  message.slots[2] = {7, static_cast<std::uint8_t>(GrantState::kGranted), true};
  return message;
}

ControlMessage hello_example() {
  ControlMessage message = grants_example();
  message.kind = ControlKind::kHello;
  message.offer = {{{3, ProcessId{4}}, 5}, TreeIndex{6}, 0x8000'0001, 8, 1 << 20, 200, {0xAABB, 0}};
  return message;
}

ControlMessage closed_example(std::optional<std::uint32_t> frame_count) {
  ControlMessage message = grants_example();
  message.kind = ControlKind::kClosed;
  message.frame_count = frame_count;
  return message;
}

TEST(ControlMessage, AParentSaysHowManyFramesThereAreOnceItKnows) {
  for (const std::optional<std::uint32_t> count : {std::optional<std::uint32_t>{}, {0U}, {7U}}) {
    ControlBytes room;
    const auto decoded = decode_control(encode_control(closed_example(count), room));
    ASSERT_TRUE(decoded);
    EXPECT_EQ(decoded->frame_count, count);
    EXPECT_EQ(decoded->slots[1].generation, 6U);
  }
}

// docs/formats/fabric-wire.md prints these bytes.
TEST(ControlMessage, HasTheBytesOfTheWorkedExample) {
  ControlBytes room;
  EXPECT_EQ(hex_of(encode_control(grants_example(), room)),
            "57464354010203004444333322221111888877776666555508070605040302010900000000000000"
            "4f2d8f3a4e03009a"
            "010500000206000081070000");
}

TEST(ControlMessage, DecodesToWhatWasEncoded) {
  for (const ControlMessage& message : {grants_example(), hello_example()}) {
    ControlBytes room;
    const auto decoded = decode_control(encode_control(message, room));
    ASSERT_TRUE(decoded);
    EXPECT_EQ(decoded->kind, message.kind);
    EXPECT_EQ(decoded->sender, message.sender);
    EXPECT_EQ(decoded->target, message.target);
    EXPECT_EQ(decoded->link, message.link);
    EXPECT_EQ(decoded->number, message.number);
    ASSERT_EQ(decoded->slot_count, 3U);
    EXPECT_EQ(decoded->slots[2].generation, 7U);
    EXPECT_EQ(decoded->slots[2].state, 1U);
    EXPECT_TRUE(decoded->slots[2].previous_rejected);
    EXPECT_EQ(decoded->offer.refit, message.offer.refit);
    EXPECT_EQ(decoded->offer.memory, message.offer.memory);
    EXPECT_EQ(decoded->offer.incarnation, message.offer.incarnation);
    EXPECT_EQ(decoded->offer.first_slot, message.offer.first_slot);
  }
}

TEST(ControlMessage, RefusesEveryTruncationAndEveryFlippedBit) {
  ControlBytes room;
  const auto bytes = encode_control(hello_example(), room);
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    ASSERT_FALSE(decode_control(bytes.first(length))) << length;
  }
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    room[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    ASSERT_FALSE(decode_control(bytes)) << bit;
    room[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
  }
}

TEST(ControlMessage, RefusesRandomBytesOfEveryLength) {
  std::mt19937_64 random(1);
  std::vector<std::byte> bytes(600);
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    const auto decoded = decode_control(std::span(bytes).first(length));
    ASSERT_FALSE(decoded);
    EXPECT_EQ(decoded.error().code, ErrorCode::kProtocol);
  }
}

TEST(Doorbell, CarriesIncarnationGenerationAndSlotIn32Bits) {
  const Doorbell bell{0xAB, 0x123'456, 0xFFF};
  EXPECT_EQ(bell.pack(), 0xAB45'6FFFU);
  const Doorbell back = Doorbell::unpack(bell.pack());
  EXPECT_EQ(back.incarnation, 0xAB);
  EXPECT_EQ(back.generation, 0x456U);
  EXPECT_EQ(back.slot, 0xFFFU);
}

TEST(FrameLedger, TellsNewRepeatedAndConflictingFramesApart) {
  FrameLedger ledger;
  for (const std::uint32_t sequence : {0U, 4095U, 4096U, 1'000'000U, FrameLedger::kFramesMax - 1}) {
    EXPECT_EQ(ledger.note({sequence}, 0), FrameLedger::Entry::kNew);
    EXPECT_EQ(ledger.note({sequence}, 0), FrameLedger::Entry::kRepeated);
    EXPECT_EQ(ledger.note({sequence}, 5), FrameLedger::Entry::kConflict);
  }
  EXPECT_EQ(ledger.note({FrameLedger::kFramesMax}, 1), FrameLedger::Entry::kBeyond);
}

}  // namespace
}  // namespace weft::transport
