// SPDX-License-Identifier: Apache-2.0
#include "agent/lib/node_agent.hpp"

#include <algorithm>
#include <array>
#include <thread>
#include <utility>
#include <variant>

#include "agent/lib/fault_point.hpp"
#include "agent/lib/node_agent_body.hpp"
#include "agent/lib/random_id.hpp"
#include "agent/lib/scrub_status.hpp"
#include "agent/lib/session_options.hpp"

namespace weft::agent {
namespace {

constexpr Duration kFirstPause = std::chrono::milliseconds(100);  // after a refusal
constexpr Duration kTick = std::chrono::milliseconds(50);

// Of apply::StateRecord, in its order: where a test may end this process.
constexpr std::array kRecordNames = {"epoch",   "begin",  "prepared", "commit",
                                     "applied", "hooked", "abort",    "reseed"};
static_assert(kRecordNames.size() == std::variant_size_v<apply::StateRecord>);

}  // namespace

NodeAgent::NodeAgent(std::unique_ptr<Body> body) : body_(std::move(body)) {}
NodeAgent::~NodeAgent() = default;

Result<std::unique_ptr<NodeAgent>> NodeAgent::open(const AgentConfig& config, EventSink& events) {
  auto body = std::make_unique<Body>(config, events);
  WEFT_TRY_STATUS(body->open());
  return std::unique_ptr<NodeAgent>(new NodeAgent(std::move(body)));
}

Status NodeAgent::run() { return body_->run(); }
void NodeAgent::request_stop() { body_->request_stop(); }
NodeSnapshot NodeAgent::snapshot() const { return body_->snapshot(); }

NodeAgent::Body::~Body() {
  scrubber_.reset();
  if (client_) client_->close();
  runs_.with([](Runs& runs) {
    for (auto& [refit, run] : runs) run->cancel();
  });
  jobs_.join_all();
  if (loader_) loader_->stop();
  if (relay_) {
    if (auto closed = relay_->close(std::chrono::seconds(2)); !closed) {
      events_.report(Severity::kWarning, "relay_closed_late",
                     std::vector<EventField>{{"error", closed.error().message()}});
    }
  }
  workers_.reset();  // the last frames go back to the pool
}

Status NodeAgent::Body::open() {
  process_ = random_process_id();
  WEFT_TRY_STATUS(open_hooks());  // before any lock, thread or rail that a child could inherit
  WEFT_TRY(state_, NodeState::open(config_, events_));
  WEFT_TRY(pool_, transport::SlabPool::open(slab_options(config_.fabric, config_.slots), events_));
  const std::uint32_t threads = config_.resolve_threads != 0
                                    ? config_.resolve_threads
                                    : std::max(1U, std::thread::hardware_concurrency());
  workers_ = std::make_unique<FrameWorkers>(
      threads, [this](RefitRun& run, const auto& frame, const auto& outcome) {
        resolved(run, frame, outcome);
      });
  loader_ = std::make_unique<FrameLoader>(
      [this](const auto& wanted, auto into) { return read_spool(wanted, into); },
      [this](SharedSlot frame) { relay_->provide(std::move(frame)); });
  WEFT_TRY(relay_, transport::Relay::open(
                       relay_options(config_.fabric, config_.slots, state_->agent_id(), process_),
                       *pool_, *this, events_));
  snapshot_.with([&](NodeSnapshot& shown) {
    const transport::FabricFacts& facts = relay_->facts();
    shown.rail = {facts.provider,          facts.protocol,        facts.device,
                  facts.address,           facts.library_version, config_.slots.count,
                  config_.fabric.numa_node};
  });
  apply::AgentOptions options;
  options.endpoint = {state_->agent_id(), process_, config_.region, relay_->rails()};
  options.ready_lag_max = config_.ready_max_lag;
  options.in_place = !state_->has_sets();
  options.hooks = hooks_->has_after_apply();
  options.hook_give_up = config_.hook.give_up;
  role_ = std::make_unique<apply::AgentRole>(std::move(options), state_->recovery());
  snapshot_.with([&](NodeSnapshot& shown) {
    shown.agent_id = state_->agent_id();
    shown.fleet = state_->recovery().fleet;
    shown.epoch = state_->recovery().epoch;
    shown.content = state_->recovery().content;
  });
  open_scrubber();
  return ok();
}

void NodeAgent::Body::open_scrubber() {
  apply::ScrubOptions options;
  options.period = config_.scrub.period;
  options.bytes_per_second = config_.scrub.bytes_per_second;
  options.nice_steps = config_.apply_nice;
  options.subject = [this] { return scrub_subject(); };
  // Until the journal has been applied again the files are neither of the two versions.
  half_applied_.store(state_->recovery().row == apply::StartRow::kCommitted);
  options.on_damage = [this](Error error) {
    damaged_.store(true);
    post(apply::agent::WeightsDamaged{std::move(error)});
  };
  scrubber_ = std::make_unique<apply::Scrubber>(std::move(options));
}

// Table, its lattice and the files belong together only while none of them changes.
std::optional<apply::ScrubSubject> NodeAgent::Body::scrub_subject() const {
  const auto changing = [this] {
    return applying_.load() != 0 || tables_under_way_.load() != 0 || damaged_.load() ||
           half_applied_.load();
  };
  const std::uint64_t generation = applies_begun_.load();
  if (changing()) return std::nullopt;
  apply::ScrubSubject subject{state_->checkpoint(), state_->table(), &state_->lattice(),
                              generation};
  if (subject.table == nullptr || changing() || applies_begun_.load() != generation) {
    return std::nullopt;
  }
  return subject;
}

Status NodeAgent::Body::open_hooks() {
  apply::HookOptions options;
  options.before_apply = config_.hook.before_apply;
  options.after_apply = config_.hook.after_apply;
  options.timeout = config_.hook.timeout;
  WEFT_TRY(hooks_, apply::Hooks::open(std::move(options)));
  return ok();
}

// A coordinator that refuses this member will refuse it again: slower and slower, then.
void NodeAgent::Body::close_client() {
  client_.reset();
  const TimePoint now = std::chrono::steady_clock::now();
  const Duration longest = config_.control.backoff_max;
  client_pause_ =
      now - client_at_ > 2 * longest ? kFirstPause : std::min(2 * client_pause_, longest);
  client_at_ = now + client_pause_;
}

Status NodeAgent::Body::open_client() {
  if (client_ || std::chrono::steady_clock::now() < client_at_) return ok();
  WEFT_TRY(client_,
           transport::ControlClient::open(
               client_options(config_.control, config_.tls, config_.coordinator), *this, events_));
  return ok();
}

Status NodeAgent::Body::run() {
  step(apply::agent::Start{state_->schema().digest()});
  if (!fatal_) WEFT_TRY_STATUS(open_client());
  while (!stop_.load() && !fatal_) {
    mailbox_.run(kTick);
    if (auto opened = open_client(); !opened) fatal_ = opened.error();
    step(apply::agent::Tick{});
  }
  finish_apply();
  if (client_) client_->close();
  if (fatal_) return *fatal_;
  return ok();
}

// An apply under way is finished rather than left to the next start, within the grace time.
void NodeAgent::Body::finish_apply() {
  const TimePoint deadline = std::chrono::steady_clock::now() + config_.stop_grace;
  while (applying_.load() != 0 && !fatal_ && std::chrono::steady_clock::now() < deadline) {
    mailbox_.run(kTick);
    step(apply::agent::Tick{});
  }
}

NodeSnapshot NodeAgent::Body::snapshot() const {
  NodeSnapshot snapshot = snapshot_.with([](const NodeSnapshot& shown) { return shown; });
  snapshot.weights_path = state_->weights_path();
  snapshot.scrub = scrubber_->progress();
  snapshot.links = relay_->links();
  return snapshot;
}

void NodeAgent::Body::post(apply::AgentEvent event) {
  mailbox_.post([this, event = std::move(event)] { step(event); });
}

// Actions may complete at once; their events follow in order, never inside a step.
void NodeAgent::Body::step(const apply::AgentEvent& event) {
  next_events_.push_back(event);
  if (stepping_) return;
  stepping_ = true;
  while (!next_events_.empty() && !fatal_) {
    const apply::AgentEvent next = std::move(next_events_.front());
    next_events_.pop_front();
    for (apply::AgentAction& action : role_->step(next, std::chrono::steady_clock::now())) {
      if (!fatal_) std::visit([this](auto& each) { act(each); }, action);
    }
  }
  stepping_ = false;
}

void NodeAgent::Body::on_connected() {
  mailbox_.post([this] {
    session_.value = ++session_count_;
    snapshot_.with([](NodeSnapshot& shown) { shown.connected = true; });
    step(apply::agent::SessionOpened{session_});
  });
}

void NodeAgent::Body::on_message(wire::CoordinatorMessage message) {
  mailbox_.post([this, message = std::move(message)] {
    if (const auto* decision = std::get_if<wire::Decision>(&message);
        decision != nullptr && decision->verdict == wire::Verdict::kCommit) {
      kill_point("agent.decision");
    }
    step(apply::agent::CoordinatorSaid{session_, message});
  });
}

void NodeAgent::Body::on_disconnected(Error reason) {
  events_.report(Severity::kInfo, "coordinator_disconnected",
                 std::vector<EventField>{{"error", reason.message()}});
  mailbox_.post([this] {
    if (session_.value == 0) return;
    const apply::SessionId closed = std::exchange(session_, apply::SessionId{});
    snapshot_.with([](NodeSnapshot& shown) { shown.connected = false; });
    step(apply::agent::SessionClosed{closed});
  });
}

void NodeAgent::Body::on_frame(const RefitId& refit, ProducerIndex, FrameSequence sequence,
                               SharedSlot frame) {
  kill_point("agent.first_frame");
  if (spoil_frame_point() == sequence.value && !spoiled_) {
    spoiled_ = true;
    damage_frame(frame);
  }
  auto run = find_run(refit);
  if (run == nullptr || !run->enter()) return;
  workers_->push({std::move(run), std::move(frame)});
}

void NodeAgent::Body::on_link_lost(const RefitId& refit, std::string_view member_id,
                                   const Error& error) {
  events_.report(Severity::kWarning, "link_lost",
                 std::vector<EventField>{{"refit", to_string(refit)},
                                         {"peer", std::string(member_id)},
                                         {"error", error.message()}});
  post(apply::agent::LinkLost{refit, std::string(member_id)});
}

void NodeAgent::Body::on_fault(const RefitId& refit, std::string_view member_id,
                               const Error& error) {
  events_.report(Severity::kWarning, "frame_refused",
                 std::vector<EventField>{{"refit", to_string(refit)},
                                         {"peer", std::string(member_id)},
                                         {"error", error.message()}});
  if (error.code == ErrorCode::kPayloadConflict) post(apply::agent::RefitFailed{refit, error});
}

void NodeAgent::Body::on_frame_wanted(transport::FrameWanted wanted) {
  loader_->push(std::move(wanted));
}

// On the loader's thread. What has been proved here lies in the spool; what has not is not served.
Result<std::uint32_t> NodeAgent::Body::read_spool(const transport::FrameWanted& wanted,
                                                  std::span<std::byte> into) const {
  const auto run = find_run(wanted.refit);
  if (run == nullptr || !run->has_resolver() || !run->enter()) {
    return failure(ErrorCode::kProtocol, Stage::kRelay,
                   to_string(wanted.refit) + " is not open here");
  }
  auto bytes = run->resolver().spool()->read(wanted.producer, wanted.sequence, into);
  run->leave();
  return bytes;
}

std::shared_ptr<RefitRun> NodeAgent::Body::find_run(const RefitId& refit) const {
  return runs_.with([&](const Runs& runs) {
    const auto found = runs.find(refit);
    return found == runs.end() ? nullptr : found->second;
  });
}

std::shared_ptr<RefitRun> NodeAgent::Body::take_run(const RefitId& refit) {
  return runs_.with([&](Runs& runs) {
    const auto found = runs.find(refit);
    if (found == runs.end()) return std::shared_ptr<RefitRun>();
    auto run = std::move(found->second);
    runs.erase(found);
    return run;
  });
}

void NodeAgent::Body::act(apply::agent::Send& action) {
  if (action.session != session_ || session_.value == 0) return;
  if (auto* heartbeat = std::get_if<wire::Heartbeat>(&action.message)) {
    heartbeat->scrub = scrub_report(scrubber_->progress(), std::chrono::steady_clock::now());
  }
  // A full or closed session ends with on_disconnected; what was to be said is said again then.
  if (auto sent = client_->send(action.message); !sent) {
    events_.report(Severity::kDebug, "message_dropped",
                   std::vector<EventField>{{"error", sent.error().message()}});
  }
}

void NodeAgent::Body::act(apply::agent::CloseSession& action) {
  if (action.session != session_ || session_.value == 0) return;
  events_.report(Severity::kWarning, "session_closed",
                 std::vector<EventField>{{"error", action.reason.message()}});
  const apply::SessionId closed = std::exchange(session_, apply::SessionId{});
  next_events_.push_back(apply::agent::SessionClosed{closed});
  close_client();
}

void NodeAgent::Body::act(apply::agent::AppendRecord& action) {
  if (const auto* epoch = std::get_if<apply::EpochRecord>(&action.record)) {
    snapshot_.with([&](NodeSnapshot& shown) {
      shown.fleet = epoch->fleet;
      shown.epoch = epoch->epoch;
    });
  }
  if (auto appended = state_->append(action.record); appended) {
    kill_point(std::string("agent.after_") + kRecordNames[action.record.index()]);
    next_events_.push_back(apply::agent::LogSynced{action.token});
  } else {
    next_events_.push_back(apply::agent::LogFailed{action.token, appended.error()});
  }
}

void NodeAgent::Body::act(apply::agent::RetireRefit& action) {
  relay_->leave(action.refit);
  if (auto run = take_run(action.refit); run != nullptr) {
    run->cancel();
    run->wait_idle();
    relay_->leave(action.refit);  // an opening that was under way may have entered since
  }
  state_->retain(action.refit);
}

void NodeAgent::Body::act(apply::agent::UpdatePlan& action) {
  const auto run = find_run(action.plan.refit);
  if (run == nullptr) return;
  const std::string revision = std::to_string(action.plan.revision);
  if (!run->renew_plan(std::make_shared<const wire::Plan>(std::move(action.plan)))) return;
  const Status entered = enter_trees(*run);
  const std::string outcome = entered ? "entered" : entered.error().message();
  events_.report(
      entered ? Severity::kInfo : Severity::kWarning, "plan_changed",
      std::vector<EventField>{
          {"refit", to_string(run->refit())}, {"revision", revision}, {"outcome", outcome}});
}

void NodeAgent::Body::act(apply::agent::Probe& action) {
  next_events_.push_back(apply::agent::Probed{state_->probe(action.cause)});
}

void NodeAgent::Body::act(apply::agent::ShowState& action) {
  snapshot_.with([&](NodeSnapshot& shown) {
    damaged_.store(action.state == wire::MemberState::kNeedsReseed);
    shown.state = action.state;
    shown.cause = action.cause;
    shown.content = action.content;
    shown.committed = action.committed;
    shown.ready = action.ready;
  });
  // While files change in place the apply keeps the page; while a standby is built its readers
  // stay where they are.
  const bool applying = applying_.load() != 0;
  if (applying && !state_->has_sets()) return;
  const auto content = applying ? std::nullopt : std::optional(action.content);
  if (auto written = state_->show_page(action.ready, content); !written) {
    events_.report(Severity::kError, "state_page_failed",
                   std::vector<EventField>{{"error", written.error().message()}});
  }
}

void NodeAgent::Body::act(apply::agent::Note& action) {
  events_.report(action.severity, action.name, std::vector<EventField>{{"detail", action.detail}});
}

void NodeAgent::Body::act(apply::agent::Stop& action) { fatal_ = action.error; }

}  // namespace weft::agent
