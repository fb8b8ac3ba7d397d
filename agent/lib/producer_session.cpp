// SPDX-License-Identifier: Apache-2.0
#include "agent/lib/producer_session.hpp"

#include <utility>
#include <variant>

#include "agent/lib/fault_point.hpp"
#include "agent/lib/random_id.hpp"
#include "agent/lib/session_options.hpp"

namespace weft::agent {
namespace {

constexpr Duration kTick = std::chrono::milliseconds(20);
constexpr Duration kWakeUp = std::chrono::milliseconds(100);
constexpr Duration kClientRetry = std::chrono::seconds(1);

}  // namespace

Result<std::unique_ptr<ProducerSession>> ProducerSession::open(const PublisherConfig& config,
                                                               const ProducerInput& input,
                                                               EventSink& events) {
  std::unique_ptr<ProducerSession> session(new ProducerSession(config, input, events));
  WEFT_TRY_STATUS(session->start());
  return session;
}

Status ProducerSession::start() {
  WEFT_TRY_STATUS(open_relay());
  apply::ProducerOptions options;
  options.endpoint = {config_.producer_id, process_, config_.region, relay_->rails()};
  options.producer = input_.producer;
  options.producer_count = input_.producer_count;
  options.schema = input_.schema;
  role_ = std::make_unique<apply::ProducerRole>(std::move(options), input_.recovery);
  WEFT_TRY_STATUS(open_client());
  thread_ = std::thread([this] { run(); });
  return ok();
}

Status ProducerSession::open_relay() {
  process_ = random_process_id();
  WEFT_TRY(pool_, transport::SlabPool::open(slab_options(config_.fabric, config_.slots), events_));
  slots_ = std::make_unique<RefitSlots>(
      *pool_, [this] { return ended(); }, config_.producer.outcome_timeout);
  loader_ = std::make_unique<FrameLoader>(
      [this](const transport::FrameWanted& wanted,
             std::span<std::byte> into) -> Result<std::uint32_t> {
        if (const auto frames = kept(wanted.refit)) return frames->read(wanted.sequence, into);
        return failure(ErrorCode::kProtocol, Stage::kRelay, "the refit has ended");
      },
      [this](SharedSlot frame) { relay_->provide(std::move(frame)); });
  WEFT_TRY(relay_, transport::Relay::open(
                       relay_options(config_.fabric, config_.slots, config_.producer_id, process_),
                       *pool_, *this, events_));
  return ok();
}

ProducerSession::~ProducerSession() {
  stop_.store(true);
  if (thread_.joinable()) thread_.join();
  if (client_) client_->close();
  jobs_.join_all();
  if (loader_) loader_->stop();
  if (relay_ && !relay_->close(std::chrono::seconds(2))) {
    events_.report(Severity::kWarning, "relay_closed_late", {});
  }
}

Status ProducerSession::open_client() {
  client_.reset();
  WEFT_TRY(client_,
           transport::ControlClient::open(
               client_options(config_.control, config_.tls, input_.coordinator), *this, events_));
  return ok();
}

void ProducerSession::run() {
  step(apply::producer::Start{});
  while (!stop_.load()) {
    mailbox_.run(kTick);
    check_stop();
    check_client();
    step(apply::producer::Tick{});
  }
}

void ProducerSession::check_stop() {
  if (stop_said_ || !input_.stop_requested || !input_.stop_requested()) return;
  stop_said_ = true;
  step(
      apply::producer::Cancel{failure(ErrorCode::kBusy, Stage::kPublish, "stopped by the caller")});
}

// A session that was closed is followed by another one. What a client needs may be away for a while
// (certificates that are being renewed): that ends this publish, not the training run.
void ProducerSession::check_client() {
  const TimePoint now = std::chrono::steady_clock::now();
  if (client_ || now < client_retry_at_) return;
  client_retry_at_ = now + kClientRetry;
  Status opened = open_client();
  if (opened) return;
  events_.report(Severity::kError, "control_client_failed",
                 std::vector<EventField>{{"error", opened.error().message()}});
  step(apply::producer::Cancel{std::move(opened).error()});
}

void ProducerSession::begin(apply::producer::Publish publish) {
  // The frames of an earlier refit that waits for its decision stay.
  progress_.with([](Progress& progress) {
    progress.plan.reset();
    progress.open.reset();
    progress.done.reset();
  });
  publish.request = random_u64();
  post(std::move(publish));
}

std::optional<wire::Plan> ProducerSession::next_plan() {
  // The role answers by its own deadlines; each wait here is short.
  const auto answered = [](const Progress& progress) { return progress.plan || progress.done; };
  for (;;) {
    const auto taken = progress_.wait_for(kWakeUp, answered, [&](Progress& progress, bool) {
      progress.encoding = progress.plan.has_value();  // until it is entered
      return std::pair(std::exchange(progress.plan, std::nullopt), progress.done.has_value());
    });
    if (taken.second) return std::nullopt;
    if (!taken.first) continue;
    refit_ = taken.first->refit;
    injected_frames_ = 0;
    injected_bytes_ = 0;
    const Status entered = relay_->enter(*taken.first, NodeIndex{input_.producer.value});
    leave_encode();
    if (entered) return taken.first;
    post(apply::producer::EncodeFailed{refit_, entered.error()});
  }
}

bool ProducerSession::enter_encode() {
  return progress_.update([this](Progress& progress) {
    progress.encoding = progress.open == refit_;
    return progress.encoding;
  });
}

void ProducerSession::leave_encode() {
  progress_.update([](Progress& progress) { progress.encoding = false; });
}

Status ProducerSession::inject(const wire::FrameHeader& header, const SharedSlot& slot) {
  const auto frames = kept(refit_);
  if (frames == nullptr || ended()) {
    return failure(ErrorCode::kBusy, Stage::kEncode, "the refit has ended");
  }
  if (header.sequence == 1) kill_point("publisher.mid_stream");
  // Kept before it is sent: whoever loses it on its way can ask for it at once.
  WEFT_TRY_STATUS(frames->keep(FrameSequence{header.sequence}, slot.frame()));
  WEFT_TRY_STATUS(relay_->inject(ProducerIndex{header.producer}, header, slot));
  ++injected_frames_;
  injected_bytes_ += header.frame_bytes();
  post(apply::producer::EncodeProgressed{refit_, injected_frames_, injected_bytes_});
  return ok();
}

void ProducerSession::seal(const Result<wire::ProducerSeal>& seal) {
  if (!seal) {
    post(apply::producer::EncodeFailed{refit_, seal.error()});
    return;
  }
  relay_->finish(refit_, input_.producer, seal->frame_count);
  kill_point("publisher.before_seal");
  post(apply::producer::Encoded{refit_, *seal});
}

void ProducerSession::cancel(Error reason) { post(apply::producer::Cancel{std::move(reason)}); }

apply::producer::PublishDone ProducerSession::wait_done() {
  std::optional<apply::producer::PublishDone> done;
  while (!done) {
    done = progress_.wait_for(
        kWakeUp, [](const Progress& progress) { return progress.done.has_value(); },
        [](Progress& progress, bool) { return progress.done; });
  }
  return *std::move(done);
}

bool ProducerSession::ended() const {
  return progress_.with([this](const Progress& progress) { return progress.open != refit_; });
}

Content ProducerSession::content() const {
  return content_.with([](const Content& content) { return content; });
}

void ProducerSession::post(apply::ProducerEvent event) {
  mailbox_.post([this, event = std::move(event)] { step(event); });
}

void ProducerSession::step(const apply::ProducerEvent& event) {
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

void ProducerSession::on_connected() {
  mailbox_.post([this] {
    session_.value = ++session_count_;
    step(apply::producer::SessionOpened{session_});
  });
}

void ProducerSession::on_message(wire::CoordinatorMessage message) {
  mailbox_.post([this, message = std::move(message)] {
    heard_point(message);
    step(apply::producer::CoordinatorSaid{session_, message});
  });
}

void ProducerSession::on_disconnected(Error reason) {
  mailbox_.post([this, reason = std::move(reason)] {
    events_.report(Severity::kInfo, "coordinator_disconnected",
                   std::vector<EventField>{{"error", reason.message()}});
    if (session_.value == 0) return;
    step(apply::producer::SessionClosed{std::exchange(session_, apply::SessionId{})});
  });
}

void ProducerSession::on_frame(const RefitId&, ProducerIndex, FrameSequence, SharedSlot) {}

void ProducerSession::on_link_lost(const RefitId& refit, std::string_view member_id,
                                   const Error& error) {
  events_.report(
      Severity::kWarning, "link_lost",
      std::vector<EventField>{{"peer", std::string(member_id)}, {"error", error.message()}});
  post(apply::producer::LinkLost{refit, std::string(member_id)});
}

void ProducerSession::on_frame_wanted(transport::FrameWanted wanted) {
  loader_->push(std::move(wanted));
}

void ProducerSession::on_fault(const RefitId&, std::string_view member_id, const Error& error) {
  events_.report(
      Severity::kWarning, "frame_refused",
      std::vector<EventField>{{"peer", std::string(member_id)}, {"error", error.message()}});
}

void ProducerSession::act(apply::producer::Send& action) {
  if (action.session != session_ || session_.value == 0) return;
  if (auto sent = client_->send(action.message); !sent) {
    events_.report(Severity::kDebug, "message_dropped",
                   std::vector<EventField>{{"error", sent.error().message()}});
  }
  sent_point(action.message);
}

void ProducerSession::act(apply::producer::CloseSession& action) {
  if (action.session != session_ || session_.value == 0) return;
  next_events_.push_back(
      apply::producer::SessionClosed{std::exchange(session_, apply::SessionId{})});
  client_.reset();
  client_retry_at_ = {};
}

void ProducerSession::act(apply::producer::AppendRecord& action) {
  const Status appended = input_.append ? input_.append(action.record) : ok();
  if (appended) {
    next_events_.push_back(apply::producer::LogSynced{action.token});
  } else {
    next_events_.push_back(apply::producer::LogFailed{action.token, appended.error()});
  }
}

void ProducerSession::act(apply::producer::StartEncode& action) {
  KeptFramesOptions options;
  kill_point("publisher.planned");
  options.refit = action.plan.refit;
  options.producer = input_.producer;
  options.producer_count = input_.producer_count;
  options.memory_bytes = config_.producer.spool_bytes;
  options.directory = config_.producer.state_dir;
  progress_.update([&](Progress& progress) {
    progress.kept = std::make_shared<KeptFrames>(std::move(options), events_);
    progress.open = action.plan.refit;
    progress.plan = std::move(action.plan);
  });
}

// On the loop's thread, like the leaving: a refit that has ended is not entered again.
// On the loop's thread, like the leaving: a refit that has ended is not entered again.
void ProducerSession::act(apply::producer::UpdatePlan& action) {
  if (kept(action.plan.refit) == nullptr) return;
  const Status entered = relay_->enter(action.plan, NodeIndex{input_.producer.value});
  const std::string outcome = entered ? "entered" : entered.error().message();
  events_.report(entered ? Severity::kInfo : Severity::kWarning, "plan_changed",
                 std::vector<EventField>{{"refit", to_string(action.plan.refit)},
                                         {"revision", std::to_string(action.plan.revision)},
                                         {"outcome", outcome}});
}

std::shared_ptr<KeptFrames> ProducerSession::kept(const RefitId& refit) const {
  return progress_.with([&](const Progress& progress) {
    return progress.kept && progress.kept->refit() == refit ? progress.kept
                                                            : std::shared_ptr<KeptFrames>();
  });
}

// The frames go when the last one who reads them is done.
void ProducerSession::end_refit(const RefitId& refit) {
  auto frames = progress_.update([](Progress& progress) {
    progress.open.reset();
    progress.plan.reset();
    return std::move(progress.kept);
  });
  relay_->leave(refit);
}

void ProducerSession::wait_idle() {
  for (bool idle = false; !idle;) {
    idle = progress_.wait_for(
        kWakeUp, [](const Progress& progress) { return !progress.encoding; },
        [](const Progress&, bool reached) { return reached; });
  }
}

void ProducerSession::act(apply::producer::MoveBaseline& action) {
  const RefitId refit = action.refit;
  end_refit(refit);
  const Content content = action.content;
  jobs_.start([this, refit, content] {
    wait_idle();
    if (Status moved = input_.move_baseline ? input_.move_baseline() : ok(); !moved) {
      post(apply::producer::BaselineFailed{refit, std::move(moved).error()});
      return;
    }
    kill_point("publisher.after_baseline");
    content_.with([&](Content& now) { now = content; });
    post(apply::producer::BaselineMoved{refit});
  });
}

void ProducerSession::act(apply::producer::DropPending& action) {
  const RefitId refit = action.refit;
  end_refit(refit);
  jobs_.start([this, refit] {
    wait_idle();
    relay_->leave(refit);  // the caller's thread may have entered since
    if (input_.drop_pending) input_.drop_pending();
    post(apply::producer::PendingDropped{refit});
  });
}

void ProducerSession::act(apply::producer::ComputeTargetPart&) {
  if (input_.target_part) {
    jobs_.start([this] { post(apply::producer::TargetPart{input_.target_part()}); });
    return;
  }
  next_events_.push_back(apply::producer::TargetPart{
      failure(ErrorCode::kUnsupported, Stage::kPublish, "the target's values are not at hand")});
}

void ProducerSession::act(apply::producer::PublishDone& action) {
  progress_.update([&](Progress& progress) {
    progress.done = std::move(action);
    progress.open.reset();
  });
}

void ProducerSession::act(apply::producer::ShowOutcome&) {}

void ProducerSession::act(apply::producer::Note& action) {
  events_.report(action.severity, action.name, std::vector<EventField>{{"detail", action.detail}});
}

void ProducerSession::act(apply::producer::Stop& action) {
  progress_.update([&](Progress& progress) {
    progress.done = apply::producer::PublishDone{0, action.error, false, 0, {}, {}};
    progress.open.reset();
  });
}

}  // namespace weft::agent
