// SPDX-License-Identifier: Apache-2.0
#include "agent/lib/train_session.hpp"

#include <utility>
#include <variant>

#include "agent/lib/fault_point.hpp"
#include "agent/lib/random_id.hpp"

namespace weft::agent {
namespace {

constexpr Duration kTick = std::chrono::milliseconds(20);
constexpr Duration kWakeUp = std::chrono::milliseconds(100);
constexpr Duration kInjectRetry = std::chrono::milliseconds(1);
constexpr std::uint32_t kInjectTries = 30'000;
// A begin that is refused as busy is said again for so long.
constexpr Duration kBusyTimeout = std::chrono::seconds(60);

}  // namespace

Result<std::unique_ptr<TrainSession>> TrainSession::open(const PublisherConfig& config,
                                                         const TrainInput& input,
                                                         EventSink& events) {
  std::unique_ptr<TrainSession> session(new TrainSession(config, input, events));
  WEFT_TRY_STATUS(session->start());
  return session;
}

Status TrainSession::start() {
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
      [this](const transport::FrameWanted& wanted,
             std::span<std::byte> into) -> Result<std::uint32_t> {
        if (const auto frames = kept(wanted.refit)) return frames->read(wanted.sequence, into);
        return failure(ErrorCode::kProtocol, Stage::kRelay, "the refit has ended");
      },
      [this](SharedSlot frame) { relay_->provide(std::move(frame)); });
  WEFT_TRY(relay_, transport::Relay::open(relay, *pool_, *this, events_));
  apply::ProducerOptions options;
  options.endpoint = {config_.producer_id, process_, config_.region, relay_->rails()};
  options.producer = input_.producer;
  options.producer_count = input_.producer_count;
  options.schema = input_.schema;
  apply::ProducerRecovery recovery;
  recovery.content = input_.content;
  recovery.part = input_.part;
  role_ = std::make_unique<apply::ProducerRole>(std::move(options), std::move(recovery));
  WEFT_TRY_STATUS(open_client());
  thread_ = std::thread([this] { run(); });
  return ok();
}

TrainSession::~TrainSession() {
  stop_.store(true);
  if (thread_.joinable()) thread_.join();
  if (client_) client_->close();
  jobs_.join_all();
  if (loader_) loader_->stop();
  if (relay_ && !relay_->close(std::chrono::seconds(2))) {
    events_.report(Severity::kWarning, "relay_closed_late", {});
  }
}

Status TrainSession::open_client() {
  transport::ControlClientOptions options;
  options.coordinator = input_.coordinator;
  options.tls = config_.tls;
  options.connect_timeout = config_.control.connect_timeout;
  options.heartbeat_interval = config_.control.heartbeat_interval;
  options.lost_after = config_.control.lost_after;
  options.backoff_max = config_.control.backoff_max;
  client_.reset();
  WEFT_TRY(client_, transport::ControlClient::open(options, *this, events_));
  return ok();
}

void TrainSession::run() {
  step(apply::producer::Start{});
  while (!stop_.load()) {
    mailbox_.run(kTick);
    step(apply::producer::Tick{});
  }
}

Result<wire::Plan> TrainSession::begin(Version target, std::uint64_t model_bytes) {
  progress_.with([](Progress& progress) { progress = Progress{}; });
  injected_frames_ = 0;
  injected_bytes_ = 0;
  apply::producer::Publish publish;
  publish.request = random_u64();
  publish.target_version = target;
  publish.model_bytes = model_bytes;
  publish.retries = 0;  // the views are the caller's: it puts them again
  publish.busy_timeout = kBusyTimeout;
  publish.commit_timeout = config_.producer.outcome_timeout;
  post(publish);
  // The role answers by its own deadlines; each wait here is short.
  const auto answered = [](const Progress& progress) { return progress.plan || progress.done; };
  std::optional<wire::Plan> plan;
  for (bool known = false; !known;) {
    known = progress_.wait_for(kWakeUp, answered, [&](Progress& progress, bool) {
      plan = progress.plan;
      return answered(progress);
    });
  }
  if (!plan) {
    const auto done = wait_done();
    if (done.status) {
      return failure(ErrorCode::kVersionOrder, Stage::kPublish,
                     "version " + std::to_string(target.value) + " is committed already");
    }
    return done.status.error();
  }
  refit_ = plan->refit;
  if (Status entered = relay_->enter(*plan, NodeIndex{input_.producer.value}); !entered) {
    post(apply::producer::EncodeFailed{refit_, entered.error()});
    static_cast<void>(wait_done());
    return entered.error();
  }
  return *std::move(plan);
}

