// SPDX-License-Identifier: Apache-2.0
// A rollout node: the shipping AgentRole over a simulated disk and a simulated stream of frames.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apply/commit/agent_role.hpp"
#include "sim/host.hpp"
#include "sim/model.hpp"
#include "sim/sim_log.hpp"

namespace weft::sim {

// One changed chunk on its way.
struct SimFrame {
  std::uint32_t producer = 0;
  std::uint32_t sequence = 0;
  std::uint32_t chunk = 0;
  std::uint64_t mask = 0;        // old xor new
  std::uint64_t new_digest = 0;  // what the result must be
};
using SimSpool = std::map<std::pair<std::uint32_t, std::uint32_t>, SimFrame>;

// Threads: one at a time.
class AgentHost final : public MemberHost {
 public:
  AgentHost(World& world, std::string name, Weights weights);

  // What a child may fetch: the frames of this refit that are held here.
  const SimSpool* frames(const RefitId& refit, ProcessId process) const;
  void damage();
  bool damaged() const { return damaged_; }

  wire::MemberState state() const { return shown_.state; }
  const Content& content() const { return shown_.content; }
  std::string why() const { return shown_.cause ? shown_.cause->detail : std::string(); }
  bool idle() const { return refits_.empty() && log_.in_flight_count() == 0; }

 private:
  struct Journal {
    SimSpool spool;
    std::map<std::uint32_t, std::uint64_t> values;  // by chunk, absolute
    bool synced = false;
  };
  struct Running {  // a refit that is open in this process
    wire::Plan plan;
    bool opened = false;
    bool resolving = false;
    std::uint64_t frames = 0;
    std::optional<wire::Manifest> manifest;
    TimePoint deadline;
  };

  void on_start() override;
  void on_kill(bool power) override;
  void on_opened(apply::SessionId session) override;
  void on_closed(apply::SessionId session) override;
  void on_message(apply::SessionId session, const wire::CoordinatorMessage& message) override;

  void step(const apply::AgentEvent& event);
  void act(const apply::agent::Send& action);
  void act(const apply::agent::CloseSession& action);
  void act(const apply::agent::AppendRecord& action);
  void act(const apply::agent::ComputeTable& action);
  void act(const apply::agent::OpenRefit& action);
  void act(const apply::agent::StartResolve& action);
  void act(const apply::agent::UpdatePlan& action);
  void act(const apply::agent::Prove& action);
  void act(const apply::agent::ApplyJournal& action);
  void act(const apply::agent::ForgetRefit& action);
  void act(const apply::agent::RetireRefit& action);
  void act(const apply::agent::CallAfterApply& action);
  void act(const apply::agent::Probe& action);
  void act(const apply::agent::ShowState& action);
  void act(const apply::agent::Note& action);
  void act(const apply::agent::Stop& action);
  void plant(const apply::AgentAction& action);

  void fetch(RefitId refit);
  void take(RefitId refit, const SimFrame& frame);
  bool resolve(RefitId refit);
  void try_prove(RefitId refit);
  void write_next(apply::agent::ApplyJournal action, std::uint32_t chunk);
  void finish_apply(const apply::agent::ApplyJournal& action);
  apply::StateEvidence look() const;
  std::vector<apply::FileIdentity> stamps() const;
  Duration io(std::uint64_t low_ms, std::uint64_t high_ms);
  void check();

  // the disk
  SimLog<apply::StateRecord> log_;
  bool log_closed_ = false;
  Weights cached_;   // what readers see
  Weights on_disk_;  // what a power cut leaves at least
  bool damaged_ = false;
  std::map<RefitId, Journal> journals_;
  apply::BootId boot_;
  std::int64_t mtime_ = 1;

  // the process
  std::unique_ptr<apply::AgentRole> role_;
  std::map<RefitId, Running> refits_;
  apply::agent::ShowState shown_;
  TimePoint log_free_at_;
};

}  // namespace weft::sim
