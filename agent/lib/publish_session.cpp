// SPDX-License-Identifier: Apache-2.0
#include "agent/lib/publish_session.hpp"

#include <unistd.h>

#include <thread>
#include <utility>
#include <variant>

#include "agent/lib/fault_point.hpp"
#include "agent/lib/random_id.hpp"
#include "apply/store/checkpoint_source.hpp"
#include "codec/flow/encode_flow.hpp"

namespace weft::agent {
namespace {

constexpr Duration kTick = std::chrono::milliseconds(20);
constexpr Duration kWakeUp = std::chrono::milliseconds(100);
constexpr Duration kInjectRetry = std::chrono::milliseconds(1);
constexpr std::uint32_t kInjectTries = 30'000;

double seconds_between(TimePoint from, TimePoint to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

// From the encoder into the trees.
// Threads: as FrameSink.
class PublishSession::InjectingSink final : public codec::FrameSink {
 public:
  InjectingSink(PublishSession& session, Attempt& attempt, RefitId refit)
      : session_(session), attempt_(attempt), refit_(refit) {}

  Status take(SharedSlot slot, const wire::FrameHeader& header) override {
    if (attempt_.cancelled.load()) {
      return failure(ErrorCode::kBusy, Stage::kEncode, "the attempt has ended");
    }
    wire::FrameHeader sent = header;
    if (corrupt_frame_point() == header.sequence) {
      damage_frame(slot);
      std::memcpy(&sent, slot.frame().data(), sizeof(sent));
    }
    if (header.sequence == 1) kill_point("publisher.mid_stream");
    bytes_ += header.frame_bytes();
    // Kept before it is sent: whoever loses it on its way can ask for it at once.
    WEFT_TRY_STATUS(attempt_.kept.keep(FrameSequence{header.sequence}, slot.frame()));
    Status injected = ok();
    for (std::uint32_t i = 0; i < kInjectTries && !attempt_.cancelled.load(); ++i) {
      injected = session_.relay_->inject(ProducerIndex{header.producer}, sent, slot);
      if (injected || injected.error().code != ErrorCode::kBusy) break;
      std::this_thread::sleep_for(kInjectRetry);
    }
    if (session_.request_.on_progress) {
      session_.request_.on_progress("encode", header.sequence + 1ULL, 0);
    }
    session_.post(apply::producer::EncodeProgressed{refit_, header.sequence + 1ULL, bytes_});
    return injected;
  }

 private:
  PublishSession& session_;
  Attempt& attempt_;
  const RefitId refit_;
  std::uint64_t bytes_ = 0;
};

PublishSession::~PublishSession() {
  if (attempt_) attempt_->cancelled.store(true);
  if (client_) client_->close();
  jobs_.join_all();
  if (loader_) loader_->stop();
  if (relay_ && !relay_->close(std::chrono::seconds(2))) {
    events_.report(Severity::kWarning, "relay_closed_late", {});
  }
}

Status PublishSession::open() {
  process_ = random_process_id();
  transport::SlabOptions slab;
  slab.slot_count = config_.slots.count;
  WEFT_TRY(pool_, transport::SlabPool::open(slab, events_));
  transport::RelayOptions relay;
  relay.member_id = config_.producer_id;
  relay.process = process_;
  relay.fabric.provider = config_.fabric.provider;
  relay.fabric.interface = config_.fabric.interface;
  relay.fabric.address = config_.fabric.address;
  relay.fabric.port = config_.fabric.port;
  relay.times.heartbeat = config_.fabric.heartbeat_interval;
  relay.times.lost = config_.fabric.lost_after;
  relay.send_reserve = config_.slots.send_reserve;
  loader_ = std::make_unique<FrameLoader>(
      [this](const auto& wanted, auto into) { return read_kept(wanted, into); },
      [this](SharedSlot frame) { relay_->provide(std::move(frame)); });
  WEFT_TRY(relay_, transport::Relay::open(relay, *pool_, *this, events_));
  apply::ProducerOptions options;
  options.endpoint = {config_.producer_id, process_, config_.region, relay_->rails()};
  options.schema = input_.target->schema().digest();
  apply::ProducerRecovery recovery;
  recovery.content = input_.base_content;
  recovery.part = input_.base_part;
  role_ = std::make_unique<apply::ProducerRole>(std::move(options), std::move(recovery));
  return open_client();
}

Status PublishSession::open_client() {
  transport::ControlClientOptions options;
  options.coordinator = request_.coordinator;
  options.tls = config_.tls;
  options.connect_timeout = config_.control.connect_timeout;
  options.heartbeat_interval = config_.control.heartbeat_interval;
  options.lost_after = config_.control.lost_after;
  options.backoff_max = config_.control.backoff_max;
  client_.reset();
  WEFT_TRY(client_, transport::ControlClient::open(options, *this, events_));
  return ok();
}

Result<PublishReport> PublishSession::run() {
  WEFT_TRY_STATUS(open());
  started_at_ = std::chrono::steady_clock::now();
  apply::producer::Publish publish;
  publish.request = random_u64();
  publish.target_version = request_.target_version;
  publish.shape = request_.shape;
  publish.model_bytes = input_.model_bytes;
  publish.full = request_.full;
  publish.retries = config_.producer.retries;
  publish.busy_timeout = config_.producer.outcome_timeout;
  publish.commit_timeout = config_.producer.outcome_timeout;
  step(apply::producer::Start{});
  step(publish);
  while (!done_ && !fatal_) {
    mailbox_.run(kTick);
    check_stop();
    step(apply::producer::Tick{});
  }
  decided_at_ = std::chrono::steady_clock::now();
  if (fatal_) return *fatal_;
  return report();
}

void PublishSession::check_stop() {
  if (!cancelled_ && request_.stop_requested && request_.stop_requested()) {
    cancelled_ = true;
    step(apply::producer::Cancel{
        failure(ErrorCode::kBusy, Stage::kPublish, "stopped by the caller")});
  }
}

Result<PublishReport> PublishSession::report() const {
  if (!done_->status) return done_->status.error();
  PublishReport report;
  report.refit = refit_;
  report.base = input_.base_content;
  report.target = done_->content;
  report.already_committed = done_->already;
  report.attempts = done_->attempts;
  report.outcome = done_->outcome;
  if (!done_->already) {
    report.frames = seal_.frame_count;
    report.wire_bytes = seal_.wire_bytes;
    report.changed_elements = seal_.changed_elements;
    report.encode_seconds = encode_seconds_;
  }
  if (done_->outcome) {
    report.prepare_seconds = static_cast<double>(done_->outcome->prepare_ns) * 1e-9;
  }
  report.total_seconds = seconds_between(started_at_, decided_at_);
  return report;
}

void PublishSession::post(apply::ProducerEvent event) {
  mailbox_.post([this, event = std::move(event)] { step(event); });
}

void PublishSession::step(const apply::ProducerEvent& event) {
  next_events_.push_back(event);
  if (stepping_) return;
  stepping_ = true;
  while (!next_events_.empty() && !fatal_) {
    const apply::ProducerEvent next = std::move(next_events_.front());
    next_events_.pop_front();
    for (apply::ProducerAction& action : role_->step(next, std::chrono::steady_clock::now())) {
      if (!fatal_) std::visit([this](auto& each) { act(each); }, action);
    }
  }
  stepping_ = false;
}

void PublishSession::on_connected() {
  mailbox_.post([this] {
    session_.value = ++session_count_;
    step(apply::producer::SessionOpened{session_});
  });
}

void PublishSession::on_message(wire::CoordinatorMessage message) {
  mailbox_.post([this, message = std::move(message)] {
    step(apply::producer::CoordinatorSaid{session_, message});
  });
}

void PublishSession::on_disconnected(Error reason) {
  mailbox_.post([this, reason = std::move(reason)] {
    events_.report(Severity::kInfo, "coordinator_disconnected",
                   std::vector<EventField>{{"error", reason.message()}});
    if (session_.value == 0) return;
    step(apply::producer::SessionClosed{std::exchange(session_, apply::SessionId{})});
  });
}

void PublishSession::on_frame(const RefitId&, ProducerIndex, FrameSequence, SharedSlot) {}

void PublishSession::on_link_lost(const RefitId& refit, std::string_view member_id,
                                  const Error& error) {
  events_.report(
      Severity::kWarning, "link_lost",
      std::vector<EventField>{{"peer", std::string(member_id)}, {"error", error.message()}});
  post(apply::producer::LinkLost{refit, std::string(member_id)});
}

void PublishSession::on_fault(const RefitId&, std::string_view member_id, const Error& error) {
  events_.report(
      Severity::kWarning, "frame_refused",
      std::vector<EventField>{{"peer", std::string(member_id)}, {"error", error.message()}});
}

void PublishSession::on_frame_wanted(transport::FrameWanted wanted) {
  loader_->push(std::move(wanted));
}

// On the loader's thread.
Result<std::uint32_t> PublishSession::read_kept(const transport::FrameWanted& wanted,
                                                std::span<std::byte> into) const {
  const Serving serving = serving_.with([](const Serving& now) { return now; });
  if (serving.attempt == nullptr || serving.refit != wanted.refit) {
    return failure(ErrorCode::kProtocol, Stage::kRelay, to_string(wanted.refit) + " has ended");
  }
  return serving.attempt->kept.read(wanted.sequence, into);
}

void PublishSession::act(apply::producer::Send& action) {
  if (action.session != session_ || session_.value == 0) return;
  if (auto sent = client_->send(action.message); !sent) {
    events_.report(Severity::kDebug, "message_dropped",
                   std::vector<EventField>{{"error", sent.error().message()}});
  }
}

void PublishSession::act(apply::producer::CloseSession& action) {
  if (action.session != session_ || session_.value == 0) return;
  next_events_.push_back(
      apply::producer::SessionClosed{std::exchange(session_, apply::SessionId{})});
  if (auto opened = open_client(); !opened) fatal_ = opened.error();
}

// Two checkpoints on disk are all the state there is: nothing to append to.
void PublishSession::act(apply::producer::AppendRecord& action) {
  next_events_.push_back(apply::producer::LogSynced{action.token});
}

void PublishSession::act(apply::producer::StartEncode& action) {
  refit_ = action.plan.refit;
  KeptFramesOptions kept;
  kept.refit = refit_;
  kept.producer_count = action.plan.producer_count;
  kept.memory_bytes = config_.producer.spool_bytes;
  kept.directory = config_.producer.state_dir;
  attempt_ = std::make_shared<Attempt>(std::move(kept), events_);
  serving_.with([&](Serving& serving) { serving = {refit_, attempt_}; });
  auto plan = std::make_shared<const wire::Plan>(std::move(action.plan));
  jobs_.start([this, plan, attempt = attempt_] {
    const TimePoint begun = std::chrono::steady_clock::now();
    auto sealed = encode(*plan, *attempt);
    attempt->finished.update([](bool& finished) { finished = true; });
    const double seconds = seconds_between(begun, std::chrono::steady_clock::now());
    mailbox_.post([this, plan, sealed, seconds] {
      if (!sealed) {
        step(apply::producer::EncodeFailed{plan->refit, sealed.error()});
        return;
      }
      seal_ = *sealed;
      encode_seconds_ = seconds;
      step(apply::producer::Encoded{plan->refit, *sealed});
    });
  });
}

Result<wire::ProducerSeal> PublishSession::encode(const wire::Plan& plan, Attempt& attempt) {
  WEFT_TRY_STATUS(relay_->enter(plan, NodeIndex{0}));
  apply::CheckpointSource source(input_.lattice, *input_.base, *input_.target);
  InjectingSink sink(*this, attempt, plan.refit);
  codec::EncodeFlowOptions options;
  options.ids.fleet = plan.fleet;
  options.ids.refit = plan.refit;
  options.choice.full = request_.full;
  options.threads = input_.threads;
  WEFT_TRY(auto summary,
           codec::encode_flow(input_.lattice, ProducerIndex{0}, source, *pool_, sink, options));
  // What was read was one state of both checkpoints, or nothing is published.
  WEFT_TRY_STATUS(input_.base->check_identity());
  WEFT_TRY_STATUS(input_.target->check_identity());
  return summary.seal;
}

// On the loop's thread, like the leaving: a refit that has ended is not entered again.
void PublishSession::act(apply::producer::UpdatePlan& action) {
  if (attempt_ == nullptr || attempt_->cancelled.load() || action.plan.refit != refit_) return;
  const Status entered = relay_->enter(action.plan, NodeIndex{0});
  const std::string outcome = entered ? "entered" : entered.error().message();
  events_.report(entered ? Severity::kInfo : Severity::kWarning, "plan_changed",
                 std::vector<EventField>{{"refit", to_string(refit_)},
                                         {"revision", std::to_string(action.plan.revision)},
                                         {"outcome", outcome}});
}

void PublishSession::stop_serving() {
  serving_.with([](Serving& serving) { serving = {}; });
}

// The next publish names another base directory: nothing moves here.
void PublishSession::act(apply::producer::MoveBaseline& action) {
  stop_serving();
  relay_->leave(action.refit);
  attempt_.reset();
  next_events_.push_back(apply::producer::BaselineMoved{action.refit});
}

void PublishSession::act(apply::producer::DropPending& action) {
  const RefitId refit = action.refit;
  stop_serving();
  if (attempt_) attempt_->cancelled.store(true);
  relay_->leave(refit);
  jobs_.start([this, refit, attempt = std::exchange(attempt_, nullptr)] {
    // The encoder sees the flag at its next frame, or its slots come back with the links.
    bool finished = attempt == nullptr;
    while (!finished) {
      finished = attempt->finished.wait_for(
          kWakeUp, [](bool done) { return done; }, [](bool, bool done) { return done; });
    }
    relay_->leave(refit);
    post(apply::producer::PendingDropped{refit});
  });
}

void PublishSession::act(apply::producer::ComputeTargetPart&) {
  jobs_.start([this] { post(apply::producer::TargetPart{input_.compute_target_part()}); });
}

void PublishSession::act(apply::producer::PublishDone& action) { done_ = std::move(action); }

void PublishSession::act(apply::producer::ShowOutcome&) {}

void PublishSession::act(apply::producer::Note& action) {
  events_.report(action.severity, action.name, std::vector<EventField>{{"detail", action.detail}});
}

void PublishSession::act(apply::producer::Stop& action) { fatal_ = action.error; }

}  // namespace weft::agent
