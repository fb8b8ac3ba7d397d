// SPDX-License-Identifier: Apache-2.0
// A fleet of relays on the fake fabric, one thread, a manual clock.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "support/fake_fabric.hpp"
#include "support/test_frame.hpp"
#include "transport/relay/relay_core.hpp"
#include "transport/tree/reattach.hpp"
#include "transport/tree/relay_plan.hpp"

namespace weft::transport {

inline constexpr std::uint32_t kTestSlotBytes = 16 * 1024;

// What one node's relay reported.
// Threads: one at a time.
class FleetObserver final : public RelayObserver {
 public:
  struct Lost {
    std::string member;
    Error error;
  };
  void on_frame(const RefitId& refit, ProducerIndex producer, FrameSequence sequence,
                SharedSlot frame) override {
    const auto bytes = frame.frame();
    wire::FrameHeader header;
    std::memcpy(&header, bytes.data(), sizeof(header));
    EXPECT_EQ(header.refit(), refit);
    EXPECT_EQ(header.sequence, sequence.value);
    EXPECT_EQ(wire::frame_checksum(header, bytes.subspan(sizeof(header))), header.checksum());
    ++frames[{producer.value, sequence.value}];
    addresses.push_back(bytes.data());
    if (keep) kept[{producer.value, sequence.value}].assign(bytes.begin(), bytes.end());
    if (hold || hold_producer == static_cast<int>(producer.value)) held.push_back(std::move(frame));
  }
  void on_link_lost(const RefitId&, std::string_view member_id, const Error& error) override {
    lost.push_back({std::string(member_id), error});
  }
  void on_fault(const RefitId&, std::string_view member_id, const Error& error) override {
    faults.push_back({std::string(member_id), error});
  }

  void on_frame_wanted(FrameWanted asked) override {
    ++wanted_count;
    wanted.push_back(std::move(asked));
  }
  // Answers what is wanted from what is kept; the rest is dropped.
  void serve(RelayCore& core) {
    for (FrameWanted& asked : std::exchange(wanted, {})) {
      const auto found = kept.find({asked.producer.value, asked.sequence.value});
      if (found == kept.end() || found->second.empty()) continue;
      std::memcpy(asked.room.frame_room().data(), found->second.data(), found->second.size());
      core.provide(std::move(asked.room).share(static_cast<std::uint32_t>(found->second.size())));
    }
  }

  std::map<std::pair<std::uint32_t, std::uint32_t>, int> frames;
  // What stands for a spool.
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<std::byte>> kept;
  std::vector<FrameWanted> wanted;
  std::uint32_t wanted_count = 0;
  bool keep = true;
  bool serves = true;
  std::vector<const std::byte*> addresses;
  std::vector<Lost> lost;
  std::vector<Lost> faults;
  void on_rails_changed() override { ++rails_changed; }
  int rails_changed = 0;
  bool hold = false;
  int hold_producer = -1;
  std::vector<SharedSlot> held;
};

struct FleetOptions {
  FakeOptions fake = {};
  std::string shape = "chain";
  std::uint32_t producers = 1;
  std::uint32_t agents = 3;
  std::uint32_t slots = 32;
  std::uint32_t slots_per_link = 4;
  std::uint32_t trees_open_max = 0;
  bool recycle = false;
};

// Threads: one at a time.
class RelayFleet {
 public:
  struct Node {
    std::string name;
    std::unique_ptr<SlabPool> pool;
    std::unique_ptr<FleetObserver> observer;
    std::unique_ptr<RelayCore> core;
    Fabric* fabric = nullptr;
    bool dead = false;
  };

  explicit RelayFleet(const FleetOptions& options) : options_(options), network_(options.fake) {
    for (std::uint32_t i = 0; i < options.producers + options.agents; ++i) add_node(i);
    plan_ = make_plan(1);
  }

