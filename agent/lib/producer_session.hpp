// SPDX-License-Identifier: Apache-2.0
// A producer's session with coordinator and trees: for one publish() or a whole training run.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <thread>

#include "agent/lib/config.hpp"
#include "agent/lib/frame_loader.hpp"
#include "agent/lib/jobs.hpp"
#include "agent/lib/kept_frames.hpp"
#include "agent/lib/mailbox.hpp"
#include "agent/lib/refit_slots.hpp"
#include "apply/commit/producer_role.hpp"
#include "transport/buffer/slab_pool.hpp"
#include "transport/control/control_client.hpp"
#include "transport/relay/relay.hpp"
#include "weft/base/guarded.hpp"
#include "weft/wire/frame.hpp"

namespace weft::agent {

// What a session is about; all of it must outlive the session.
// Threads: immutable; the functions are called by the loop thread or a job of it, the two that
// change values never while the caller encodes.
struct ProducerInput {
  transport::HostPort coordinator;
  ProducerIndex producer;
  std::uint32_t producer_count = 1;
  Digest schema;
  apply::ProducerRecovery recovery;       // what the baseline is, and what is pending beside it
  std::function<Status()> move_baseline;  // each of these may be empty
  std::function<void()> drop_pending;
  // Durable when it returns; empty: what this process knows ends with it.
  std::function<Status(const apply::ProducerRecord&)> append;
  std::function<Result<Digest>()> target_part;  // empty: the target's values are not at hand
  std::function<bool()> stop_requested;         // polled: gives the publish up
};

// ProducerSession owns the loop thread that steps ProducerRole, the relay and the control client.
// The caller's thread waits in next_plan() and wait_done(), and encodes between enter_encode() and
// leave_encode().
// Life:    open -> (begin -> (next_plan -> enter_encode, inject, leave_encode, ... -> seal)* ->
//          wait_done)*; cancel at any time.
// Threads: one at a time, except inject(): any, and the observer calls.
class ProducerSession final : public transport::RelayObserver,
                              public transport::ControlClientObserver {
 public:
  static Result<std::unique_ptr<ProducerSession>> open(const PublisherConfig& config,
                                                       const ProducerInput& input,
                                                       EventSink& events);
  ~ProducerSession() override;

  // The request number is chosen here.
  void begin(apply::producer::Publish publish);
  // The next attempt, once all producers have begun and this one has its place in the trees. None:
  // there is no further one, wait_done() says why.
  std::optional<wire::Plan> next_plan();
  // False: the refit has ended.
  bool enter_encode();
  void leave_encode();
  // Errors: kBusy (the refit has ended), those of KeptFrames::keep and Relay::inject.
  Status inject(const wire::FrameHeader& header, const SharedSlot& slot);
  // Every frame has been injected, or encoding has failed.
  void seal(const Result<wire::ProducerSeal>& seal);
  void cancel(Error reason);
  // The answer to begin(): after seal(), cancel(), or whenever there is no further attempt.
  apply::producer::PublishDone wait_done();
  // No further frame of the last plan may go out.
  bool ended() const;

  const RefitId& refit() const { return refit_; }  // of the last plan; the caller's thread
  SlotSource& slots() { return *slots_; }
  Content content() const;

 private:
  ProducerSession(const PublisherConfig& config, const ProducerInput& input, EventSink& events)
      : config_(config), input_(input), events_(events), content_(input.recovery.content) {}
  struct Progress {
    std::optional<wire::Plan> plan;    // not yet taken by next_plan()
    std::optional<RefitId> open;       // whose frames may go out
    std::shared_ptr<KeptFrames> kept;  // every frame of the open refit, until its decision
    std::optional<apply::producer::PublishDone> done;
    bool encoding = false;  // the caller's thread is at work
  };

  void on_frame(const RefitId& refit, ProducerIndex producer, FrameSequence sequence,
                SharedSlot frame) override;
  void on_link_lost(const RefitId& refit, std::string_view member_id, const Error& error) override;
  void on_fault(const RefitId& refit, std::string_view member_id, const Error& error) override;
  void on_frame_wanted(transport::FrameWanted wanted) override;
  void on_connected() override;
  void on_message(wire::CoordinatorMessage message) override;
  void on_disconnected(Error reason) override;

  Status start();
  Status open_relay();
  Status open_client();
  void run();
  void check_stop();
  void check_client();
  void post(apply::ProducerEvent event);
  void step(const apply::ProducerEvent& event);

  void act(apply::producer::Send& action);
  void act(apply::producer::CloseSession& action);
  void act(apply::producer::AppendRecord& action);
  void act(apply::producer::StartEncode& action);
  void act(apply::producer::UpdatePlan& action);
  void act(apply::producer::MoveBaseline& action);
  void act(apply::producer::DropPending& action);
  void act(apply::producer::ComputeTargetPart& action);
  void act(apply::producer::PublishDone& action);
  void act(apply::producer::ShowOutcome& action);
  void act(apply::producer::Note& action);
  void act(apply::producer::Stop& action);
  void end_refit(const RefitId& refit);
  void wait_idle();
  std::shared_ptr<KeptFrames> kept(const RefitId& refit) const;  // any

  const PublisherConfig config_;
  const ProducerInput input_;
  EventSink& events_;
  ProcessId process_;
  RefitId refit_;  // the caller's thread's
  std::uint64_t injected_frames_ = 0;
  std::uint64_t injected_bytes_ = 0;

  Mailbox mailbox_;
  Guarded<Progress> progress_;
  Guarded<Content> content_;
  std::unique_ptr<apply::ProducerRole> role_;
  std::deque<apply::ProducerEvent> next_events_;
  bool stepping_ = false;
  bool stop_said_ = false;
  apply::SessionId session_;
  std::uint64_t session_count_ = 0;

  std::unique_ptr<transport::SlabPool> pool_;
  std::unique_ptr<RefitSlots> slots_;
  std::unique_ptr<FrameLoader> loader_;
  std::unique_ptr<transport::Relay> relay_;
  std::unique_ptr<transport::ControlClient> client_;
  TimePoint client_retry_at_{};
  Jobs jobs_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace weft::agent
