// SPDX-License-Identifier: Apache-2.0
// The coordinator's machine: the shipping CoordinatorRole over a simulated decision log.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "apply/commit/coordinator_role.hpp"
#include "sim/host.hpp"
#include "sim/sim_log.hpp"

namespace weft::sim {

// Threads: one at a time.
class CoordinatorHost final : public Host {
 public:
  explicit CoordinatorHost(World& world);

  bool serving() const { return alive() && serving_; }
  void hear(apply::SessionId session, wire::MemberMessage message);
  void hang_up(apply::SessionId session);
  apply::FleetView view() const { return role_->view(); }

 private:
  void on_start() override;
  void on_kill(bool power) override;

  void step(const apply::CoordinatorEvent& event);
  void act(const apply::coordinator::Send& action);
  void act(const apply::coordinator::CloseSession& action);
  void act(const apply::coordinator::RewriteLog& action);
  void act(const apply::coordinator::AppendRecord& action);
  void act(const apply::coordinator::Serve& action);
  void act(const apply::coordinator::OperatorAnswer& action);
  void act(const apply::coordinator::Note& action);
  void act(const apply::coordinator::Stop& action);
  void plant(wire::MemberMessage& message);
  void halt();

  SimLog<apply::CoordinatorRecord> log_;
  FleetId fleet_;

  std::unique_ptr<apply::CoordinatorRole> role_;
  bool serving_ = false;
  std::optional<wire::Manifest> sealed_;
  TimePoint log_free_at_;
};

}  // namespace weft::sim
