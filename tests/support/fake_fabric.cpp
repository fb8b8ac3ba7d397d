// SPDX-License-Identifier: Apache-2.0
#include "support/fake_fabric.hpp"

#include <algorithm>
#include <cstring>

#include "weft/wire/byte_io.hpp"

namespace weft::transport {
namespace {

constexpr std::int32_t kCanceled = 125;
constexpr std::int32_t kIoError = 5;
constexpr std::int32_t kNoMemory = 12;

}  // namespace

FakeNetwork::FakeNetwork(FakeOptions options) : options_(options), random_(options.seed) {}
FakeNetwork::~FakeNetwork() = default;

std::unique_ptr<Fabric> FakeNetwork::open() {
  const std::uint64_t number = next_rail_++;
  auto rail = std::make_unique<FakeFabric>(*this, number);
  rails_[number] = rail.get();
  return rail;
}

FakeFabric* FakeNetwork::rail(std::uint64_t number) const {
  const auto found = rails_.find(number);
  return found == rails_.end() || dead_.contains(number) ? nullptr : found->second;
}

FakeFabric* FakeNetwork::find(std::span<const std::byte> address) {
  return address.size() == 8 ? rail(wire::load_le<std::uint64_t>(address.data())) : nullptr;
}

bool FakeNetwork::may_act(const Step& step) const {
  if (frozen_.contains(step.from) || frozen_.contains(step.to)) return false;
  return !(step.is_write && held_.contains(step.to));
}

bool FakeNetwork::step() {
  std::vector<std::size_t> ready;
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    if (may_act(steps_[i])) ready.push_back(i);
    if (!options_.reorder && !ready.empty()) break;
  }
  if (ready.empty()) return false;
  const std::size_t chosen = ready[options_.reorder ? draw(ready.size()) : 0];
  Step next = std::move(steps_[chosen]);
  steps_.erase(steps_.begin() + static_cast<std::ptrdiff_t>(chosen));
  next.act();
  return true;
}

void FakeNetwork::run(std::size_t steps_max) {
  for (std::size_t i = 0; i < steps_max && step(); ++i) {
  }
}

void FakeNetwork::kill(Fabric& gone, bool errors_reported) {
  auto& rail = static_cast<FakeFabric&>(gone);
  dead_.insert(rail.number());
  for (auto& [number, other] : rails_) {
    if (errors_reported && !dead_.contains(number)) report_trouble(*other);
  }
}

void FakeNetwork::freeze(Fabric& rail, bool frozen) {
  const std::uint64_t number = static_cast<FakeFabric&>(rail).number();
  if (frozen) {
    frozen_.insert(number);
  } else {
    frozen_.erase(number);
  }
}

void FakeNetwork::refuse_posts(Fabric& to, bool refused) {
  const std::uint64_t number = static_cast<FakeFabric&>(to).number();
  if (refused) {
    refusing_.insert(number);
  } else {
    refusing_.erase(number);
  }
}

void FakeNetwork::hold_writes(Fabric& to, bool held) {
  const std::uint64_t number = static_cast<FakeFabric&>(to).number();
  if (held) {
    held_.insert(number);
  } else {
    held_.erase(number);
  }
}

void FakeNetwork::report_trouble(Fabric& rail) {
  FabricEvent event;
  event.native = kCanceled;
  static_cast<FakeFabric&>(rail).deliver({event, {}});
}

FakeFabric::FakeFabric(FakeNetwork& network, std::uint64_t number)
    : network_(network), number_(number) {
  facts_.provider = "fake";
  facts_.protocol = 0x8000'0001;
  facts_.device = "fake";
  facts_.address = "fake:" + std::to_string(number);
  facts_.message_bytes_max = limits::kFabricControlBytesMax;
  facts_.write_bytes_max = network.options_.write_bytes_max;
  facts_.immediate_bytes = 4;
  facts_.writes_in_flight_max = network.options_.writes_in_flight_max;
}

FakeFabric::~FakeFabric() {
  close();
  network_.rails_.erase(number_);
}

std::vector<std::byte> FakeFabric::local_address() const {
  std::vector<std::byte> address(8);
  wire::store_le(address.data(), number_);
  return address;
}

Result<PeerHandle> FakeFabric::insert_peer(std::span<const std::byte> address) {
  owner_.check();
  if (address.size() != 8) {
    return failure(ErrorCode::kUnsupported, Stage::kRelay, "fake address of another length");
  }
  const auto number = wire::load_le<std::uint64_t>(address.data());
  peers_.insert(number);
  return PeerHandle{number};
}