  // A plan over all nodes; attempts tell refits apart.
  wire::Plan make_plan(std::uint32_t attempt) {
    wire::Plan plan;
    plan.refit = {{5, ProcessId{77}}, attempt};
    plan.fleet = FleetId{{1, 2}};
    plan.base.lattice = Digest{{3, 4}};
    plan.shape = options_.shape;
    plan.producer_count = options_.producers;
    plan.trees_open_max = options_.trees_open_max;
    for (const Node& node : nodes_) plan.nodes.push_back(endpoint_of(node));
    auto relays = plan_relays({options_.shape, options_.producers, options_.agents});
    EXPECT_TRUE(relays) << (relays ? "" : relays.error().message());
    plan.trees = std::move(relays->trees);
    return plan;
  }

  void enter_all() {
    for (std::uint32_t i = 0; i < nodes_.size(); ++i) enter(i);
  }
  void enter(std::uint32_t node) {
    const Status entered = nodes_[node].core->enter(plan_, NodeIndex{node});
    EXPECT_TRUE(entered) << (entered ? "" : entered.error().message());
  }

  // One turn of every living node, some network steps, and time.
  void turn(Duration advance = std::chrono::microseconds(100)) {
    for (Node& node : nodes_) {
      if (node.dead) continue;
      if (node.observer->serves) node.observer->serve(*node.core);
      node.core->turn();
    }
    for (int i = 0; i < 16 && network_.step(); ++i) {
    }
    clock_.advance(advance);
  }

  // Turns until `done`, at most `limit` of the manual clock.
  template <typename Done>
  bool until(Done&& done, Duration limit = std::chrono::seconds(20),
             Duration step = std::chrono::microseconds(100)) {
    const TimePoint deadline = clock_.now() + limit;
    while (!done()) {
      if (clock_.now() >= deadline) return false;
      turn(step);
    }
    return true;
  }
  void run_for(Duration time, Duration step = std::chrono::milliseconds(1)) {
    const TimePoint end = clock_.now() + time;
    while (clock_.now() < end) turn(step);
  }

  // Injects the next frame of a producer if a slot is free.
  bool inject(std::uint32_t producer) {
    auto lease = nodes_[producer].pool->try_acquire();
    if (!lease) return false;
    const std::uint32_t sequence = next_[producer]++;
    SharedSlot frame = make_frame(std::move(*lease), plan_, producer, sequence);
    const auto bytes = frame.frame();
    nodes_[producer].observer->kept[{producer, sequence}].assign(bytes.begin(), bytes.end());
    nodes_[producer].core->inject({plan_.refit, ProducerIndex{producer}, std::move(frame)});
    return true;
  }

  // Sends `count` frames of every producer and waits until everyone has them.
  bool stream(std::uint32_t count, Duration limit = std::chrono::seconds(60)) {
    std::vector<std::uint32_t> goal(options_.producers);
    for (std::uint32_t p = 0; p < options_.producers; ++p) goal[p] = next_[p] + count;
    return until(
        [&] {
          bool all = true;
          for (std::uint32_t p = 0; p < options_.producers; ++p) {
            if (next_[p] < goal[p]) inject(p);
            all &= next_[p] == goal[p];
          }
          return all && complete();
        },
        limit);
  }

  // No producer sends anything more.
  void finish_all() {
    for (std::uint32_t p = 0; p < options_.producers; ++p) {
      nodes_[p].core->finish(plan_.refit, ProducerIndex{p}, next_[p]);
    }
  }

  // Every living agent has every injected frame of every producer.
  bool complete() const {
    std::size_t total = 0;
    for (const auto& [producer, next] : next_) total += next;
    for (std::size_t i = options_.producers; i < nodes_.size(); ++i) {
      if (!nodes_[i].dead && nodes_[i].observer->frames.size() < total) return false;
    }
    return true;
  }
  void expect_each_frame_once() const {
    for (const Node& node : nodes_) {
      for (const auto& [frame, count] : node.observer->frames) EXPECT_EQ(count, 1) << node.name;
    }
  }