bool TrainSession::enter_encode() {
  return progress_.update([](Progress& progress) {
    progress.encoding = !progress.ended && !progress.done;
    return progress.encoding;
  });
}

void TrainSession::leave_encode() {
  progress_.update([](Progress& progress) { progress.encoding = false; });
}

Status TrainSession::inject(const wire::FrameHeader& header, const SharedSlot& slot) {
  const auto ended = [this] {
    return progress_.with([](const Progress& progress) { return progress.ended; });
  };
  if (header.sequence == 1) kill_point("publisher.mid_stream");
  // Kept before it is sent: whoever loses it on its way can ask for it at once.
  if (const auto frames = kept(refit_)) {
    WEFT_TRY_STATUS(frames->keep(FrameSequence{header.sequence}, slot.frame()));
  }
  Status injected = failure(ErrorCode::kBusy, Stage::kEncode, "the refit has ended");
  for (std::uint32_t i = 0; i < kInjectTries && !ended(); ++i) {
    injected = relay_->inject(ProducerIndex{header.producer}, header, slot);
    if (injected || injected.error().code != ErrorCode::kBusy) break;
    std::this_thread::sleep_for(kInjectRetry);
  }
  if (injected) {
    ++injected_frames_;
    injected_bytes_ += header.frame_bytes();
    post(apply::producer::EncodeProgressed{refit_, injected_frames_, injected_bytes_});
  }
  return injected;
}

void TrainSession::seal(const Result<wire::ProducerSeal>& seal) {
  if (!seal) {
    post(apply::producer::EncodeFailed{refit_, seal.error()});
    return;
  }
  kill_point("publisher.before_seal");
  post(apply::producer::Encoded{refit_, *seal});
}

void TrainSession::cancel(Error reason) { post(apply::producer::Cancel{std::move(reason)}); }

apply::producer::PublishDone TrainSession::wait_done() {
  std::optional<apply::producer::PublishDone> done;
  while (!done) {
    done = progress_.wait_for(
        kWakeUp, [](const Progress& progress) { return progress.done.has_value(); },
        [](Progress& progress, bool) { return progress.done; });
  }
  return *std::move(done);
}

bool TrainSession::ended() const {
  return progress_.with([](const Progress& progress) { return progress.ended; });
}

Content TrainSession::content() const {
  return content_.with([](const Content& content) { return content; });
}

void TrainSession::post(apply::ProducerEvent event) {
  mailbox_.post([this, event = std::move(event)] { step(event); });
}

void TrainSession::step(const apply::ProducerEvent& event) {
  next_events_.push_back(event);
  if (stepping_) return;
  stepping_ = true;
  while (!next_events_.empty()) {
    const apply::ProducerEvent next = std::move(next_events_.front());
    next_events_.pop_front();
    for (apply::ProducerAction& action : role_->step(next, std::chrono::steady_clock::now())) {
      std::visit([this](auto& each) { act(each); }, action);
    }
  }
  stepping_ = false;
}

void TrainSession::on_connected() {
  mailbox_.post([this] {
    session_.value = ++session_count_;
    step(apply::producer::SessionOpened{session_});
  });
}

void TrainSession::on_message(wire::CoordinatorMessage message) {
  mailbox_.post([this, message = std::move(message)] {
    step(apply::producer::CoordinatorSaid{session_, message});
  });
}

void TrainSession::on_disconnected(Error reason) {
  mailbox_.post([this, reason = std::move(reason)] {
    events_.report(Severity::kInfo, "coordinator_disconnected",
                   std::vector<EventField>{{"error", reason.message()}});
    if (session_.value == 0) return;
    step(apply::producer::SessionClosed{std::exchange(session_, apply::SessionId{})});
  });
}

void TrainSession::on_frame(const RefitId&, ProducerIndex, FrameSequence, SharedSlot) {}

void TrainSession::on_link_lost(const RefitId& refit, std::string_view member_id,
                                const Error& error) {
  events_.report(
      Severity::kWarning, "link_lost",
      std::vector<EventField>{{"peer", std::string(member_id)}, {"error", error.message()}});
  post(apply::producer::LinkLost{refit, std::string(member_id)});
}

void TrainSession::on_frame_wanted(transport::FrameWanted wanted) {
  loader_->push(std::move(wanted));
}

void TrainSession::on_fault(const RefitId&, std::string_view member_id, const Error& error) {
  events_.report(
      Severity::kWarning, "frame_refused",
      std::vector<EventField>{{"peer", std::string(member_id)}, {"error", error.message()}});
}

