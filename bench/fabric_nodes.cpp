// SPDX-License-Identifier: Apache-2.0
// A relay in a process of its own, and bare writes with data beside it.
#include "bench/fabric_nodes.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include "transport/fabric/ofi_fabric.hpp"
#include "transport/relay/relay.hpp"
#include "transport/tree/relay_plan.hpp"

namespace weft::bench {

double monotonic_seconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

namespace {

using transport::Relay;
using transport::RelayOptions;
using transport::SlabPool;

constexpr std::uint32_t kWarmFrames = 64;
constexpr double kPatienceSeconds = 30;

int complain(const Error& error) {
  std::fprintf(stderr, "bench fabric: %s\n", error.message().c_str());
  return 1;
}

// Threads: any.
class CountingObserver final : public transport::RelayObserver {
 public:
  void on_frame(const RefitId&, ProducerIndex, FrameSequence, SharedSlot) override { ++frames; }
  void on_link_lost(const RefitId&, std::string_view, const Error&) override {}
  void on_fault(const RefitId&, std::string_view, const Error&) override {}
  std::atomic<std::uint64_t> frames{0};
};

transport::FabricOptions fabric_options(const BenchNode& node) {
  transport::FabricOptions options;
  options.provider = node.provider;
  options.address = node.address;
  return options;
}

NodeCard card_of(const transport::Fabric& fabric) {
  NodeCard card;
  card.protocol = fabric.facts().protocol;
  const std::vector<std::byte> address = fabric.local_address();
  card.address_bytes = static_cast<std::uint32_t>(address.size());
  std::copy(address.begin(), address.end(), card.address);
  return card;
}

std::vector<std::byte> address_in(const NodeCard& card) {
  return {card.address, card.address + card.address_bytes};
}

wire::Plan make_plan(const BenchNode& node, const std::vector<NodeCard>& cards) {
  wire::Plan plan;
  plan.refit = {{1, ProcessId{1}}, 1};
  for (const NodeCard& card : cards) {
    wire::Endpoint endpoint;
    endpoint.member_id = "node-" + std::to_string(plan.nodes.size());
    endpoint.process = ProcessId{card.process};
    endpoint.rails = {{node.provider, card.protocol, address_in(card)}};
    plan.nodes.push_back(std::move(endpoint));
  }
  const std::string shape = "kary(" + std::to_string(node.degree) + ")";
  auto relays = transport::plan_relays({shape, 1, node.count - 1});
  if (relays) plan.trees = std::move(relays->trees);
  return plan;
}

wire::FrameHeader fill_frame(std::span<std::byte> room, const wire::Plan& plan,
                             std::uint32_t sequence) {
  wire::FrameHeader header;
  header.set_refit(plan.refit);
  header.sequence = sequence;
  header.chunk_count = 1;
  header.index_bytes = wire::kIndexEntryBytes;
  header.payload_bytes = kBenchFrameBytes - limits::kFrameHeaderBytes - wire::kIndexEntryBytes;
  const auto body = room.subspan(sizeof(header), header.index_bytes + header.payload_bytes);
  if (sequence < kWarmFrames) std::memset(body.data(), 7, body.size());
  const Digest checksum = wire::frame_checksum(header, body);
  header.checksum_low = checksum.low;
  header.checksum_high = checksum.high;
  std::memcpy(room.data(), &header, sizeof(header));
  return header;
}

// Frames are filled once and later only numbered anew, on another thread than the progress thread,
// as an encoder's would be.
Status send_frames(Relay& relay, SlabPool& pool, const wire::Plan& plan, double seconds,
                   BenchSpan& span) {
  std::uint32_t sequence = 0;
  const auto send_one = [&]() -> Status {
    WEFT_TRY(Lease lease, pool.acquire(std::chrono::seconds(10)));
    const wire::FrameHeader header = fill_frame(lease.frame_room(), plan, sequence++);
    return relay.inject(ProducerIndex{0}, header,
                        std::move(lease).share(static_cast<std::uint32_t>(header.frame_bytes())));
  };
  for (std::uint32_t i = 0; i < kWarmFrames; ++i) WEFT_TRY_STATUS(send_one());
  WEFT_TRY_STATUS(relay.wait_drained(plan.refit, std::chrono::seconds(20)));
  span.start = monotonic_seconds();
  while (monotonic_seconds() - span.start < seconds) {
    WEFT_TRY_STATUS(send_one());
    ++span.frames;
  }
  span.end = monotonic_seconds();
  return ok();
}

bool wait_for_frames(const std::atomic<std::uint64_t>& frames, std::uint64_t wanted) {
  const double deadline = monotonic_seconds() + kPatienceSeconds;
  const timespec pause{0, 200'000};
  while (frames.load() < wanted && monotonic_seconds() < deadline) nanosleep(&pause, nullptr);
  return frames.load() >= wanted;
}

}  // namespace

int run_relay_node(const BenchNode& node, const PipeEnds& ends) {
  NullEventSink events;
  CountingObserver observer;
  auto pool = SlabPool::open({.slot_count = 34}, events);
  if (!pool) return complain(pool.error());
  auto fabric = transport::open_fabric(fabric_options(node), events);
  if (!fabric) return complain(fabric.error());
  NodeCard own = card_of(**fabric);
  RelayOptions options;
  options.member_id = "node-" + std::to_string(node.index);
  auto relay = Relay::open_on(*std::move(fabric), options, **pool, observer, events);
  if (!relay) return complain(relay.error());
  own.process = (*relay)->process().value;
  std::vector<NodeCard> cards(node.count);
  if (!ends.write_all(&own, sizeof(own)) ||
      !ends.read_all(cards.data(), cards.size() * sizeof(NodeCard))) {
    return 1;
  }
  const wire::Plan plan = make_plan(node, cards);
  if (const Status entered = (*relay)->enter(plan, NodeIndex{node.index}); !entered) {
    return complain(entered.error());
  }
  BenchSpan span;
  if (node.index == 0) {
    const Status sent = send_frames(**relay, **pool, plan, node.seconds, span);
    if (!sent) return complain(sent.error());
  } else {
    if (!ends.read_all(&span, sizeof(span))) return 1;
    if (!wait_for_frames(observer.frames, span.frames + kWarmFrames)) return 1;
    span.end = monotonic_seconds();
  }
  std::byte over{};
  if (!ends.write_all(&span, sizeof(span)) || !ends.read_all(&over, 1)) return 1;
  (*relay)->leave(plan.refit);
  static_cast<void>((*relay)->close(std::chrono::seconds(2)));
  relay->reset();
  return 0;
}

namespace {

constexpr std::uint32_t kWriteSlots = 8;

// What a node of bare writes has open.
// Threads: one at a time.
struct WritesNode {
  const BenchNode& node;
  const PipeEnds& ends;
  transport::Fabric& fabric;
  std::span<std::byte> memory;
  transport::MemoryHandle memory_id;
  transport::PeerHandle peer;
  NodeCard other;
};

int send_writes(const WritesNode& at) {
  BenchSpan span;
  std::vector<transport::FabricEvent> completed(64);
  std::uint32_t under_way = 0;
  std::uint64_t posted = 0;
  bool ends_soon = false;
  const double opened_at = monotonic_seconds();
  while (!ends_soon || under_way > 0) {
    const std::uint64_t place = posted % kWriteSlots * limits::kSlotBytes;
    const transport::RemoteOperation write{at.peer,
                                           at.memory_id,
                                           at.memory.subspan(place, kBenchFrameBytes),
                                           {at.other.memory_address + place, at.other.memory_key},
                                           static_cast<std::uint32_t>(posted),
                                           posted};
    if (!ends_soon && under_way < kWriteSlots &&
        at.fabric.post_write(write) == transport::Posted::kPosted) {
      ++under_way;
      // The first writes make the connection.
      if (++posted == kWarmFrames) span.start = monotonic_seconds();
    }
    under_way -= static_cast<std::uint32_t>(at.fabric.poll(completed));
    const double now = monotonic_seconds();
    if (posted < kWarmFrames && now - opened_at > kPatienceSeconds) return 1;
    ends_soon = posted >= kWarmFrames && now - span.start >= at.node.seconds;
  }
  span.frames = posted - kWarmFrames;
  span.end = monotonic_seconds();
  std::byte over{};
  return at.ends.write_all(&span, sizeof(span)) && at.ends.read_all(&over, 1) ? 0 : 1;
}

// The number of doorbells is not known before the sender has ended; all of them are awaited.
int take_writes(const WritesNode& at) {
  BenchSpan span;
  std::vector<transport::FabricEvent> arrived(64);
  std::uint64_t doorbells = 0;
  bool told = false;
  const int flags = fcntl(at.ends.in, F_GETFL);
  fcntl(at.ends.in, F_SETFL, flags | O_NONBLOCK);
  const double opened_at = monotonic_seconds();
  while (!told || doorbells < span.frames + kWarmFrames) {
    const std::size_t count = at.fabric.poll(arrived);
    for (std::size_t i = 0; i < count; ++i) {
      doorbells += arrived[i].kind == transport::FabricEventKind::kDoorbell ? 1 : 0;
    }
    if (count == 0 && !told) told = ::read(at.ends.in, &span, sizeof(span)) == sizeof(span);
    if (monotonic_seconds() - opened_at > at.node.seconds + kPatienceSeconds) return 1;
  }
  fcntl(at.ends.in, F_SETFL, flags);
  span.end = monotonic_seconds();
  std::byte over{};
  return at.ends.write_all(&span, sizeof(span)) && at.ends.read_all(&over, 1) ? 0 : 1;
}

}  // namespace

// One fi_writedata after the other into a ring of slots, as many under way as there are slots: no
// grants, no checksums, nothing is looked at. Each doorbell is answered by nothing, so the sender
// waits for its own completions only.
int run_writes_node(const BenchNode& node, const PipeEnds& ends) {
  NullEventSink events;
  auto pool = SlabPool::open({.slot_count = kWriteSlots}, events);
  if (!pool) return complain(pool.error());
  auto opened = transport::open_fabric(fabric_options(node), events);
  if (!opened) return complain(opened.error());
  transport::Fabric& fabric = **opened;
  const bool sender = node.index == 0;
  const auto memory =
      fabric.register_memory((*pool)->memory(), sender ? transport::MemoryAccess::kLocal
                                                       : transport::MemoryAccess::kRemoteWrite);
  if (!memory) return complain(memory.error());
  NodeCard own = card_of(fabric);
  own.memory_address = fabric.remote_memory(*memory).address;
  own.memory_key = fabric.remote_memory(*memory).key;
  std::vector<NodeCard> cards(node.count);
  if (!ends.write_all(&own, sizeof(own)) ||
      !ends.read_all(cards.data(), cards.size() * sizeof(NodeCard))) {
    return 1;
  }
  const NodeCard& other = cards[1 - node.index];
  const auto peer = fabric.insert_peer(address_in(other));
  if (!peer) return complain(peer.error());
  const WritesNode opened_node{node, ends, fabric, (*pool)->memory(), *memory, *peer, other};
  return sender ? send_writes(opened_node) : take_writes(opened_node);
}

}  // namespace weft::bench
