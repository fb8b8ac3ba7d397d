// SPDX-License-Identifier: Apache-2.0
// Bodies that are put with the coordinator and fetched from it.
#include "control/control_fixture.hpp"
#include "transport/control/body_shelf.hpp"
#include "weft/base/limits.hpp"
#include "weft/wire/digest.hpp"

namespace weft::transport {
namespace {

using tests::ControlTest;

std::vector<std::byte> body_of(std::size_t bytes, int seed) {
  std::vector<std::byte> body(bytes);
  for (std::size_t i = 0; i < bytes; ++i) {
    body[i] = static_cast<std::byte>(i * 31 + i / 251 + static_cast<std::size_t>(seed));
  }
  return body;
}

TEST_F(ControlTest, ALatticeArrivesAsItWasPut) {
  const auto server = serve(quick_server());
  ControlCallOptions call;
  call.coordinator = server->address();
  for (const std::size_t bytes :
       {std::size_t{1}, std::size_t{limits::kLatticePieceBytesMax}, std::size_t{300'001}}) {
    const auto body = body_of(bytes, 1);
    const Digest digest = wire::digest128(body);
    const auto absent = fetch_lattice(call, digest);
    ASSERT_FALSE(absent);
    EXPECT_EQ(absent.error().code, ErrorCode::kUnsupported);
    for (int i = 0; i < 2; ++i) {
      const Status put = put_lattice(call, digest, body);
      ASSERT_TRUE(put) << put.error().message();
    }
    const auto fetched = fetch_lattice(call, digest);
    ASSERT_TRUE(fetched) << fetched.error().message();
    EXPECT_EQ(*fetched, body);
  }
}

TEST_F(ControlTest, ABodyOfAnotherDigestIsRefused) {
  const auto server = serve(quick_server());
  ControlCallOptions call;
  call.coordinator = server->address();
  const auto body = body_of(100'000, 1);
  const Status put = put_lattice(call, wire::digest128(body_of(100'000, 2)), body);
  ASSERT_FALSE(put);
  EXPECT_EQ(put.error().code, ErrorCode::kCorruptPayload);
}

TEST(BodyShelf, GivesNothingBeforeAllOfItIsThere) {
  BodyShelf shelf;
  const auto body = body_of(1000, 1);
  const Digest digest = wire::digest128(body);
  const auto piece = std::span(body);
  ASSERT_TRUE(shelf.put(digest, 1000, 0, piece.first(600)));
  EXPECT_FALSE(shelf.get(digest, 0));
  ASSERT_TRUE(shelf.put(digest, 1000, 0, piece.first(300)));  // another producer begins
  EXPECT_FALSE(shelf.put(digest, 1000, 700, piece.subspan(700)));
  EXPECT_FALSE(shelf.put(digest, 1001, 600, piece.subspan(600)));
  ASSERT_TRUE(shelf.put(digest, 1000, 300, piece.subspan(300)));
  const auto whole = shelf.get(digest, 0);
  ASSERT_TRUE(whole);
  EXPECT_EQ(whole->bytes, body);
  EXPECT_EQ(shelf.get(digest, 999)->bytes.size(), 1U);
  EXPECT_FALSE(shelf.get(digest, 1000));
}

TEST(BodyShelf, BoundsWhatItKeeps) {
  BodyShelf shelf;
  const auto body = body_of(10, 1);
  const std::uint64_t huge = std::uint64_t{limits::kLatticeBytesMax} + 1;
  EXPECT_FALSE(shelf.put(wire::digest128(body), huge, 0, body));
  EXPECT_FALSE(shelf.put(wire::digest128(body), 0, 0, {}));
  EXPECT_FALSE(shelf.put(wire::digest128(body), 5, 0, body));
  EXPECT_FALSE(shelf.put(wire::digest128(body), 20, ~std::uint64_t{0}, body));
  for (int i = 0; i < 6; ++i) {
    const auto each = body_of(100, i);
    ASSERT_TRUE(shelf.put(wire::digest128(each), 100, 0, each));
  }
  EXPECT_FALSE(shelf.get(wire::digest128(body_of(100, 1)), 0));
  EXPECT_TRUE(shelf.get(wire::digest128(body_of(100, 2)), 0));
}

}  // namespace
}  // namespace weft::transport
