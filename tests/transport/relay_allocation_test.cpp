// SPDX-License-Identifier: Apache-2.0
// In our own frames of the stack, a frame's way from doorbell to the child's post allocates
// nothing.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <new>
#include <vector>

#include "support/test_frame.hpp"
#include "transport/relay/handover_queue.hpp"
#include "transport/relay/relay_core.hpp"
#include "transport/tree/relay_plan.hpp"

namespace {

thread_local std::uint64_t allocations = 0;

void* counted(std::size_t bytes) {
  ++allocations;
  if (void* const memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}

}  // namespace

void* operator new(std::size_t bytes) { return counted(bytes); }
void* operator new[](std::size_t bytes) { return counted(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace weft::transport {
namespace {

// A fabric that itself allocates nothing: posts land at once in the other rail of the pair.
// Threads: one at a time.
class DirectFabric final : public Fabric {
 public:
  explicit DirectFabric(std::uint8_t number) : number_(number) {
    facts_.provider = "direct";
    facts_.protocol = 1;
    facts_.write_bytes_max = 1 << 30;
    facts_.immediate_bytes = 4;
    facts_.writes_in_flight_max = 64;
  }
  static std::array<DirectFabric*, 8> rails;

  void adopt_thread() override {}
  const FabricFacts& facts() const override { return facts_; }
  std::vector<std::byte> local_address() const override { return {std::byte{number_}}; }
  Result<PeerHandle> insert_peer(std::span<const std::byte> address) override {
    return PeerHandle{static_cast<std::uint64_t>(address[0])};
  }
  void remove_peer(PeerHandle) override {}
  Result<MemoryHandle> register_memory(std::span<std::byte> bytes, MemoryAccess) override {
    regions_.push_back(bytes);
    return MemoryHandle{static_cast<std::uint32_t>(regions_.size() - 1)};
  }
  RemoteMemory remote_memory(MemoryHandle memory) const override {
    return {reinterpret_cast<std::uintptr_t>(regions_[memory.value].data()), 0};
  }
  void unregister(MemoryHandle) override {}
  Posted post_send(PeerHandle peer, std::span<const std::byte> message) override {
    DirectFabric& other = *rails[peer.value];
    if (other.queued_ == other.events_.size()) return Posted::kAgain;
    auto& room = other.messages_[other.queued_];
    std::memcpy(room.data(), message.data(), message.size());
    FabricEvent event;
    event.kind = FabricEventKind::kMessage;
    event.message = std::span(room).first(message.size());
    other.events_[other.queued_++] = event;
    return Posted::kPosted;
  }
  std::size_t poll(std::span<FabricEvent> events) override {
    // Messages stay where they are until the next poll of this rail fills them again.
    const std::size_t count = queued_;
    std::copy_n(events_.begin(), count, events.begin());
    handed_ = messages_;
    for (std::size_t i = 0; i < count; ++i) {
      if (events[i].kind == FabricEventKind::kMessage) {
        events[i].message = std::span(handed_[i]).first(events[i].message.size());
      }
    }
    queued_ = 0;
    return count;
  }
  void close() override {}

 protected:
  Posted do_write(const RemoteOperation& write) override {
    DirectFabric& other = *rails[write.peer.value];
    if (other.queued_ == other.events_.size() || queued_ == events_.size()) return Posted::kAgain;
    std::memcpy(reinterpret_cast<void*>(write.remote.address), write.bytes.data(),
                write.bytes.size());
    FabricEvent bell;
    bell.kind = FabricEventKind::kDoorbell;
    bell.immediate = write.immediate;
    other.events_[other.queued_++] = bell;
    FabricEvent done;
    done.kind = FabricEventKind::kCompleted;
    done.cookie = write.cookie;
    events_[queued_++] = done;
    return Posted::kPosted;
  }
  Posted do_read(const RemoteOperation&) override { return Posted::kRefused; }
  bool covers(MemoryHandle, std::span<const std::byte>) const override { return true; }

 private:
  std::uint8_t number_;
  FabricFacts facts_;
  std::vector<std::span<std::byte>> regions_;
  std::array<FabricEvent, 64> events_;
  std::array<std::array<std::byte, 512>, 64> messages_;
  std::array<std::array<std::byte, 512>, 64> handed_;
  std::size_t queued_ = 0;
};
std::array<DirectFabric*, 8> DirectFabric::rails{};

// Threads: one at a time.
class CountingObserver final : public RelayObserver {
 public:
  void on_frame(const RefitId&, ProducerIndex, FrameSequence, SharedSlot) override { ++frames; }
  void on_link_lost(const RefitId&, std::string_view, const Error&) override { ++troubles; }
  void on_fault(const RefitId&, std::string_view, const Error&) override { ++troubles; }
  int frames = 0;
  int troubles = 0;
};

TEST(RelayAllocation, AFrameOnItsWayAllocatesNothing) {
  NullEventSink events;
  ManualClock clock;
  CountingObserver observer;
  std::vector<std::unique_ptr<SlabPool>> pools;
  std::vector<std::unique_ptr<RelayCore>> cores;
  wire::Plan plan;
  plan.nodes.resize(3);
  plan.trees = plan_relays({"chain", 1, 2})->trees;
  for (std::uint8_t i = 0; i < 3; ++i) {
    pools.push_back(*SlabPool::open({.slot_count = 32, .slot_bytes = 16 * 1024}, events));
    auto fabric = std::make_unique<DirectFabric>(i);
    DirectFabric::rails[i] = fabric.get();
    RelayOptions options;
    options.process = ProcessId{1U + i};
    cores.push_back(
        *RelayCore::open(options, std::move(fabric), {*pools[i], observer, events, clock}));
    plan.nodes[i].process = options.process;
    plan.nodes[i].rails = {{"direct", 1, {std::byte{i}}}};
  }
  for (std::uint32_t i = 0; i < 3; ++i) ASSERT_TRUE(cores[i]->enter(plan, NodeIndex{i}));
  HandoverQueue<InjectedFrame> queue(32);
  std::uint64_t allocated = 0;
  for (std::uint32_t sequence = 0; sequence < 1000;) {
    const std::uint64_t before = allocations;
    if (auto lease = pools[0]->try_acquire()) {
      InjectedFrame injected{plan.refit, ProducerIndex{0},
                             make_frame(std::move(*lease), plan, 0, sequence++)};
      queue.try_push(injected);
    }
    while (auto frame = queue.try_pop()) cores[0]->inject(std::move(*frame));
    for (const auto& core : cores) core->turn();
    clock.advance(std::chrono::microseconds(50));
    if (sequence > 20) allocated += allocations - before;  // after the first frames
  }
  EXPECT_EQ(allocated, 0U);
  EXPECT_EQ(observer.troubles, 0);
  EXPECT_GT(observer.frames, 1900);
}

}  // namespace
}  // namespace weft::transport
