// SPDX-License-Identifier: Apache-2.0
// A process on a machine of the simulation: it can be killed at any moment and started again.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "apply/commit/commit_ids.hpp"
#include "sim/world.hpp"
#include "weft/wire/messages.hpp"

namespace weft::sim {

// Threads: one at a time.
class Host {
 public:
  Host(World& world, std::string name) : world_(world), name_(std::move(name)) {}
  virtual ~Host() = default;

  const std::string& name() const { return name_; }
  bool alive() const { return alive_; }
  std::uint64_t incarnation() const { return incarnation_; }

  void start() {
    alive_ = true;
    ++incarnation_;
    process_ = ProcessId{world_.next_process++};
    on_start();
  }
  // `power`: the machine loses its unsynced bytes too, and gets a new kernel boot id.
  void kill(bool power) {
    if (!alive_) return;
    alive_ = false;
    world_.close_all_of(*this);
    on_kill(power);
  }

 protected:
  virtual void on_start() = 0;
  virtual void on_kill(bool power) = 0;

  // Runs unless the process has ended by then.
  void later(Duration delay, std::function<void()> action) {
    const std::uint64_t self = incarnation_;
    world_.at(delay, [this, self, action = std::move(action)] {
      if (alive_ && incarnation_ == self) action();
    });
  }
  void tick_every(Duration period, std::function<void()> action) {
    later(period, [this, period, action] {
      action();
      tick_every(period, action);
    });
  }

  World& world_;
  std::string name_;
  bool alive_ = false;
  std::uint64_t incarnation_ = 0;
  ProcessId process_;
};

// A host with a connection to the coordinator, which it makes again when it is lost.
// Threads: one at a time.
class MemberHost : public Host {
 public:
  using Host::Host;

  void hear(apply::SessionId session, const wire::CoordinatorMessage& message) {
    if (session == session_) on_message(session, message);
  }
  void hang_up(apply::SessionId session) {
    if (session != session_) return;
    session_ = apply::SessionId{};
    on_closed(session);
    reconnect();
  }

 protected:
  virtual void on_opened(apply::SessionId session) = 0;
  virtual void on_closed(apply::SessionId session) = 0;
  virtual void on_message(apply::SessionId session, const wire::CoordinatorMessage& message) = 0;

  void reconnect() {
    later(world_.random.millis(5, 300), [this] {
      if (session_.value != 0) return;
      session_ = world_.connect(*this);
      if (session_.value == 0) {
        reconnect();
      } else {
        on_opened(session_);
      }
    });
  }
  void drop_session(apply::SessionId session) {
    world_.close(session);
    if (session != session_) return;
    session_ = apply::SessionId{};
    reconnect();
  }
  void forget_session() { session_ = apply::SessionId{}; }

  apply::SessionId session_;
};

std::string describe(const wire::MemberMessage& message);
std::string describe(const wire::CoordinatorMessage& message);

}  // namespace weft::sim
