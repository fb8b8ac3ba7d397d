// SPDX-License-Identifier: Apache-2.0
// The inside of NodeAgent: one loop thread steps AgentRole and hands its actions to jobs, frame
// workers, the relay and the control client; their completions come back as letters.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "agent/lib/frame_loader.hpp"
#include "agent/lib/jobs.hpp"
#include "agent/lib/mailbox.hpp"
#include "agent/lib/node_agent.hpp"
#include "agent/lib/node_state.hpp"
#include "agent/lib/refit_run.hpp"
#include "apply/commit/agent_role.hpp"
#include "transport/buffer/slab_pool.hpp"
#include "transport/control/control_client.hpp"
#include "transport/relay/relay.hpp"

namespace weft::agent {

// Owns:    everything of the node; members are destroyed in reverse order, so whoever calls back
//          into the mailbox is gone before it.
// Threads: the loop thread, except the observer calls and what is named any.
class NodeAgent::Body final : public transport::RelayObserver,
                              public transport::ControlClientObserver {
 public:
  Body(const AgentConfig& config, EventSink& events) : config_(config), events_(events) {}
  ~Body() override;

  Status open();
  Status run();
  void request_stop() { stop_.store(true); }  // any
  NodeSnapshot snapshot() const;              // any

 private:
  // RelayObserver, on the relay's progress thread.
  void on_frame(const RefitId& refit, ProducerIndex producer, FrameSequence sequence,
                SharedSlot frame) override;
  void on_link_lost(const RefitId& refit, std::string_view member_id, const Error& error) override;
  void on_fault(const RefitId& refit, std::string_view member_id, const Error& error) override;
  void on_frame_wanted(transport::FrameWanted wanted) override;
  // ControlClientObserver, on the client's threads.
  void on_connected() override;
  void on_message(wire::CoordinatorMessage message) override;
  void on_disconnected(Error reason) override;

  void post(apply::AgentEvent event);  // any
  void step(const apply::AgentEvent& event);
  Status open_client();
  void finish_apply();

  // node_agent.cpp: actions that are done at once
  void act(apply::agent::Send& action);
  void act(apply::agent::CloseSession& action);
  void act(apply::agent::AppendRecord& action);
  void act(apply::agent::RetireRefit& action);
  void act(apply::agent::StartResolve& action);
  void act(apply::agent::UpdatePlan& action);
  void act(apply::agent::CallAfterApply& action);
  void act(apply::agent::Probe& action);
  void act(apply::agent::ShowState& action);
  void act(apply::agent::Note& action);
  void act(apply::agent::Stop& action);
  // node_agent_refit.cpp: actions that take a job
  void act(apply::agent::ComputeTable& action);
  void act(apply::agent::OpenRefit& action);
  void act(apply::agent::Prove& action);
  void act(apply::agent::ApplyJournal& action);
  void act(apply::agent::ForgetRefit& action);
  Result<const codec::Lattice*> find_lattice(const Digest& digest);
  Status open_refit(RefitRun& run);
  Status enter_trees(RefitRun& run);
  Status prove(RefitRun& run, const wire::Manifest& manifest, TimePoint deadline);
  Status apply_refit(const RefitId& refit, const Content& target, bool check_written,
                     bool& untouched);
  void resolved(RefitRun& run, const apply::FrameId& frame, const Result<apply::Accepted>& outcome);
  Result<std::uint32_t> read_spool(const transport::FrameWanted& wanted,
                                   std::span<std::byte> into) const;

  std::shared_ptr<RefitRun> find_run(const RefitId& refit) const;  // any
  std::shared_ptr<RefitRun> take_run(const RefitId& refit);

  using Runs = std::map<RefitId, std::shared_ptr<RefitRun>>;

  const AgentConfig config_;
  EventSink& events_;
  ProcessId process_;
  std::atomic<bool> stop_{false};
  std::optional<Error> fatal_;
  std::atomic<std::uint32_t> applying_{0};
  Guarded<NodeSnapshot> snapshot_;

  Mailbox mailbox_;
  std::unique_ptr<NodeState> state_;
  Guarded<Runs> runs_;
  std::unique_ptr<apply::AgentRole> role_;
  std::deque<apply::AgentEvent> next_events_;  // completions of actions that were done at once
  bool stepping_ = false;
  bool spoiled_ = false;  // the progress thread's: a test's fault has happened

  apply::SessionId session_;
  std::uint64_t session_count_ = 0;

  std::unique_ptr<transport::SlabPool> pool_;
  std::unique_ptr<FrameWorkers> workers_;
  std::unique_ptr<FrameLoader> loader_;
  std::unique_ptr<transport::Relay> relay_;
  std::unique_ptr<transport::ControlClient> client_;
  Jobs jobs_;
};

}  // namespace weft::agent
