// SPDX-License-Identifier: Apache-2.0
#include "transport/control/message_codec.hpp"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "control/sample_messages.hpp"
#include "weft/base/limits.hpp"
#include "weft/control.pb.h"

namespace weft::transport {
namespace {

namespace pb = weft::control::v1;

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

TEST(MessageCodec, EveryMemberMessageComesBackEqual) {
  std::set<std::size_t> seen;
  for (const wire::MemberMessage& message : tests::sample_member_messages()) {
    const auto decoded = decode_member_message(bytes_of(encode(message)));
    ASSERT_TRUE(decoded) << message.index() << ": " << decoded.error().message();
    EXPECT_TRUE(*decoded == message) << "alternative " << message.index();
    seen.insert(message.index());
  }
  EXPECT_EQ(seen.size(), std::variant_size_v<wire::MemberMessage>);
}

TEST(MessageCodec, EveryCoordinatorMessageComesBackEqual) {
  std::set<std::size_t> seen;
  for (const wire::CoordinatorMessage& message : tests::sample_coordinator_messages()) {
    const auto decoded = decode_coordinator_message(bytes_of(encode(message)));
    ASSERT_TRUE(decoded) << message.index() << ": " << decoded.error().message();
    EXPECT_TRUE(*decoded == message) << "alternative " << message.index();
    seen.insert(message.index());
  }
  EXPECT_EQ(seen.size(), std::variant_size_v<wire::CoordinatorMessage>);
}

TEST(MessageCodec, EveryMemberStateComesBackEqual) {
  for (int state = 1; state <= static_cast<int>(wire::MemberState::kRehashing); ++state) {
    wire::Hello hello = tests::sample_hello();
    hello.state = static_cast<wire::MemberState>(state);
    const auto decoded = decode_member_message(bytes_of(encode(wire::MemberMessage(hello))));
    // Only the coordinator says that a member is lost.
    EXPECT_EQ(decoded.has_value(), hello.state != wire::MemberState::kLost) << state;
  }
}

TEST(MessageCodec, FleetStatusComesBackEqual) {
  FleetStatus status{FleetId{{1, 2}}, {3, ProcessId{4}}, tests::sample_content(5), {}, {}, {}};
  status.members.push_back({"a", wire::Role::kAgent, wire::MemberState::kLost,
                            tests::sample_content(6), tests::sample_cause(), "eu", true, false,
                            true, ProcessId{7}, 8, 9, 10, "b",
                            wire::ScrubReport{90'000, 3, 17, 4000, 1}});
  status.members.push_back({"b", wire::Role::kProducer, wire::MemberState::kClean,
                            tests::sample_content(1), std::nullopt, "", false, true, false,
                            ProcessId{1}, 0, 0, 0, "", std::nullopt});
  const auto without_refit = decode_fleet_status(bytes_of(encode(status)));
  ASSERT_TRUE(without_refit);
  EXPECT_TRUE(*without_refit == status);
  status.refit = RefitStatus{
      tests::sample_refit(), "streaming", Version{1}, Version{2}, "star", 3, 4, 5, 6, 7, 8};
  status.last = std::get<wire::RefitOutcome>(tests::sample_coordinator_messages()[7]);
  const auto with_refit = decode_fleet_status(bytes_of(encode(status)));
  ASSERT_TRUE(with_refit);
  EXPECT_TRUE(*with_refit == status);
}

TEST(MessageCodec, EveryPrefixOfAMessageIsRefused) {
  const std::string whole = encode(wire::MemberMessage(tests::sample_hello()));
  for (std::size_t length = 0; length < whole.size(); ++length) {
    const std::string part = whole.substr(0, length);
    const auto decoded = decode_member_message(bytes_of(part));
    ASSERT_FALSE(decoded) << length;
    EXPECT_EQ(decoded.error().code, ErrorCode::kProtocol);
  }
}

TEST(MessageCodec, RandomBytesGiveProtocolErrorsOnly) {
  const std::uint64_t seed = 20'261'130;
  std::mt19937_64 random(seed);
  for (int round = 0; round < 20'000; ++round) {
    std::string bytes(random() % 200, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    const auto member = decode_member_message(bytes_of(bytes));
    const auto coordinator = decode_coordinator_message(bytes_of(bytes));
    ASSERT_TRUE(member || member.error().code == ErrorCode::kProtocol) << "seed " << seed;
    ASSERT_TRUE(coordinator || coordinator.error().code == ErrorCode::kProtocol) << "seed " << seed;
  }
}

TEST(MessageCodec, FlippedBytesNeverCrash) {
  std::mt19937_64 random(7);
  for (const wire::CoordinatorMessage& message : tests::sample_coordinator_messages()) {
    const std::string whole = encode(message);
    for (int round = 0; round < 2000 && !whole.empty(); ++round) {
      std::string bytes = whole;
      for (int flips = 0; flips < 3; ++flips) {
        bytes[random() % bytes.size()] = static_cast<char>(random());
      }
      const auto decoded = decode_coordinator_message(bytes_of(bytes));
      ASSERT_TRUE(decoded || decoded.error().code == ErrorCode::kProtocol);
    }
  }
}

TEST(MessageCodec, ForeignObjectFormatsAreRefused) {
  using namespace std::string_literals;
  const std::string pickle =
      "\x80\x04\x95\x1a\0\0\0\0\0\0\0\x8c\x05posix\x94\x8c\x06system\x94\x93."s;
  const std::string archive = "PK\x03\x04\x14\0\0\0\x08\0"s;
  const std::string yaml = "!!python/object/apply:os.system ['true']";
  for (const std::string& bytes : {pickle, archive, yaml}) {
    const auto decoded = decode_member_message(bytes_of(bytes));
    ASSERT_FALSE(decoded);
    EXPECT_EQ(decoded.error().code, ErrorCode::kProtocol);
  }
}

// Changes one thing in the protobuf of a valid message and expects it to be refused.
template <typename Change>
void expect_member_refused(const wire::MemberMessage& message, Change&& change, const char* what) {
  pb::MemberMessage proto;
  ASSERT_TRUE(proto.ParseFromString(encode(message)));
  change(proto);
  const auto decoded = decode_member_message(bytes_of(proto.SerializeAsString()));
  ASSERT_FALSE(decoded) << what;
  EXPECT_EQ(decoded.error().code, ErrorCode::kProtocol) << what;
  EXPECT_NE(decoded.error().detail.find(what), std::string::npos) << decoded.error().detail;
}

TEST(MessageCodec, FieldsOutOfBoundsAreRefusedByName) {
  const wire::MemberMessage hello = tests::sample_hello();
  const auto endpoint = [](pb::MemberMessage& m) { return m.mutable_hello()->mutable_endpoint(); };
  expect_member_refused(
      hello, [](auto& m) { m.mutable_hello()->set_role(pb::ROLE_UNSPECIFIED); }, "role");
  expect_member_refused(
      hello, [](auto& m) { m.mutable_hello()->set_state(static_cast<pb::MemberState>(99)); },
      "state");
  expect_member_refused(
      hello, [](auto& m) { m.mutable_hello()->clear_content(); }, "content");
  expect_member_refused(
      hello, [&](auto& m) { endpoint(m)->clear_member_id(); }, "id is empty");
  expect_member_refused(
      hello, [&](auto& m) { endpoint(m)->set_member_id(std::string(256, 'x')); }, "id is too long");
  expect_member_refused(
      hello, [&](auto& m) { endpoint(m)->mutable_rails(0)->set_address(std::string(129, 'x')); },
      "rail address");
  expect_member_refused(
      hello,
      [&](auto& m) {
        for (int i = 0; i < 64; ++i) endpoint(m)->add_rails();
      },
      "too many rails");
  expect_member_refused(
      hello, [](auto& m) { m.mutable_hello()->mutable_cause()->set_code(24); }, "error code");
  expect_member_refused(
      hello, [](auto& m) { m.Clear(); }, "no body");
  const wire::MemberMessage begin = tests::sample_member_messages()[3];
  expect_member_refused(
      begin, [](auto& m) { m.mutable_begin()->set_producer_count(0); }, "producer count");
  expect_member_refused(
      begin, [](auto& m) { m.mutable_begin()->set_producer(2); }, "beyond the count");
  expect_member_refused(
      begin, [](auto& m) { m.mutable_begin()->set_shape(std::string(128, 'k')); }, "shape");
}

template <typename Change>
void expect_plan_refused(Change&& change, const char* what) {
  pb::CoordinatorMessage proto;
  ASSERT_TRUE(proto.ParseFromString(encode(wire::CoordinatorMessage(tests::sample_plan()))));
  change(*proto.mutable_plan());
  const auto decoded = decode_coordinator_message(bytes_of(proto.SerializeAsString()));
  ASSERT_FALSE(decoded) << what;
  EXPECT_NE(decoded.error().detail.find(what), std::string::npos) << decoded.error().detail;
}

TEST(MessageCodec, PlansWhoseIndicesLeaveTheNodesAreRefused) {
  const auto place = [](pb::Plan& plan, int node) {
    return plan.mutable_trees(0)->mutable_nodes(node);
  };
  expect_plan_refused([&](auto& p) { place(p, 1)->set_parent(3); }, "parent");
  expect_plan_refused([&](auto& p) { place(p, 1)->set_children(0, 3); }, "child");
  expect_plan_refused([&](auto& p) { p.mutable_trees(0)->add_nodes(); }, "every node");
  expect_plan_refused([&](auto& p) { p.set_producer_count(4); }, "fewer nodes");
  expect_plan_refused(
      [&](auto& p) {
        for (int i = 0; i < 4; ++i) place(p, 2)->add_children(0);
      },
      "too many children");
}

TEST(MessageCodec, MemberMessagesAreSmall) {
  const std::string large(limits::kMemberMessageBytesMax + 1, '\0');
  const auto decoded = decode_member_message(bytes_of(large));
  ASSERT_FALSE(decoded);
  EXPECT_EQ(decoded.error().code, ErrorCode::kProtocol);
}

TEST(MessageCodec, DetailsThatAreNoTextStillArrive) {
  wire::AbortRequest request{
      tests::sample_refit(), 0, {ErrorCode::kFormat, "file \xff\xc0\xaf.bin"}};
  auto decoded = decode_member_message(bytes_of(encode(wire::MemberMessage(request))));
  ASSERT_TRUE(decoded) << decoded.error().message();
  EXPECT_EQ(std::get<wire::AbortRequest>(*decoded).cause.detail, "file ???.bin");
  request.cause.detail.assign(10'000, 'x');
  decoded = decode_member_message(bytes_of(encode(wire::MemberMessage(request))));
  ASSERT_TRUE(decoded) << decoded.error().message();
  EXPECT_EQ(std::get<wire::AbortRequest>(*decoded).cause.detail.size(),
            limits::kErrorDetailBytesMax);
}

TEST(CleanText, KeepsWholeSequencesAndReplacesTheRest) {
  EXPECT_EQ(clean_text("grün € 𝄞", 100), "grün € 𝄞");
  EXPECT_EQ(clean_text("€€", 5), "€");
  EXPECT_EQ(clean_text("\xed\xa0\x80", 10), "???");       // a surrogate
  EXPECT_EQ(clean_text("\xf4\x90\x80\x80", 10), "????");  // above U+10FFFF
  EXPECT_EQ(clean_text("a\xe2\x82", 10), "a??");
  EXPECT_EQ(clean_text("", 10), "");
}

}  // namespace
}  // namespace weft::transport