void FakeFabric::remove_peer(PeerHandle peer) {
  owner_.check();
  peers_.erase(peer.value);
}

Result<MemoryHandle> FakeFabric::register_memory(std::span<std::byte> bytes, MemoryAccess access) {
  owner_.check();
  if (registration_count() >= network_.options_.registrations_max) {
    return failure(ErrorCode::kResourceLimit, Stage::kOpen, "fake registration: out of memory",
                   kNoMemory);
  }
  Region region{bytes, network_.next_key_++, 0, access, true};
  if (network_.options_.virtual_addresses) {
    region.address = reinterpret_cast<std::uintptr_t>(bytes.data());
  }
  regions_.push_back(region);
  return MemoryHandle{static_cast<std::uint32_t>(regions_.size() - 1)};
}

RemoteMemory FakeFabric::remote_memory(MemoryHandle memory) const {
  return {regions_[memory.value].address, regions_[memory.value].key};
}

void FakeFabric::unregister(MemoryHandle memory) {
  owner_.check();
  regions_[memory.value].live = false;
}

std::size_t FakeFabric::registration_count() const {
  return static_cast<std::size_t>(
      std::count_if(regions_.begin(), regions_.end(), [](const Region& r) { return r.live; }));
}

bool FakeFabric::covers(MemoryHandle memory, std::span<const std::byte> bytes) const {
  if (memory.value >= regions_.size() || !regions_[memory.value].live) return false;
  const auto whole = regions_[memory.value].bytes;
  return bytes.data() >= whole.data() && bytes.data() + bytes.size() <= whole.data() + whole.size();
}

std::span<std::byte> FakeFabric::target(const RemoteMemory& remote, std::size_t bytes,
                                        MemoryAccess access) {
  for (const Region& region : regions_) {
    const bool stale = !region.live && network_.options_.stale_writes_land;
    if (region.key != remote.key || region.access != access || !(region.live || stale)) continue;
    const std::uint64_t offset = remote.address - region.address;
    if (remote.address < region.address || offset + bytes > region.bytes.size()) return {};
    return region.bytes.subspan(offset, bytes);
  }
  return {};
}

bool FakeFabric::may_post(PeerHandle peer) {
  if (network_.dead_.contains(peer.value) || network_.refusing_.contains(peer.value)) return false;
  return !network_.chance(network_.options_.again);
}

void FakeFabric::deliver(Arrived arrived) {
  if (closed_) return;
  if (arrived.event.kind == FabricEventKind::kMessage) {
    // No receive is posted for it: an unreliable reading of "receiver not ready".
    if (messages_queued_ >= network_.options_.control_receives) return;
    ++messages_queued_;
  }
  if (queue_.size() >= network_.options_.queue_depth) {
    network_.overrun_ = true;
    return;
  }
  queue_.push_back(std::move(arrived));
}

void FakeFabric::finish(std::uint64_t operation, FabricEventKind kind, std::int32_t native) {
  const auto found = in_flight_.find(operation);
  if (found == in_flight_.end()) return;
  FabricEvent event;
  event.kind = kind;
  event.cookie = found->second;
  event.native = native;
  in_flight_.erase(found);
  deliver({event, {}});
}

Posted FakeFabric::post_send(PeerHandle peer, std::span<const std::byte> message) {
  owner_.check();
  if (closed_ || message.empty() || message.size() > limits::kFabricControlBytesMax) {
    last_error_ = 22;
    return Posted::kRefused;
  }
  if (!peers_.contains(peer.value) || !may_post(peer)) return Posted::kAgain;
  FakeOptions& options = network_.options_;
  const std::uint32_t copies = network_.chance(options.lost_messages)        ? 0
                               : network_.chance(options.duplicate_messages) ? 2
                                                                             : 1;
  for (std::uint32_t i = 0; i < copies; ++i) {
    std::vector<std::byte> bytes(message.begin(), message.end());
    network_.add({number_, peer.value, false, [&network = network_, peer, bytes] {
                    FakeFabric* const other = network.rail(peer.value);
                    if (other == nullptr) return;
                    FabricEvent event;
                    event.kind = FabricEventKind::kMessage;
                    other->deliver({event, bytes});
                  }});
  }
  return Posted::kPosted;
}