  // Leaves everywhere and checks that every slot is accounted for.
  void leave_and_expect_all_slots_back() {
    for (Node& node : nodes_) {
      node.observer->held.clear();
      if (!node.dead) node.core->leave(plan_.refit);
    }
    EXPECT_TRUE(until([&] {
      for (const Node& node : nodes_) {
        if (!node.dead && !node.core->idle()) return false;
      }
      return true;
    }));
    for (Node& node : nodes_) {
      if (node.dead) continue;
      EXPECT_EQ(node.pool->free_count() + node.core->quarantined() + node.core->reserved() +
                    under_way(node),
                options_.slots)
          << node.name;
    }
  }
  static std::uint32_t under_way(const Node& node) {
    const RelayCounters& counters = node.core->counters();
    return static_cast<std::uint32_t>(counters.frames_posted - counters.frames_completed +
                                      counters.reads_posted - counters.reads_completed);
  }

  void restart_sequences() { next_.clear(); }
  std::uint32_t injected(std::uint32_t producer) { return next_[producer]; }

  // New trees without the dead, entered by everybody who lives.
  void replan() {
    wire::Plan next = plan_;
    ++next.revision;
    next.nodes.clear();
    std::vector<std::uint32_t> members;
    for (std::uint32_t i = 0; i < nodes_.size(); ++i) {
      if (nodes_[i].dead) continue;
      members.push_back(i);
      next.nodes.push_back(endpoint_of(nodes_[i]));
    }
    auto trees = reattach({plan_, next.nodes, std::vector<bool>(next.nodes.size(), false)});
    ASSERT_TRUE(trees) << trees.error().message();
    next.trees = *std::move(trees);
    plan_ = next;
    for (std::uint32_t place = 0; place < members.size(); ++place) {
      const Status entered = nodes_[members[place]].core->enter(plan_, NodeIndex{place});
      EXPECT_TRUE(entered) << (entered ? "" : entered.error().message());
    }
  }
  // An agent that starts later; it is in the next plan.
  std::uint32_t add_late_agent() {
    add_node(static_cast<std::uint32_t>(nodes_.size()));
    return static_cast<std::uint32_t>(nodes_.size()) - 1;
  }

  void kill(std::uint32_t node, bool errors_reported = true) {
    network_.kill(*nodes_[node].fabric, errors_reported);
    nodes_[node].dead = true;
  }

  Node& node(std::uint32_t index) { return nodes_[index]; }
  Node& agent(std::uint32_t index) { return nodes_[options_.producers + index]; }
  std::uint32_t agent_index(std::uint32_t index) const { return options_.producers + index; }
  FakeNetwork& network() { return network_; }
  ManualClock& clock() { return clock_; }
  wire::Plan& plan() { return plan_; }
  std::size_t size() const { return nodes_.size(); }

 private:
  static wire::Endpoint endpoint_of(const Node& node) {
    wire::Endpoint endpoint;
    endpoint.member_id = node.name;
    endpoint.process = node.core->process();
    endpoint.rails = {{"fake", node.fabric->facts().protocol, node.fabric->local_address()}};
    return endpoint;
  }

  void add_node(std::uint32_t index) {
    Node node;
    const bool producer = index < options_.producers;
    node.name = producer ? "producer-" + std::to_string(index)
                         : "agent-" + std::to_string(index - options_.producers);
    node.pool = *SlabPool::open(
        {.slot_count = options_.slots, .slot_bytes = kTestSlotBytes, .huge_pages = false}, events_);
    node.observer = std::make_unique<FleetObserver>();
    auto fabric = network_.open();
    node.fabric = fabric.get();
    RelayOptions relay;
    relay.member_id = node.name;
    relay.process = ProcessId{1000 + index};
    relay.slots_per_link = options_.slots_per_link;
    RelayCore::Environment environment{*node.pool, *node.observer, events_, clock_};
    if (options_.recycle) {
      environment.reopen = [this] { return Result<std::unique_ptr<Fabric>>(network_.open()); };
    }
    auto core = RelayCore::open(relay, std::move(fabric), environment);
    EXPECT_TRUE(core) << (core ? "" : core.error().message());
    node.core = std::move(*core);
    nodes_.push_back(std::move(node));
  }

  FleetOptions options_;
  NullEventSink events_;
  ManualClock clock_;
  FakeNetwork network_;
  std::vector<Node> nodes_;
  wire::Plan plan_;
  std::map<std::uint32_t, std::uint32_t> next_;
};

}  // namespace weft::transport
