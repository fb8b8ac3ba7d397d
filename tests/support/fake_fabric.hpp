// SPDX-License-Identifier: Apache-2.0
// A fabric in memory that behaves as badly as the strictest contract allows, from a seed.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <span>
#include <vector>

#include "transport/fabric/fabric.hpp"
#include "weft/base/thread_owner.hpp"

namespace weft::transport {

struct FakeOptions {
  std::uint64_t seed = 1;
  bool reorder = true;           // any pending step may be next
  bool early_completion = true;  // a write may complete before its bytes have arrived
  bool virtual_addresses = true;
  // Per mille of what is posted.
  std::uint32_t lost_doorbells = 0;
  std::uint32_t duplicate_doorbells = 0;
  std::uint32_t lost_messages = 0;
  std::uint32_t duplicate_messages = 0;
  std::uint32_t again = 0;
  std::uint32_t failed_writes = 0;  // an error completion, bytes never arrive
  std::size_t queue_depth = 4096;   // completions beyond it set overrun()
  std::uint32_t writes_in_flight_max = 64;
  std::uint32_t control_receives = 64;
  std::uint64_t write_bytes_max = 1 << 30;
  std::uint32_t registrations_max = 1 << 20;  // further ones fail as out of memory
  bool stale_writes_land = true;              // a write under way survives the end of its target
};

class FakeFabric;

// FakeNetwork carries everything between its fabrics, one step at a time.
// Threads: one at a time (the fabrics too).
class FakeNetwork {
 public:
  explicit FakeNetwork(FakeOptions options);
  ~FakeNetwork();

  std::unique_ptr<Fabric> open();
  // The rail whose local address is given is the one a peer handle names.
  FakeFabric* find(std::span<const std::byte> address);

  // One pending step (arrival, doorbell, completion, message); false when nothing is pending.
  bool step();
  void run(std::size_t steps_max = 1'000'000);

  // Test scripts.
  void kill(Fabric& rail, bool errors_reported);  // the process is gone
  void freeze(Fabric& rail, bool frozen);         // nothing from or to it moves
  void refuse_posts(Fabric& to, bool refused);    // posts to it answer kAgain
  void hold_writes(Fabric& to, bool held);        // its writes stay under way, at the network
  // Called with the bytes of each write before they arrive.
  void on_write(std::function<void(std::span<std::byte>)> filter) { filter_ = std::move(filter); }
  // Called with the bytes of each read before they arrive.
  void on_read(std::function<void(std::span<std::byte>)> filter) {
    read_filter_ = std::move(filter);
  }
  void report_trouble(Fabric& rail);  // an error entry without a context

  bool overrun() const { return overrun_; }
  std::uint64_t writes_posted() const { return writes_posted_; }
  std::uint64_t empty_writes() const { return empty_writes_; }
  FakeOptions& options() { return options_; }
  std::uint64_t draw(std::uint64_t below) { return random_() % below; }
  // Where each write came from: the memory that was posted.
  std::function<void(const RemoteOperation&)> posted_write;

 private:
  friend class FakeFabric;
  struct Step {
    std::uint64_t from = 0;  // rails by number
    std::uint64_t to = 0;
    bool is_write = false;
    std::function<void()> act;
  };
  bool chance(std::uint32_t per_mille) { return draw(1000) < per_mille; }
  void add(Step step) { steps_.push_back(std::move(step)); }
  bool may_act(const Step& step) const;
  FakeFabric* rail(std::uint64_t number) const;

  FakeOptions options_;
  std::mt19937_64 random_;
  std::vector<Step> steps_;
  std::map<std::uint64_t, FakeFabric*> rails_;
  std::set<std::uint64_t> frozen_;
  std::set<std::uint64_t> refusing_;
  std::set<std::uint64_t> held_;
  std::set<std::uint64_t> dead_;
  std::function<void(std::span<std::byte>)> filter_;
  std::function<void(std::span<std::byte>)> read_filter_;
  std::uint64_t next_rail_ = 1;
  std::uint64_t next_key_ = 0;  // 0 is a valid key
  std::uint64_t writes_posted_ = 0;
  std::uint64_t empty_writes_ = 0;
  bool overrun_ = false;
};

// Threads: owner.
class FakeFabric final : public Fabric {
 public:
  FakeFabric(FakeNetwork& network, std::uint64_t number);
  ~FakeFabric() override;
  FakeFabric(const FakeFabric&) = delete;
  FakeFabric& operator=(const FakeFabric&) = delete;

  void adopt_thread() override { owner_.adopt(); }
  const FabricFacts& facts() const override { return facts_; }
  std::vector<std::byte> local_address() const override;
  Result<PeerHandle> insert_peer(std::span<const std::byte> address) override;
  void remove_peer(PeerHandle peer) override;
  Result<MemoryHandle> register_memory(std::span<std::byte> bytes, MemoryAccess access) override;
  RemoteMemory remote_memory(MemoryHandle memory) const override;
  void unregister(MemoryHandle memory) override;
  Posted post_send(PeerHandle peer, std::span<const std::byte> message) override;
  std::size_t poll(std::span<FabricEvent> events) override;
  void close() override;

  std::size_t registration_count() const;
  std::uint64_t number() const { return number_; }

 protected:
  Posted do_write(const RemoteOperation& write) override;
  Posted do_read(const RemoteOperation& read) override;
  bool covers(MemoryHandle memory, std::span<const std::byte> bytes) const override;

 private:
  friend class FakeNetwork;
  struct Region {
    std::span<std::byte> bytes;
    std::uint64_t key = 0;
    std::uint64_t address = 0;
    MemoryAccess access = MemoryAccess::kLocal;
    bool live = false;
  };
  struct Arrived {
    FabricEvent event;
    std::vector<std::byte> message;
  };
  // The bytes that `remote` names here, or none.
  std::span<std::byte> target(const RemoteMemory& remote, std::size_t bytes, MemoryAccess access);
  void deliver(Arrived arrived);
  void finish(std::uint64_t operation, FabricEventKind kind, std::int32_t native);
  bool may_post(PeerHandle peer);

  FakeNetwork& network_;
  std::uint64_t number_;
  ThreadOwner owner_;
  FabricFacts facts_;
  bool closed_ = false;
  std::vector<Region> regions_;
  std::set<std::uint64_t> peers_;
  std::map<std::uint64_t, std::uint64_t> in_flight_;  // operation -> cookie
  std::uint64_t next_operation_ = 1;
  std::uint32_t messages_queued_ = 0;
  std::deque<Arrived> queue_;
  std::vector<Arrived> handed_out_;
};

}  // namespace weft::transport