Posted FakeFabric::do_write(const RemoteOperation& write) {
  owner_.check();
  if (closed_) return Posted::kRefused;
  if (in_flight_.size() >= facts_.writes_in_flight_max) return Posted::kAgain;
  if (!may_post(write.peer)) return Posted::kAgain;
  const std::uint64_t operation = next_operation_++;
  in_flight_[operation] = write.cookie;
  ++network_.writes_posted_;
  network_.empty_writes_ += write.bytes.empty() ? 1 : 0;
  if (network_.posted_write) network_.posted_write(write);
  FakeNetwork& network = network_;
  const std::uint64_t from = number_;
  const auto complete = [&network, from, operation](FabricEventKind kind, std::int32_t native) {
    if (FakeFabric* const self = network.rail(from)) self->finish(operation, kind, native);
  };
  if (network.chance(network.options_.failed_writes)) {
    network.add({from, write.peer.value, false,
                 [complete] { complete(FabricEventKind::kFailed, kIoError); }});
    return Posted::kPosted;
  }
  const bool early = network.options_.early_completion;
  if (early) {
    network.add({from, from, false, [complete] { complete(FabricEventKind::kCompleted, 0); }});
  }
  std::vector<std::byte> bytes(write.bytes.begin(), write.bytes.end());
  network.add(
      {from, write.peer.value, true, [&network, from, write, bytes, complete, early]() mutable {
         FakeFabric* const other = network.rail(write.peer.value);
         if (other == nullptr) return complete(FabricEventKind::kFailed, kCanceled);
         if (network.filter_) network.filter_(bytes);
         const auto room = other->target(write.remote, bytes.size(), MemoryAccess::kRemoteWrite);
         if (room.empty()) return complete(FabricEventKind::kFailed, kIoError);
         std::memcpy(room.data(), bytes.data(), bytes.size());
         if (!early) complete(FabricEventKind::kCompleted, 0);
         FakeOptions& options = network.options_;
         std::uint32_t rings = network.chance(options.lost_doorbells) ? 0 : 1;
         rings += network.chance(options.duplicate_doorbells) ? rings : 0;
         for (std::uint32_t i = 0; i < rings; ++i) {
           network.add({from, write.peer.value, false, [&network, write] {
                          FakeFabric* const target = network.rail(write.peer.value);
                          if (target == nullptr) return;
                          FabricEvent event;
                          event.kind = FabricEventKind::kDoorbell;
                          event.immediate = write.immediate;
                          target->deliver({event, {}});
                        }});
         }
       }});
  return Posted::kPosted;
}

Posted FakeFabric::do_read(const RemoteOperation& read) {
  owner_.check();
  if (closed_) return Posted::kRefused;
  if (in_flight_.size() >= facts_.writes_in_flight_max) return Posted::kAgain;
  if (!may_post(read.peer)) return Posted::kAgain;
  const std::uint64_t operation = next_operation_++;
  in_flight_[operation] = read.cookie;
  // Rails are looked up when the step acts: either may be gone by then.
  network_.add(
      {number_, read.peer.value, false, [&network = network_, from = number_, read, operation] {
         FakeFabric* const self = network.rail(from);
         FakeFabric* const other = network.rail(read.peer.value);
         if (self == nullptr || !self->in_flight_.contains(operation)) return;
         const auto held = other == nullptr ? std::span<std::byte>()
                                            : other->target(read.remote, read.bytes.size(),
                                                            MemoryAccess::kRemoteRead);
         if (held.empty()) {
           return self->finish(operation, FabricEventKind::kFailed, kIoError);
         }
         std::memcpy(read.bytes.data(), held.data(), held.size());
         if (network.read_filter_) network.read_filter_(read.bytes);
         self->finish(operation, FabricEventKind::kCompleted, 0);
       }});
  return Posted::kPosted;
}

std::size_t FakeFabric::poll(std::span<FabricEvent> events) {
  owner_.check();
  if (network_.dead_.contains(number_) || network_.frozen_.contains(number_)) return 0;
  handed_out_.clear();
  while (handed_out_.size() < events.size() && !queue_.empty()) {
    if (queue_.front().event.kind == FabricEventKind::kMessage) --messages_queued_;
    handed_out_.push_back(std::move(queue_.front()));
    queue_.pop_front();
  }
  for (std::size_t i = 0; i < handed_out_.size(); ++i) {
    events[i] = handed_out_[i].event;
    events[i].message = handed_out_[i].message;
  }
  return handed_out_.size();
}

void FakeFabric::close() {
  closed_ = true;
  in_flight_.clear();
  queue_.clear();
  for (Region& region : regions_) region.live = false;
  // What was under way to closed memory is gone for good; steps look rails up by number.
  regions_.clear();
}

}  // namespace weft::transport
