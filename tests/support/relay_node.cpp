// SPDX-License-Identifier: Apache-2.0
// A process with one relay, driven by lines on its standard input; answers each with one line.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <unistd.h>

#include "support/test_frame.hpp"
#include "support/tracing_fabric.hpp"
#include "support/trap_fabric.hpp"
#include "transport/fabric/ofi_fabric.hpp"
#include "transport/relay/relay.hpp"
#include "transport/tree/reattach.hpp"
#include "transport/tree/relay_plan.hpp"

namespace weft::transport {
namespace {

using std::chrono::milliseconds;

constexpr unsigned kAlarmSeconds = 100;

// Threads: any.
class NodeObserver final : public RelayObserver {
 public:
  struct Received {
    ProducerIndex producer;
    FrameSequence sequence;
    const std::byte* address;
  };
  void on_frame(const RefitId& refit, ProducerIndex producer, FrameSequence sequence,
                SharedSlot frame) override {
    const bool good = holds_test_bytes(frame.frame());
    std::lock_guard lock(mutex);
    held[refit].insert({producer, sequence});
    received.push_back({producer, sequence, frame.frame().data()});
    payload_bytes = static_cast<std::uint32_t>(frame.frame().size() - limits::kFrameHeaderBytes -
                                               wire::kIndexEntryBytes);
    if (pace.count() > 0) unread.push_back(std::move(frame));
    ++frames;
    bad += good ? 0 : 1;
    changed.notify_all();
  }
  void on_link_lost(const RefitId&, std::string_view member_id, const Error& error) override {
    std::lock_guard lock(mutex);
    lost.push_back(std::string(member_id) + " " + std::string(to_string(error.code)));
    changed.notify_all();
  }
  void on_fault(const RefitId&, std::string_view member_id, const Error& error) override {
    std::lock_guard lock(mutex);
    faults.push_back(std::string(member_id) + " " + error.message());
  }
  void on_frame_wanted(FrameWanted asked) override {
    std::lock_guard lock(mutex);
    wanted.push_back(std::move(asked));
    changed.notify_all();
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Received> received;
  std::map<RefitId, std::set<std::pair<ProducerIndex, FrameSequence>>> held;
  std::uint64_t frames = 0;
  std::uint64_t bad = 0;
  std::vector<std::string> lost;
  std::vector<std::string> faults;
  std::vector<FrameWanted> wanted;
  std::uint32_t payload_bytes = 0;
  milliseconds pace{0};  // between two slots that are given back; 0: at once
  std::deque<SharedSlot> unread;
  bool closing = false;
};

std::string hex_of(const std::vector<std::byte>& bytes) {
  std::string text;
  char digits[3];
  for (const std::byte byte : bytes) {
    std::snprintf(digits, sizeof(digits), "%02x", static_cast<unsigned>(byte));
    text += digits;
  }
  return text;
}

std::vector<std::byte> bytes_of(const std::string& hex) {
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

// Threads: one at a time.
class RelayNode {
 public:
  bool open(const RelayOptions& options) {
    pool_ = *SlabPool::open({.slot_count = 32}, events_);
    auto fabric = open_fabric(options.fabric, events_);
    if (!fabric) return say("error " + fabric.error().message());
    auto trap = std::make_unique<TrapFabric>(std::move(*fabric));
    trap_ = trap.get();
    auto tracing = std::make_unique<TracingFabric>(std::move(trap));
    tracing_ = tracing.get();
    auto relay = Relay::open_on(std::move(tracing), options, *pool_, observer_, events_);
    if (!relay) return say("error " + relay.error().message());
    relay_ = std::move(*relay);
    service_ = std::thread([this] { serve(); });
    const wire::RailAddress rail = relay_->rails().at(0);
    return say("ready " + std::to_string(relay_->process().value) + " " + rail.provider + " " +
               std::to_string(rail.protocol) + " " + hex_of(rail.address));
  }

  bool carry_out(const std::string& line) {
    std::istringstream in(line);
    std::string verb;
    in >> verb;
    if (verb == "enter") return enter(in);
    if (verb == "send") return send(in);
    if (verb == "drain") return drain(in);
    if (verb == "wait") return wait_frames(in);
    if (verb == "whole") return wait_whole(in);
    if (verb == "replan") return replan(in);
    if (verb == "trap") return set_trap(in);
    if (verb == "refetch") return refetch(in);
    if (verb == "waitlost") return wait_lost(in);
    if (verb == "check") return check();
    if (verb == "pace") return pace(in);
    if (verb == "leave") {
      relay_->leave(plan_.refit);
      return say("left");
    }
    return say("error unknown " + verb);
  }

  void close() {
    {
      std::lock_guard lock(observer_.mutex);
      observer_.closing = true;
      observer_.changed.notify_all();
    }
    if (service_.joinable()) service_.join();
    const Status closed = relay_->close(milliseconds(5000));
    relay_.reset();
    observer_.wanted.clear();  // what was asked for when nobody served any more
    say(std::string("closed ") + (closed ? "in_time" : "late") + " " +
        std::to_string(pool_->free_count()) + "/" + std::to_string(pool_->slot_count()));
  }

 private:
  static bool say(const std::string& line) {
    std::cout << line << std::endl;
    return true;
  }

  bool enter(std::istringstream& in) {
    wire::Plan plan;
    std::uint32_t agents = 0;
    std::uint32_t self = 0;
    in >> plan.refit.attempt >> plan.shape >> plan.producer_count >> agents >> self;
    plan.refit.epoch.number = 1;
    plan.fleet = FleetId{{11, 12}};
    plan.base.lattice = Digest{{13, 14}};
    for (std::uint32_t i = 0; i < plan.producer_count + agents; ++i) {
      wire::Endpoint endpoint;
      wire::RailAddress rail;
      std::string address;
      in >> endpoint.member_id >> endpoint.process.value >> rail.provider >> rail.protocol >>
          address;
      rail.address = bytes_of(address);
      endpoint.rails.push_back(rail);
      plan.nodes.push_back(endpoint);
    }
    auto relays = plan_relays({plan.shape, plan.producer_count, agents});
    if (!relays) return say("error " + relays.error().message());
    plan.trees = std::move(relays->trees);
    {
      std::lock_guard lock(observer_.mutex);
      plan_ = plan;
    }
    self_ = self;
    next_ = 0;
    const Status entered = relay_->enter(plan_, NodeIndex{self});
    return say(entered ? "entered" : "error " + entered.error().message());
  }

  bool send(std::istringstream& in) {
    std::uint32_t count = 0;
    std::uint32_t payload_bytes = 0;
    in >> count >> payload_bytes;
    {
      std::lock_guard lock(observer_.mutex);
      observer_.payload_bytes = payload_bytes;
    }
    for (std::uint32_t i = 0; i < count; ++i) {
      auto lease = pool_->acquire(milliseconds(20'000));
      if (!lease) return say("error " + lease.error().message());
      SharedSlot frame = make_frame(std::move(*lease), plan_, self_, next_++, payload_bytes);
      wire::FrameHeader header;
      std::memcpy(&header, frame.frame().data(), sizeof(header));
      const Status injected = relay_->inject(ProducerIndex{self_}, header, std::move(frame));
      if (!injected) return say("error " + injected.error().message());
    }
    return say("sent " + std::to_string(next_));
  }

  bool pace(std::istringstream& in) {
    int pace_ms = 0;
    in >> pace_ms;
    std::lock_guard lock(observer_.mutex);
    observer_.pace = milliseconds(pace_ms);
    return say("paced");
  }

  // Stands for spool and disk: makes frames again that others ask for, and reads at a given pace.
  void serve() {
    auto next_read = std::chrono::steady_clock::now();
    std::unique_lock lock(observer_.mutex);
    while (!observer_.closing) {
      observer_.changed.wait_until(lock, next_read,
                                   [&] { return observer_.closing || !observer_.wanted.empty(); });
      std::vector<FrameWanted> wanted = std::exchange(observer_.wanted, {});
      const std::uint32_t payload_bytes = observer_.payload_bytes;
      const wire::Plan plan = wanted.empty() ? wire::Plan{} : plan_;
      const auto now = std::chrono::steady_clock::now();
      SharedSlot read;
      if (now >= next_read) {
        next_read = now + std::max(observer_.pace, milliseconds(1));
        if (!observer_.unread.empty()) {
          read = std::move(observer_.unread.front());
          observer_.unread.pop_front();
        }
      }
      lock.unlock();
      read.drop();
      for (FrameWanted& asked : wanted) {
        relay_->provide(make_frame(std::move(asked.room), plan, asked.producer.value,
                                   asked.sequence.value, payload_bytes));
      }
      lock.lock();
    }
    observer_.unread.clear();
  }

  bool drain(std::istringstream& in) {
    int timeout_ms = 0;
    in >> timeout_ms;
    const Status drained = relay_->wait_drained(plan_.refit, milliseconds(timeout_ms));
    return say(drained ? "drained" : "error " + drained.error().message());
  }

  bool wait_frames(std::istringstream& in) {
    std::uint64_t frames = 0;
    int timeout_ms = 0;
    in >> frames >> timeout_ms;
    std::unique_lock lock(observer_.mutex);
    observer_.changed.wait_for(lock, milliseconds(timeout_ms),
                               [&] { return observer_.frames >= frames; });
    return say("frames " + std::to_string(observer_.frames));
  }

  // Of the refit entered last; a frame that came twice counts once.
  bool wait_whole(std::istringstream& in) {
    std::uint64_t frames = 0;
    int timeout_ms = 0;
    in >> frames >> timeout_ms;
    std::unique_lock lock(observer_.mutex);
    const auto& held = observer_.held[plan_.refit];
    observer_.changed.wait_for(lock, milliseconds(timeout_ms),
                               [&] { return held.size() >= frames; });
    return say("whole " + std::to_string(held.size()) + " bad=" + std::to_string(observer_.bad));
  }

  // As a coordinator does it: the same trees without a node.
  bool replan(std::istringstream& in) {
    std::uint32_t gone = 0;
    in >> gone;
    wire::Plan plan = plan_;
    ++plan.revision;
    plan.nodes.erase(plan.nodes.begin() + gone);
    auto trees = reattach({plan_, plan.nodes, std::vector<bool>(plan.nodes.size())});
    if (!trees) return say("error " + trees.error().message());
    plan.trees = std::move(*trees);
    if (self_ > gone) --self_;
    {
      std::lock_guard lock(observer_.mutex);
      plan_ = plan;
    }
    const Status entered = relay_->enter(plan_, NodeIndex{self_});
    return say(entered ? "entered" : "error " + entered.error().message());
  }

  bool set_trap(std::istringstream& in) {
    Trap trap;
    in >> trap.action >> trap.point >> trap.count;
    trap_->arm(std::move(trap));
    return say("armed");
  }

  bool refetch(std::istringstream& in) {
    FrameSequence sequence;
    in >> sequence.value;
    {
      std::lock_guard lock(observer_.mutex);
      observer_.held[plan_.refit].erase({ProducerIndex{0}, sequence});
    }
    relay_->refetch(plan_.refit, ProducerIndex{0}, sequence);
    return say("asked");
  }

  bool wait_lost(std::istringstream& in) {
    int timeout_ms = 0;
    std::size_t count = 1;
    in >> timeout_ms >> count;
    if (!in) count = 1;
    std::unique_lock lock(observer_.mutex);
    observer_.changed.wait_for(lock, milliseconds(timeout_ms),
                               [&] { return observer_.lost.size() >= count; });
    std::string text = "lost";
    for (const std::string& member : observer_.lost) text += " " + member;
    return say(text);
  }

  // Whether each received frame was posted from where it lay, for every child, and nothing from
  // elsewhere. A write that was not seen in time is posted again, so that there may be more.
  bool check() {
    std::lock_guard lock(observer_.mutex);
    std::multiset<const std::byte*> expected;
    std::set<const std::byte*> received;
    const std::size_t stripes = plan_.trees.size() / plan_.producer_count;
    for (const auto& [producer, sequence, address] : observer_.received) {
      const auto& tree = plan_.trees[producer.value * stripes + sequence.value % stripes];
      for (std::size_t i = 0; i < tree.nodes[self_].children.size(); ++i) expected.insert(address);
      received.insert(address);
    }
    const auto posted = tracing_->posted();
    const bool same =
        std::includes(posted.begin(), posted.end(), expected.begin(), expected.end()) &&
        std::all_of(posted.begin(), posted.end(),
                    [&](const std::byte* address) { return received.contains(address); });
    return say("check frames=" + std::to_string(observer_.frames) +
               " bad=" + std::to_string(observer_.bad) +
               " faults=" + std::to_string(observer_.faults.size()) +
               " lost=" + std::to_string(observer_.lost.size()) +
               " posted_where_received=" + (same ? "yes" : "no"));
  }

  NullEventSink events_;
  std::unique_ptr<SlabPool> pool_;
  NodeObserver observer_;
  TracingFabric* tracing_ = nullptr;
  TrapFabric* trap_ = nullptr;
  std::unique_ptr<Relay> relay_;
  wire::Plan plan_;
  std::uint32_t self_ = 0;
  std::uint32_t next_ = 0;
  std::thread service_;
};

}  // namespace
}  // namespace weft::transport

// relay_node MEMBER PROVIDER LOST_MS LOW_PERCENT [ADDRESS [CONNECT_MS]]
int main(int argc, char** argv) {
  if (argc < 5 || argc > 7) return 2;
  alarm(weft::transport::kAlarmSeconds);
  const std::chrono::milliseconds lost(std::stoi(argv[3]));
  weft::transport::RelayOptions options;
  options.member_id = argv[1];
  options.fabric.provider = argv[2];
  options.fabric.address = argc > 5 ? argv[5] : "127.0.0.1";
  options.times.lost = lost;
  options.times.suspect = lost / 3;
  options.low_percent = static_cast<std::uint32_t>(std::stoi(argv[4]));
  if (argc > 6) options.times.connect = std::chrono::milliseconds(std::stoi(argv[6]));
  weft::transport::RelayNode node;
  if (!node.open(options)) return 1;
  std::string line;
  while (std::getline(std::cin, line) && line != "quit") node.carry_out(line);
  node.close();
  return 0;
}