void TrainSession::act(apply::producer::Send& action) {
  if (action.session != session_ || session_.value == 0) return;
  if (auto sent = client_->send(action.message); !sent) {
    events_.report(Severity::kDebug, "message_dropped",
                   std::vector<EventField>{{"error", sent.error().message()}});
  }
}

void TrainSession::act(apply::producer::CloseSession& action) {
  if (action.session != session_ || session_.value == 0) return;
  next_events_.push_back(
      apply::producer::SessionClosed{std::exchange(session_, apply::SessionId{})});
  if (auto opened = open_client(); !opened) {
    events_.report(Severity::kError, "control_client_failed",
                   std::vector<EventField>{{"error", opened.error().message()}});
  }
}

// The baseline is memory: what this process knows ends with it.
void TrainSession::act(apply::producer::AppendRecord& action) {
  next_events_.push_back(apply::producer::LogSynced{action.token});
}

void TrainSession::act(apply::producer::StartEncode& action) {
  KeptFramesOptions options;
  options.refit = action.plan.refit;
  options.producer = input_.producer;
  options.producer_count = input_.producer_count;
  options.memory_bytes = config_.producer.spool_bytes;
  options.directory = config_.producer.state_dir;
  progress_.update([&](Progress& progress) {
    progress.kept = std::make_shared<KeptFrames>(std::move(options), events_);
    progress.plan = std::move(action.plan);
  });
}

// On the loop's thread, like the leaving: a refit that has ended is not entered again.
void TrainSession::act(apply::producer::UpdatePlan& action) {
  if (kept(action.plan.refit) == nullptr) return;
  const Status entered = relay_->enter(action.plan, NodeIndex{input_.producer.value});
  const std::string outcome = entered ? "entered" : entered.error().message();
  events_.report(entered ? Severity::kInfo : Severity::kWarning, "plan_changed",
                 std::vector<EventField>{{"refit", to_string(action.plan.refit)},
                                         {"revision", std::to_string(action.plan.revision)},
                                         {"outcome", outcome}});
}

std::shared_ptr<KeptFrames> TrainSession::kept(const RefitId& refit) const {
  return progress_.with([&](const Progress& progress) {
    return progress.kept && progress.kept->refit() == refit ? progress.kept
                                                            : std::shared_ptr<KeptFrames>();
  });
}

// The frames go when the last one who reads them is done.
void TrainSession::release_kept() {
  auto frames = progress_.with([](Progress& progress) { return std::move(progress.kept); });
}

void TrainSession::wait_idle() {
  for (bool idle = false; !idle;) {
    idle = progress_.wait_for(
        kWakeUp, [](const Progress& progress) { return !progress.encoding; },
        [](const Progress&, bool reached) { return reached; });
  }
}

void TrainSession::act(apply::producer::MoveBaseline& action) {
  const RefitId refit = action.refit;
  release_kept();
  relay_->leave(refit);
  const Content content = action.content;
  jobs_.start([this, refit, content] {
    wait_idle();
    input_.move_baseline();
    content_.with([&](Content& now) { now = content; });
    post(apply::producer::BaselineMoved{refit});
  });
}

void TrainSession::act(apply::producer::DropPending& action) {
  const RefitId refit = action.refit;
  progress_.update([](Progress& progress) { progress.ended = true; });
  release_kept();
  relay_->leave(refit);
  jobs_.start([this, refit] {
    wait_idle();
    relay_->leave(refit);  // the trainer's thread may have entered since
    input_.drop_pending();
    post(apply::producer::PendingDropped{refit});
  });
}

// Only the decision tells what the committed version holds; a trainer goes on to the next one.
void TrainSession::act(apply::producer::ComputeTargetPart&) {
  next_events_.push_back(apply::producer::TargetPart{
      failure(ErrorCode::kUnsupported, Stage::kPublish, "the target's values are not at hand")});
}

void TrainSession::act(apply::producer::PublishDone& action) {
  progress_.update([&](Progress& progress) {
    progress.done = std::move(action);
    progress.ended = true;
  });
}

void TrainSession::act(apply::producer::ShowOutcome&) {}

void TrainSession::act(apply::producer::Note& action) {
  events_.report(action.severity, action.name, std::vector<EventField>{{"detail", action.detail}});
}

void TrainSession::act(apply::producer::Stop& action) {
  progress_.update([&](Progress& progress) {
    progress.done = apply::producer::PublishDone{0, action.error, false, 0, {}, {}};
    progress.ended = true;
  });
}

}  // namespace weft::agent
