// SPDX-License-Identifier: Apache-2.0
// One suite for every fabric: what the relay relies on, and nothing more.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "support/fake_fabric.hpp"
#include "transport/fabric/ofi_fabric.hpp"

namespace weft::transport {
namespace {

using namespace std::chrono_literals;
constexpr auto kDeadline = 20s;

// Threads: one at a time.
class FakePair {
 public:
  std::unique_ptr<Fabric> open() { return network_.open(); }
  void advance() { network_.step(); }

 private:
  FakeNetwork network_{{.seed = 7}};
};

// Threads: one at a time.
template <const char* kProvider>
class OfiPair {
 public:
  std::unique_ptr<Fabric> open() {
    FabricOptions options;
    options.provider = kProvider;
    options.interface = "lo";
    options.address = "127.0.0.1";
    NullEventSink events;
    auto rail = open_fabric(options, events);
    EXPECT_TRUE(rail) << rail.error().message();
    return rail ? std::move(*rail) : nullptr;
  }
  void advance() {}
};
constexpr char kNet[] = "net";
constexpr char kTcpRxm[] = "tcp;ofi_rxm";

template <typename Pair>
class FabricContract : public testing::Test {
 protected:
  void SetUp() override {
    near_ = pair_.open();
    far_ = pair_.open();
    ASSERT_TRUE(near_ && far_);
    to_far_ = *near_->insert_peer(far_->local_address());
    to_near_ = *far_->insert_peer(near_->local_address());
  }

  // Polls both sides, keeping what is seen, until `done` or the deadline.
  bool until(const std::function<bool()>& done) {
    const auto deadline = std::chrono::steady_clock::now() + kDeadline;
    while (!done()) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      pair_.advance();
      drain(*near_, near_events_, near_messages_);
      if (far_ != nullptr) drain(*far_, far_events_, far_messages_);
    }
    return true;
  }
  bool post(const std::function<Posted()>& attempt) {
    Posted posted = Posted::kAgain;
    return until([&] { return (posted = attempt()) != Posted::kAgain; }) &&
           posted == Posted::kPosted;
  }
  static std::size_t count(const std::vector<FabricEvent>& events, FabricEventKind kind) {
    std::size_t found = 0;
    for (const FabricEvent& event : events) found += event.kind == kind ? 1 : 0;
    return found;
  }

  Pair pair_;
  std::unique_ptr<Fabric> near_;
  std::unique_ptr<Fabric> far_;
  PeerHandle to_far_;
  PeerHandle to_near_;
  std::vector<FabricEvent> near_events_;
  std::vector<FabricEvent> far_events_;
  std::vector<std::string> near_messages_;
  std::vector<std::string> far_messages_;

