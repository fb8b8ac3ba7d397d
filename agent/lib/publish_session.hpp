// SPDX-License-Identifier: Apache-2.0
// The inside of publish(): one loop steps ProducerRole; a job encodes; relay and control client
// call back into the mailbox.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <optional>

#include "agent/lib/frame_loader.hpp"
#include "agent/lib/jobs.hpp"
#include "agent/lib/kept_frames.hpp"
#include "agent/lib/mailbox.hpp"
#include "agent/lib/publisher.hpp"
#include "apply/commit/producer_role.hpp"
#include "apply/store/checkpoint_dir.hpp"
#include "codec/project/lattice.hpp"
#include "transport/buffer/slab_pool.hpp"
#include "transport/control/control_client.hpp"
#include "transport/relay/relay.hpp"
#include "weft/base/guarded.hpp"

namespace weft::agent {

// What is published; all of it must outlive the session.
// Threads: immutable.
struct PublishInput {
  codec::Lattice lattice;
  const apply::CheckpointDir* base = nullptr;
  const apply::CheckpointDir* target = nullptr;
  Content base_content;
  Digest base_part;
  std::uint64_t model_bytes = 0;
  std::uint32_t threads = 1;
  std::function<Result<Digest>()> compute_target_part;
};

// Threads: one at a time, except the observer calls.
class PublishSession final : public transport::RelayObserver,
                             public transport::ControlClientObserver {
 public:
  PublishSession(const PublisherConfig& config, const PublishRequest& request,
                 const PublishInput& input, EventSink& events)
      : config_(config), request_(request), input_(input), events_(events) {}
  ~PublishSession() override;

  Result<PublishReport> run();

 private:
  class InjectingSink;
  // One run of the encoder. Threads: any.
  struct Attempt {
    Attempt(KeptFramesOptions options, EventSink& events) : kept(std::move(options), events) {}
    std::atomic<bool> cancelled{false};
    Guarded<bool> finished{false};
    KeptFrames kept;
  };

  void on_frame(const RefitId& refit, ProducerIndex producer, FrameSequence sequence,
                SharedSlot frame) override;
  void on_link_lost(const RefitId& refit, std::string_view member_id, const Error& error) override;
  void on_fault(const RefitId& refit, std::string_view member_id, const Error& error) override;
  void on_frame_wanted(transport::FrameWanted wanted) override;
  void on_connected() override;
  void on_message(wire::CoordinatorMessage message) override;
  void on_disconnected(Error reason) override;

  Status open();
  Status open_client();
  void post(apply::ProducerEvent event);
  void step(const apply::ProducerEvent& event);
  void check_stop();
  void stop_serving();
  Result<PublishReport> report() const;

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
  Result<wire::ProducerSeal> encode(const wire::Plan& plan, Attempt& attempt);
  Result<std::uint32_t> read_kept(const transport::FrameWanted& wanted,
                                  std::span<std::byte> into) const;

  const PublisherConfig& config_;
  const PublishRequest& request_;
  const PublishInput& input_;
  EventSink& events_;
  ProcessId process_;
  std::optional<Error> fatal_;
  std::optional<apply::producer::PublishDone> done_;
  bool cancelled_ = false;
  std::shared_ptr<Attempt> attempt_;
  // The attempt whose frames may be asked for. Threads: any.
  struct Serving {
    RefitId refit;
    std::shared_ptr<Attempt> attempt;
  };
  Guarded<Serving> serving_;

  RefitId refit_;
  wire::ProducerSeal seal_;
  TimePoint started_at_{};
  TimePoint decided_at_{};
  double encode_seconds_ = 0;

  Mailbox mailbox_;
  std::unique_ptr<apply::ProducerRole> role_;
  std::deque<apply::ProducerEvent> next_events_;
  bool stepping_ = false;
  apply::SessionId session_;
  std::uint64_t session_count_ = 0;

  std::unique_ptr<transport::SlabPool> pool_;
  std::unique_ptr<FrameLoader> loader_;
  std::unique_ptr<transport::Relay> relay_;
  std::unique_ptr<transport::ControlClient> client_;
  Jobs jobs_;
};

}  // namespace weft::agent
