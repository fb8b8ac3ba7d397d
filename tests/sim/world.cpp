// SPDX-License-Identifier: Apache-2.0
#include "sim/world.hpp"

#include <algorithm>
#include <utility>

#include "sim/agent_host.hpp"
#include "sim/coordinator_host.hpp"
#include "sim/producer_host.hpp"

namespace weft::sim {

World::World(SimOptions options)
    : now(Duration(std::chrono::seconds(1))),
      random(options.seed),
      bug(options.bug),
      options_(std::move(options)) {
  choose_setting();
  make_fleet();
}

World::~World() = default;

void World::choose_setting() {
  setting.agent_count = static_cast<std::uint32_t>(random.between(1, 7));
  setting.producer_count = random.chance(0.3) ? 2 : 1;
  setting.quorum = random.chance(0.5) ? 1.0 : 0.6;
  setting.replan = random.chance(0.8);
  setting.leaves = random.chance(0.5);
  setting.hooks = random.chance(0.3);
  setting.ordered = random.chance(0.6);
  if (random.chance(0.6)) setting.loss = static_cast<double>(random.below(60)) / 1000;
  if (random.chance(0.8)) setting.kill_rate = static_cast<double>(random.below(150)) / 1000;
  setting.power_share = random.chance(0.5) ? 0.5 : 0;
  if (random.chance(0.4)) setting.partition_rate = static_cast<double>(random.below(80)) / 1000;
  if (random.chance(0.4)) setting.log_failure = static_cast<double>(random.below(30)) / 1000;
  if (random.chance(0.5)) setting.io_failure = static_cast<double>(random.below(150)) / 1000;
  if (random.chance(0.2)) setting.damage_rate = 0.01;
  if (random.chance(0.2)) setting.slow_agent = random.below(setting.agent_count);
  const auto permille = [](double rate) {
    return std::to_string(static_cast<int>(rate * 1000 + 0.5));
  };
  report.setting = std::to_string(setting.agent_count) + " agents, " +
                   std::to_string(setting.producer_count) + " producers, quorum " +
                   permille(setting.quorum) + ", replan " + std::to_string(setting.replan) +
                   ", leaves " + std::to_string(setting.leaves) + ", ordered " +
                   std::to_string(setting.ordered) + "; per mille: loss " + permille(setting.loss) +
                   ", kills " + permille(setting.kill_rate) + ", partitions " +
                   permille(setting.partition_rate) + ", log failures " +
                   permille(setting.log_failure) + ", io failures " + permille(setting.io_failure);
}

void World::make_fleet() {
  Weights weights(kChunkCount);
  for (Chunk& chunk : weights) chunk.value = random.next();
  const Content base{Version{random.between(1, 5)}, lattice_digest(setting.producer_count),
                     root_of(weights, setting.producer_count)};
  checker.know(base.root, weights);
  coordinator = std::make_unique<CoordinatorHost>(*this);
  for (std::uint32_t i = 0; i < setting.agent_count; ++i) {
    Weights own = weights;
    if (i > 0 && random.chance(0.03)) own[0].value ^= 1;  // a stranger's checkpoint
    agents.push_back(std::make_unique<AgentHost>(*this, "agent-" + std::to_string(i), own));
  }
  for (std::uint32_t p = 0; p < setting.producer_count; ++p) {
    producers.push_back(
        std::make_unique<ProducerHost>(*this, "producer-" + std::to_string(p), p, base, weights));
  }
  trainer = std::make_unique<Trainer>(*this, weights);
}

std::vector<Host*> World::hosts() {
  std::vector<Host*> all{coordinator.get()};
  for (const auto& host : agents) all.push_back(host.get());
  for (const auto& host : producers) all.push_back(host.get());
  return all;
}

Host* World::find_host(const std::string& name) {
  for (Host* host : hosts()) {
    if (host->name() == name) return host;
  }
  return nullptr;
}

void World::at(Duration delay, std::function<void()> action) {
  queue_.push({now + delay, next_order_++, std::move(action)});
}

void World::trace(const std::string& line) {
  if (!options_.trace) return;
  const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(now.time_since_epoch());
  std::string stamp = std::to_string(micros.count() % 1'000'000);
  stamp.insert(0, 6 - stamp.size(), '0');
  options_.trace(std::to_string(micros.count() / 1'000'000) + "." + stamp + " " + line);
}

// True: `done` came true within the limit (of simulated time).
bool World::run_until(Duration limit, const std::function<bool()>& done) {
  const TimePoint end = now + limit;
  TimePoint look_at = now;
  while (!queue_.empty() && checker.violation().empty()) {
    if (now >= look_at) {
      if (done()) return true;
      look_at = now + std::chrono::milliseconds(50);
    }
    Timed next = queue_.top();
    if (next.at > end) return false;
    queue_.pop();
    now = std::max(now, next.at);
    next.action();
    ++report.events;
  }
  return false;
}

// --- network ---

bool World::reaches(const std::string& from, const std::string& to) const {
  return !cut_off_.contains(from) && !cut_off_.contains(to);
}

apply::SessionId World::connect(MemberHost& member) {
  if (!coordinator->serving() || !reaches(member.name(), coordinator->name())) return {};
  const apply::SessionId session{next_session_++};
  Link& link = links_[session.value];
  link.member = &member;
  link.member_incarnation = member.incarnation();
  link.coordinator_incarnation = coordinator->incarnation();
  return session;
}

World::Link* World::usable(apply::SessionId session) {
  const auto found = links_.find(session.value);
  if (found == links_.end() || found->second.broken) return nullptr;
  return &found->second;
}

MemberHost* World::member_of(apply::SessionId session) {
  const auto found = links_.find(session.value);
  return found == links_.end() ? nullptr : found->second.member;
}

std::vector<Duration> World::arrivals(Link& link, TimePoint& last) {
  const bool cut = !reaches(link.member->name(), coordinator->name());
  const bool lost = cut || (faulty_ && random.chance(setting.loss));
  if (lost) {
    if (setting.ordered) link.broken = true;
    return {};
  }
  if (setting.ordered) {
    last = std::max(last, now + random.millis(1, 15));
    return {last - now};
  }
  std::vector<Duration> times{random.millis(1, 40)};
  if (faulty_ && random.chance(0.05)) times.push_back(random.millis(1, 1500));
  return times;
}

void World::to_coordinator(apply::SessionId session, wire::MemberMessage message) {
  Link* link = usable(session);
  if (!link) return;
  for (const Duration delay : arrivals(*link, link->last_up)) {
    at(delay, [this, session, message] {
      Link* open = usable(session);
      const bool there = open && coordinator->serving() &&
                         coordinator->incarnation() == open->coordinator_incarnation;
      if (!there) return;
      if (tracing()) trace(open->member->name() + " > " + describe(message));
      coordinator->hear(session, message);
    });
  }
}

void World::to_member(apply::SessionId session, wire::CoordinatorMessage message) {
  Link* link = usable(session);
  if (!link) return;
  for (const Duration delay : arrivals(*link, link->last_down)) {
    at(delay, [this, session, message] {
      Link* open = usable(session);
      const bool there =
          open && open->member->alive() && open->member->incarnation() == open->member_incarnation;
      if (!there) return;
      if (tracing()) trace(open->member->name() + " < " + describe(message));
      open->member->hear(session, message);
    });
  }
}

// Both ends learn of it, each if it is still there.
void World::close(apply::SessionId session) {
  const auto found = links_.find(session.value);
  if (found == links_.end()) return;
  const Link link = found->second;
  links_.erase(found);
  at(random.millis(1, 10), [this, session, link] {
    if (coordinator->serving() && coordinator->incarnation() == link.coordinator_incarnation) {
      coordinator->hang_up(session);
    }
    if (link.member->alive() && link.member->incarnation() == link.member_incarnation) {
      link.member->hang_up(session);
    }
  });
}

void World::close_all_of(const Host& host) {
  std::vector<apply::SessionId> sessions;
  for (const auto& [id, link] : links_) {
    if (link.member == &host || &host == coordinator.get()) {
      sessions.push_back(apply::SessionId{id});
    }
  }
  for (const apply::SessionId session : sessions) close(session);
}

// --- faults ---

void World::kill_and_restart(Host& host) {
  if (!host.alive()) return;
  const bool power = random.chance(setting.power_share);
  trace(host.name() + (power ? " loses power" : " is killed"));
  ++report.kills;
  host.kill(power);
  at(random.millis(50, 3000), [&host] {
    if (!host.alive()) host.start();
  });
}

void World::inject_faults() {
  if (!faulty_) return;
  constexpr double kStep = 0.05;
  for (Host* host : hosts()) {
    if (random.chance(setting.kill_rate * kStep)) kill_and_restart(*host);
    if (random.chance(setting.partition_rate * kStep)) {
      trace(host->name() + " is cut off");
      cut_off_.insert(host->name());
      at(random.millis(100, 5000), [this, name = host->name()] {
        if (cut_off_.erase(name) > 0) trace(name + " is reachable again");
      });
    }
  }
  for (const auto& host : agents) {
    if (random.chance(setting.damage_rate * kStep)) host->damage();
  }
  at(std::chrono::milliseconds(50), [this] { inject_faults(); });
}

void World::heal() {
  trace("no more faults");
  faulty_ = false;
  cut_off_.clear();
  for (Host* host : hosts()) {
    if (!host->alive()) host->start();
  }
}

// --- the run ---

SimReport World::run() {
  for (Host* host : hosts()) {
    at(random.millis(0, 400), [host] {
      if (!host->alive()) host->start();
    });
  }
  trainer->start(setting.rounds);
  at(std::chrono::milliseconds(500), [this] { inject_faults(); });
  run_until(std::chrono::seconds(90), [this] { return trainer->done(); });
  heal();
  // What was lost before is noticed first: connections that look open and are not.
  run_until(std::chrono::seconds(3), [] { return false; });
  if (!run_until(std::chrono::seconds(60), [this] { return unrest().empty(); })) {
    checker.violate("not quiet a minute after the last fault: " + unrest());
  }
  check_end();
  report.violation = checker.violation();
  report.commits = checker.commit_count();
  report.aborts = checker.abort_count();
  return report;
}

// What still keeps the fleet from rest; empty: nothing.
std::string World::unrest() const {
  if (!trainer->done()) return "the trainer publishes";
  if (!coordinator->serving()) return "no coordinator";
  if (coordinator->view().refit) return "a refit is open";
  const Content& committed = checker.committed();
  for (const auto& host : agents) {
    const wire::MemberState state = host->state();
    const bool behind = host->content().version < committed.version;
    const bool rests =
        state == wire::MemberState::kNeedsReseed ||
        (state == wire::MemberState::kLagging && behind) ||
        (state == wire::MemberState::kClean && host->content().version == committed.version) ||
        (state == wire::MemberState::kUnversioned && committed.version.value == 0);
    if (!rests || !host->idle()) {
      return host->name() + " is in state " + std::to_string(static_cast<int>(state)) +
             " at version " + std::to_string(host->content().version.value) + " of " +
             std::to_string(committed.version.value) + " " + host->why();
    }
  }
  for (const apply::MemberView& seen : coordinator->view().members) {
    for (const auto& host : agents) {
      if (host->name() == seen.id && (host->state() != seen.state || !seen.connected)) {
        return "the coordinator sees " + seen.id + " in state " +
               std::to_string(static_cast<int>(seen.state));
      }
    }
  }
  for (const auto& host : producers) {
    if (committed.version.value != 0 && host->content() != committed) {
      return host->name() + "'s baseline is at version " +
             std::to_string(host->content().version.value);
    }
  }
  return {};
}

// Everyone is clean at one of two versions or says why not, and the next publish succeeds.
void World::check_end() {
  if (!checker.violation().empty()) return;
  const std::uint64_t before = trainer->success_count();
  std::uint32_t able = 0;
  std::uint32_t damaged = 0;  // each may spoil one attempt and its retry before it is found
  for (const auto& host : agents) {
    able += !host->damaged() && (host->state() == wire::MemberState::kClean ||
                                 host->state() == wire::MemberState::kUnversioned);
    damaged += host->damaged();
    report.reseeds += host->state() == wire::MemberState::kNeedsReseed;
    report.lagging += host->state() == wire::MemberState::kLagging;
  }
  trainer->start(1 + damaged);
  const bool ended = run_until(std::chrono::seconds(60), [this] { return unrest().empty(); });
  if (!checker.violation().empty()) return;
  if (!ended) {
    checker.violate("not quiet a minute after the last publish: " + unrest());
  } else if (able > 0 && trainer->success_count() == before) {
    checker.violate("every publish after the last fault failed: " + trainer->last_error());
  }
}

}  // namespace weft::sim