 private:
  static void drain(Fabric& rail, std::vector<FabricEvent>& events,
                    std::vector<std::string>& messages) {
    std::array<FabricEvent, 16> seen;
    const std::size_t stored = rail.poll(seen);
    for (std::size_t i = 0; i < stored; ++i) {
      events.push_back(seen[i]);
      if (seen[i].kind == FabricEventKind::kMessage) {
        messages.emplace_back(reinterpret_cast<const char*>(seen[i].message.data()),
                              seen[i].message.size());
      }
    }
  }
};

using Fabrics = testing::Types<FakePair, OfiPair<kNet>, OfiPair<kTcpRxm>>;
TYPED_TEST_SUITE(FabricContract, Fabrics);

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

TYPED_TEST(FabricContract, AddressFitsAndFactsAreFilled) {
  EXPECT_FALSE(this->near_->local_address().empty());
  EXPECT_LE(this->near_->local_address().size(), limits::kFabricAddressBytesMax);
  EXPECT_NE(this->near_->local_address(), this->far_->local_address());
  const FabricFacts& facts = this->near_->facts();
  EXPECT_FALSE(facts.provider.empty());
  EXPECT_GE(facts.immediate_bytes, 4U);
  EXPECT_GT(facts.writes_in_flight_max, 0U);
  EXPECT_GE(facts.write_bytes_max, limits::kSlotBytes);
}

TYPED_TEST(FabricContract, MessagesArriveInBothDirectionsUpToTheirLimit) {
  const std::string large(limits::kFabricControlBytesMax, 'x');
  ASSERT_TRUE(this->post([&] { return this->near_->post_send(this->to_far_, bytes_of(large)); }));
  ASSERT_TRUE(this->until([&] { return this->far_messages_.size() == 1; }));
  EXPECT_EQ(this->far_messages_[0], large);
  ASSERT_TRUE(this->post([&] { return this->far_->post_send(this->to_near_, bytes_of("ok")); }));
  ASSERT_TRUE(this->until([&] { return this->near_messages_.size() == 1; }));
  EXPECT_EQ(this->near_messages_[0], "ok");
}

TYPED_TEST(FabricContract, MoreMessagesThanBuffersAllArriveWhenPolled) {
  constexpr std::size_t kMessages = 300;
  for (std::size_t i = 0; i < kMessages; ++i) {
    const std::string text = "message " + std::to_string(i);
    ASSERT_TRUE(this->post([&] { return this->near_->post_send(this->to_far_, bytes_of(text)); }));
    ASSERT_TRUE(this->until([&] { return this->far_messages_.size() + 32 > i; }));
  }
  EXPECT_TRUE(this->until([&] { return this->far_messages_.size() == kMessages; }));
}

TYPED_TEST(FabricContract, RefusesEmptyAndOversizedMessages) {
  const std::string large(limits::kFabricControlBytesMax + 1, 'x');
  EXPECT_EQ(this->near_->post_send(this->to_far_, bytes_of(large)), Posted::kRefused);
  EXPECT_EQ(this->near_->post_send(this->to_far_, {}), Posted::kRefused);
}

TYPED_TEST(FabricContract, AWriteLandsAtItsOffsetAndRingsWithItsImmediate) {
  std::vector<std::byte> source(1 << 20, std::byte{0x5A});
  std::vector<std::byte> target(3 << 20);
  const auto local = this->near_->register_memory(source, MemoryAccess::kLocal);
  const auto remote = this->far_->register_memory(target, MemoryAccess::kRemoteWrite);
  ASSERT_TRUE(local && remote);
  RemoteMemory where = this->far_->remote_memory(*remote);
  where.address += 1 << 20;
  ASSERT_TRUE(this->post([&] {
    return this->near_->post_write({this->to_far_, *local, source, where, 0xFEDC'BA98, 77});
  }));
  ASSERT_TRUE(this->until([&] {
    return this->count(this->far_events_, FabricEventKind::kDoorbell) == 1 &&
           this->count(this->near_events_, FabricEventKind::kCompleted) == 1;
  }));
  EXPECT_EQ(this->far_events_[0].immediate, 0xFEDC'BA98U);
  EXPECT_EQ(this->near_events_[0].cookie, 77U);
  EXPECT_EQ(std::memcmp(target.data() + (1 << 20), source.data(), source.size()), 0);
  EXPECT_EQ(target[(1 << 20) - 1], std::byte{0});
  EXPECT_EQ(target[2 << 20], std::byte{0});
}

TYPED_TEST(FabricContract, EachWriteCompletesOnceAndRingsOnce) {
  constexpr std::size_t kWrites = 100;
  std::vector<std::byte> source(4096);
  std::vector<std::byte> target(4096);
  const auto local = this->near_->register_memory(source, MemoryAccess::kLocal);
  const auto remote = this->far_->register_memory(target, MemoryAccess::kRemoteWrite);
  for (std::uint32_t i = 0; i < kWrites; ++i) {
    ASSERT_TRUE(this->post([&] {
      return this->near_->post_write(
          {this->to_far_, *local, source, this->far_->remote_memory(*remote), i, i});
    }));
  }
  ASSERT_TRUE(this->until([&] {
    return this->count(this->far_events_, FabricEventKind::kDoorbell) >= kWrites &&
           this->count(this->near_events_, FabricEventKind::kCompleted) >= kWrites;
  }));
  std::vector<int> completed(kWrites);
  std::vector<int> rung(kWrites);
  for (const FabricEvent& event : this->near_events_) ++completed.at(event.cookie);
  for (const FabricEvent& event : this->far_events_) ++rung.at(event.immediate);
  EXPECT_EQ(completed, std::vector<int>(kWrites, 1));
  EXPECT_EQ(rung, std::vector<int>(kWrites, 1));
}

TYPED_TEST(FabricContract, AReadFetchesWhatItsRangeHolds) {
  std::vector<std::byte> held(1 << 20, std::byte{0x33});
  std::vector<std::byte> room(1 << 20);
  const auto remote = this->far_->register_memory(held, MemoryAccess::kRemoteRead);
  const auto local = this->near_->register_memory(room, MemoryAccess::kLocal);
  ASSERT_TRUE(this->post([&] {
    return this->near_->post_read(
        {this->to_far_, *local, room, this->far_->remote_memory(*remote), 0, 5});
  }));
  ASSERT_TRUE(this->until(
      [&] { return this->count(this->near_events_, FabricEventKind::kCompleted) == 1; }));
  EXPECT_EQ(room, held);
}

// An empty one-sided operation once crashed a provider; a miss is silent on others.
TYPED_TEST(FabricContract, NoEmptyOrStrayOperationReachesTheProvider) {
  std::vector<std::byte> source(8192);
  const auto local =
      this->near_->register_memory(std::span(source).first(4096), MemoryAccess::kLocal);
  const std::span<std::byte> all(source);
  for (const auto bytes : {all.first(0), all.first(4097), all.subspan(4096, 1)}) {
    const RemoteOperation operation{this->to_far_, *local, bytes, {}, 0, 1};
    EXPECT_EQ(this->near_->post_write(operation), Posted::kRefused);
    EXPECT_EQ(this->near_->post_read(operation), Posted::kRefused);
  }
  this->near_->unregister(*local);
  EXPECT_EQ(this->near_->post_write({this->to_far_, *local, all.first(1), {}, 0, 1}),
            Posted::kRefused);
}

TYPED_TEST(FabricContract, EachRemoteRegistrationHasAKeyOfItsOwn) {
  std::vector<std::byte> bytes(8192);
  const auto first = this->near_->register_memory(bytes, MemoryAccess::kRemoteWrite);
  const auto second = this->near_->register_memory(bytes, MemoryAccess::kRemoteWrite);
  ASSERT_TRUE(first && second);
  EXPECT_NE(this->near_->remote_memory(*first).key, this->near_->remote_memory(*second).key);
}

TYPED_TEST(FabricContract, RefusesAnAddressOfAnotherKind) {
  const std::vector<std::byte> absurd(200);
  EXPECT_FALSE(this->near_->insert_peer(absurd));
}

// Completions of a closed rail must go nowhere; its buffers may be freed right after.
TYPED_TEST(FabricContract, ClosesWithWorkInFlightAndStaysClosed) {
  auto source = std::make_unique<std::vector<std::byte>>(1 << 20);
  std::vector<std::byte> target(1 << 20);
  const auto local = this->near_->register_memory(*source, MemoryAccess::kLocal);
  const auto remote = this->far_->register_memory(target, MemoryAccess::kRemoteWrite);
  ASSERT_TRUE(this->post([&] {
    return this->near_->post_write(
        {this->to_far_, *local, *source, this->far_->remote_memory(*remote), 0, 1});
  }));
  for (std::uint64_t cookie = 2; cookie < 1000; ++cookie) {
    if (this->near_->post_write({this->to_far_, *local, *source, this->far_->remote_memory(*remote),
                                 0, cookie}) != Posted::kPosted) {
      break;
    }
  }
  this->near_->close();
  source.reset();
  std::array<FabricEvent, 4> events;
  EXPECT_EQ(this->near_->poll(events), 0U);
  EXPECT_EQ(this->near_->post_send(this->to_far_, bytes_of("x")), Posted::kRefused);
  this->near_->close();
}

}  // namespace
}  // namespace weft::transport
