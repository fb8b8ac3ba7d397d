// SPDX-License-Identifier: Apache-2.0
// Time, chance, network and faults of one simulated fleet, on one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "apply/commit/commit_ids.hpp"
#include "sim/checker.hpp"
#include "sim/model.hpp"
#include "sim/planted_bug.hpp"
#include "sim/random.hpp"
#include "weft/base/clock.hpp"
#include "weft/wire/messages.hpp"

namespace weft::sim {

class AgentHost;
class CoordinatorHost;
class Host;
class MemberHost;
class ProducerHost;
class Trainer;

struct SimOptions {
  std::uint64_t seed = 1;
  PlantedBug bug = PlantedBug::kNone;
  std::function<void(const std::string&)> trace;  // unset: no trace
};

struct SimReport {
  std::string violation;  // empty: none
  std::string setting;    // what the seed chose, in words
  std::uint64_t events = 0;
  std::uint64_t kills = 0;
  std::uint64_t commits = 0;
  std::uint64_t aborts = 0;
  std::uint64_t reseeds = 0;  // nodes that ask for one at the end
  std::uint64_t lagging = 0;  // nodes that were left out of a commit at the end
};

// What a seed chooses. Rates are per second and node.
struct Setting {
  std::uint32_t agent_count = 3;
  std::uint32_t producer_count = 1;
  std::uint32_t rounds = 5;
  double quorum = 1.0;
  bool replan = false;
  bool leaves = false;
  bool hooks = false;
  bool ordered = true;  // messages of a session keep their order and are not repeated
  double loss = 0;
  double kill_rate = 0;
  double power_share = 0;  // of the kills
  double partition_rate = 0;
  double log_failure = 0;  // per append
  double io_failure = 0;   // per spool, prove or apply
  double damage_rate = 0;
  std::uint64_t slow_agent = ~0ULL;
};

// Threads: one at a time.
class World {
 public:
  explicit World(SimOptions options);
  ~World();
  SimReport run();

  // --- for hosts ---
  void at(Duration delay, std::function<void()> action);
  bool tracing() const { return static_cast<bool>(options_.trace); }
  void trace(const std::string& line);
  bool faulty() const { return faulty_; }

  // A connection from this member to the coordinator, if both are there and can reach each other.
  apply::SessionId connect(MemberHost& member);
  void to_coordinator(apply::SessionId session, wire::MemberMessage message);
  void to_member(apply::SessionId session, wire::CoordinatorMessage message);
  void close(apply::SessionId session);
  void close_all_of(const Host& host);
  bool reaches(const std::string& from, const std::string& to) const;
  Host* find_host(const std::string& name);
  MemberHost* member_of(apply::SessionId session);

  TimePoint now;
  Random random;
  Setting setting;
  PlantedBug bug;
  Checker checker;
  SimReport report;
  std::unique_ptr<CoordinatorHost> coordinator;
  std::vector<std::unique_ptr<AgentHost>> agents;
  std::vector<std::unique_ptr<ProducerHost>> producers;
  std::unique_ptr<Trainer> trainer;
  std::uint64_t next_process = 1;

 private:
  struct Timed {
    TimePoint at;
    std::uint64_t order = 0;
    std::function<void()> action;
    bool operator<(const Timed& other) const {
      return std::tie(other.at, other.order) < std::tie(at, order);
    }
  };
  struct Link {
    MemberHost* member = nullptr;
    std::uint64_t member_incarnation = 0;
    std::uint64_t coordinator_incarnation = 0;
    TimePoint last_up;
    TimePoint last_down;
    bool broken = false;  // a message of an ordered session was lost: nothing comes after it
  };

  void choose_setting();
  void make_fleet();
  bool run_until(Duration limit, const std::function<bool()>& done);
  void inject_faults();
  void kill_and_restart(Host& host);
  std::vector<Host*> hosts();
  Link* usable(apply::SessionId session);
  // How often, and when, a message arrives.
  std::vector<Duration> arrivals(Link& link, TimePoint& last);
  void heal();
  std::string unrest() const;
  void check_end();

  SimOptions options_;
  std::priority_queue<Timed> queue_;
  std::uint64_t next_order_ = 0;
  std::uint64_t next_session_ = 1;
  std::map<std::uint64_t, Link> links_;
  std::set<std::string> cut_off_;  // hosts that reach nobody
  bool faulty_ = true;
};

}  // namespace weft::sim
