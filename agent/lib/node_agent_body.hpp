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
#include "apply/hook/hooks.hpp"
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
  void close_client();
  Status open_hooks();
  void open_scrubber();
  std::optional<apply::ScrubSubject> scrub_subject() const;  // any
  void finish_apply();

  // Beside its status: what an apply that failed has done.
  struct ApplyOutcome {
    bool untouched = true;
    bool by_hook = false;
    double pause_seconds = 0;
  };

  // node_agent.cpp: actions that are done at once
  void act(apply::agent::Send& action);
  void act(apply::agent::CloseSession& action);
  void act(apply::agent::AppendRecord& action);
  void act(apply::agent::RetireRefit& action);
  void act(apply::agent::UpdatePlan& action);
  void act(apply::agent::Probe& action);
  void act(apply::agent::ShowState& action);
  void act(apply::agent::Note& action);
  void act(apply::agent::Stop& action);
  // node_agent_apply.cpp
  void act(apply::agent::ApplyJournal& action);
  void act(apply::agent::CallAfterApply& action);
  apply::PatchOptions patch_options() const;
  apply::HookFacts hook_facts(const RefitId& refit, const Content& content) const;
  Status before_apply(const apply::agent::ApplyJournal& action, bool& by_hook) const;
  Status apply_in_place(const apply::agent::ApplyJournal& action, ApplyOutcome& outcome);
  Status apply_to_standby(const apply::agent::ApplyJournal& action,
                          const std::vector<RefitId>& retained, ApplyOutcome& outcome);
  // node_agent_refit.cpp: actions that take a job
  void act(apply::agent::ComputeTable& action);
  void act(apply::agent::OpenRefit& action);
  void act(apply::agent::StartResolve& action);
  void act(apply::agent::Prove& action);
  void act(apply::agent::ForgetRefit& action);
  Result<const codec::Lattice*> find_lattice(const Digest& digest);
  Status open_refit(RefitRun& run, bool resolve);
  Status check_schema(const wire::Plan& plan) const;
  Status open_spool(RefitRun& run);
  Status open_resolver(RefitRun& run);
  void refetch_unresolved(RefitRun& run);
  Status enter_trees(RefitRun& run);
  Status prove(RefitRun& run, const wire::Manifest& manifest, TimePoint deadline);
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
  std::atomic<std::uint64_t> applies_begun_{0};
  std::atomic<std::uint32_t> tables_under_way_{0};
  std::atomic<bool> damaged_{false};       // known: needs a reseed
  std::atomic<bool> half_applied_{false};  // an apply ended half way, in this run or before
  Guarded<NodeSnapshot> snapshot_;

  std::unique_ptr<apply::Hooks> hooks_;
  Mailbox mailbox_;
  std::unique_ptr<NodeState> state_;
  Guarded<Runs> runs_;
  std::unique_ptr<apply::AgentRole> role_;
  std::deque<apply::AgentEvent> next_events_;  // completions of actions that were done at once
  bool stepping_ = false;
  bool spoiled_ = false;  // the progress thread's: a test's fault has happened

  apply::SessionId session_;
  std::uint64_t session_count_ = 0;
  TimePoint client_at_;  // not opened before
  Duration client_pause_{};

  std::unique_ptr<transport::SlabPool> pool_;
  std::unique_ptr<FrameWorkers> workers_;
  std::unique_ptr<FrameLoader> loader_;
  std::unique_ptr<transport::Relay> relay_;
  std::unique_ptr<transport::ControlClient> client_;
  Jobs jobs_;
  std::unique_ptr<apply::Scrubber> scrubber_;
};

}  // namespace weft::agent
