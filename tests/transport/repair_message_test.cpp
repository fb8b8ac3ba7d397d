// SPDX-License-Identifier: Apache-2.0
// Repair messages as bytes: what goes in comes out, anything else is refused.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "transport/relay/repair_message.hpp"

namespace weft::transport {
namespace {

RepairMessage sample(RepairKind kind) {
  RepairMessage message;
  message.kind = kind;
  message.sender = ProcessId{11};
  message.target = ProcessId{12};
  message.refit = {{7, ProcessId{8}}, 9};
  message.producer = ProducerIndex{3};
  message.number = 0xFFFF'FFFE;
  if (kind == RepairKind::kRequest) {
    message.held.first = 40;
    message.held.byte_count = kRepairWindowFrames / 8;
    message.held.bits[0] = std::byte{0b1010'0101};
    message.held.bits[255] = std::byte{0x80};
    return message;
  }
  message.more = kind == RepairKind::kOffer;
  message.offer_count = kRepairOffersMax;
  for (std::uint32_t i = 0; i < kRepairOffersMax; ++i) {
    message.offers[i] = {FrameSequence{i * 7}, 1000 + i, 77 + i, {i * 4096ULL, ~std::uint64_t{i}}};
  }
  return message;
}

class RepairMessages : public testing::TestWithParam<RepairKind> {};

TEST_P(RepairMessages, ComeBackAsTheyWere) {
  const RepairMessage sent = sample(GetParam());
  ControlBytes room;
  const auto bytes = encode_repair(sent, room);
  EXPECT_TRUE(is_repair_message(bytes));
  EXPECT_FALSE(decode_control(bytes));
  const auto heard = decode_repair(bytes);
  ASSERT_TRUE(heard) << heard.error().message();
  EXPECT_EQ(heard->sender, sent.sender);
  EXPECT_EQ(heard->target, sent.target);
  EXPECT_EQ(heard->refit, sent.refit);
  EXPECT_EQ(heard->producer, sent.producer);
  EXPECT_EQ(heard->number, sent.number);
  EXPECT_EQ(heard->more, sent.more);
  EXPECT_EQ(heard->held.first, sent.held.first);
  EXPECT_EQ(heard->held.bits, sent.held.bits);
  ASSERT_EQ(heard->offer_count, sent.offer_count);
  for (std::uint32_t i = 0; i < sent.offer_count; ++i) {
    EXPECT_EQ(heard->offers[i].sequence, sent.offers[i].sequence);
    EXPECT_EQ(heard->offers[i].ticket, sent.offers[i].ticket);
    if (GetParam() != RepairKind::kOffer) continue;
    EXPECT_EQ(heard->offers[i].frame_bytes, sent.offers[i].frame_bytes);
    EXPECT_EQ(heard->offers[i].memory, sent.offers[i].memory);
  }
}

TEST_P(RepairMessages, DamagedOrCutAreRefused) {
  ControlBytes room;
  const auto bytes = encode_repair(sample(GetParam()), room);
  const std::vector<std::byte> good(bytes.begin(), bytes.end());
  for (std::size_t length = 0; length < good.size(); ++length) {
    EXPECT_FALSE(decode_repair(std::span(good).first(length))) << length;
  }
  for (std::size_t at = 0; at < good.size(); ++at) {
    std::vector<std::byte> bad = good;
    bad[at] ^= std::byte{0x10};
    EXPECT_FALSE(decode_repair(bad)) << at;
  }
  std::vector<std::byte> longer = good;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(decode_repair(longer));
}

INSTANTIATE_TEST_SUITE_P(Kinds, RepairMessages,
                         testing::Values(RepairKind::kRequest, RepairKind::kOffer,
                                         RepairKind::kDone));

TEST(RepairMessages, RandomBytesAreRefused) {
  std::mt19937 random(5);
  for (int i = 0; i < 20'000; ++i) {
    std::vector<std::byte> bytes(random() % 600);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    EXPECT_FALSE(decode_repair(bytes));
  }
}

TEST(HeldFrames, WhatIsBelowTheFirstMissingIsHeldAndWhatIsBeyondTheWindowIsNot) {
  const HeldFrames held = sample(RepairKind::kRequest).held;
  EXPECT_TRUE(held.holds(39));
  EXPECT_TRUE(held.holds(40));
  EXPECT_FALSE(held.holds(41));
  EXPECT_TRUE(held.holds(40 + kRepairWindowFrames - 1));
  EXPECT_FALSE(held.holds(40 + kRepairWindowFrames));
}

}  // namespace
}  // namespace weft::transport
