// SPDX-License-Identifier: Apache-2.0
// A trainer rank: the shipping ProducerRole over a simulated baseline, and the trainer that drives
// all ranks.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "apply/commit/producer_role.hpp"
#include "sim/agent_host.hpp"
#include "sim/host.hpp"
#include "sim/model.hpp"
#include "sim/sim_log.hpp"

namespace weft::sim {

// Threads: one at a time.
class ProducerHost final : public MemberHost {
 public:
  ProducerHost(World& world, std::string name, std::uint32_t index, const Content& base,
               Weights weights);

  const SimSpool* frames(const RefitId& refit, ProcessId process) const;
  // False: not alive, or busy.
  bool publish(Version version, const Weights& target);
  bool publishing() const { return request_ != 0; }
  const std::optional<apply::producer::PublishDone>& last() const { return last_; }
  Content content() const;
  const Weights& baseline() const { return baseline_; }

 private:
  void on_start() override;
  void on_kill(bool power) override;
  void on_opened(apply::SessionId session) override;
  void on_closed(apply::SessionId session) override;
  void on_message(apply::SessionId session, const wire::CoordinatorMessage& message) override;

  void step(const apply::ProducerEvent& event);
  void act(const apply::producer::Send& action);
  void act(const apply::producer::CloseSession& action);
  void act(const apply::producer::AppendRecord& action);
  void act(const apply::producer::StartEncode& action);
  void act(const apply::producer::UpdatePlan& action);
  void act(const apply::producer::MoveBaseline& action);
  void act(const apply::producer::DropPending& action);
  void act(const apply::producer::ComputeTargetPart& action);
  void act(const apply::producer::PublishDone& action);
  void act(const apply::producer::ShowOutcome& action);
  void act(const apply::producer::Note& action);
  void act(const apply::producer::Stop& action);

  void encode_next(RefitId refit, std::uint32_t chunk);
  void move_next(RefitId refit, std::uint32_t chunk);
  bool mine(std::uint32_t chunk) const;

  std::uint32_t index_;

  // the disk
  SimLog<apply::ProducerRecord> log_;
  Content first_content_;
  Digest first_part_;
  Weights baseline_;
  std::map<RefitId, Weights> pending_;

  // the process
  std::unique_ptr<apply::ProducerRole> role_;
  std::map<RefitId, SimSpool> frames_;
  std::set<RefitId> encoding_;
  Weights target_;
  std::uint64_t request_ = 0;
  std::optional<apply::producer::PublishDone> last_;
  TimePoint log_free_at_;
};

// Makes new values, publishes them on every rank, and goes on whatever comes back.
// Threads: one at a time.
class Trainer {
 public:
  Trainer(World& world, Weights weights) : world_(world), weights_(std::move(weights)) {}

  void start(std::uint32_t rounds);
  bool done() const { return rounds_left_ == 0 && !running_; }
  std::uint64_t success_count() const { return successes_; }
  const std::string& last_error() const { return last_error_; }

 private:
  void look();
  void begin_round();

  World& world_;
  Weights weights_;
  std::uint32_t rounds_left_ = 0;
  bool running_ = false;
  std::uint64_t successes_ = 0;
  std::string last_error_;
};

}  // namespace weft::sim
