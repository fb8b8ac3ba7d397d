// SPDX-License-Identifier: Apache-2.0
#include "agent/lib/coordinator_service.hpp"

#include <array>
#include <atomic>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "agent/lib/decision_store.hpp"
#include "agent/lib/fault_point.hpp"
#include "agent/lib/random_id.hpp"
#include "apply/commit/coordinator_role.hpp"
#include "transport/control/control_server.hpp"
#include "transport/tree/reattach.hpp"
#include "transport/tree/relay_plan.hpp"
#include "weft/base/clock.hpp"
#include "weft/base/guarded.hpp"
#include "weft/base/limits.hpp"
#include "weft/base/thread_owner.hpp"

namespace weft::agent {
namespace {

using apply::CoordinatorEvent;
namespace step = apply::coordinator;

constexpr std::chrono::milliseconds kTick{50};
constexpr std::chrono::milliseconds kSnapshot{100};

// The relay plan of transport, asked as apply asks.
Result<std::vector<wire::Plan::Tree>> plan_trees(const apply::TreeRequest& request) {
  if (request.previous != nullptr) {
    return transport::reattach({*request.previous, request.nodes, request.leaf_only});
  }
  transport::PlanRequest wanted;
  wanted.shape = request.shape;
  wanted.producer_count = request.producer_count;
  wanted.agent_count = static_cast<std::uint32_t>(request.nodes.size()) - request.producer_count;
  wanted.leaf_only = request.leaf_only;
  // About a thirtieth of a model changes from step to step (README, "What it costs").
  wanted.volume_bytes = request.model_bytes / 32 / request.producer_count;
  for (const wire::Endpoint& node : request.nodes) wanted.regions.push_back(node.region);
  WEFT_TRY(transport::RelayPlan plan, transport::plan_relays(wanted));
  return std::move(plan.trees);
}

apply::CoordinatorOptions role_options(const CoordinatorConfig& config) {
  apply::CoordinatorOptions options;
  options.quorum = config.quorum;
  options.min_fraction = config.min_fraction;
  options.members_min = config.members_min;
  options.leaf_while_applying = config.late_leaves;
  options.shape = config.tree_shape;
  options.trees_open_max = config.trees_open_max;
  options.member_lost_after = config.control.lost_after;
  options.heartbeat_period = config.control.heartbeat_interval;
  options.begin_timeout = config.begin_timeout;
  options.settle_timeout = config.settle_timeout;
  options.rehash_timeout = config.rehash_timeout;
  options.stall_timeout = config.stall_timeout;
  options.prepare_timeout = config.prepare_timeout;
  return options;
}

// Parents in the first tree of a plan, by member.
std::map<std::string, std::string> parents_of(const wire::Plan& plan) {
  std::map<std::string, std::string> parents;
  if (plan.trees.empty()) return parents;
  const std::vector<wire::TreeNode>& places = plan.trees.front().nodes;
  for (std::size_t node = 0; node < places.size() && node < plan.nodes.size(); ++node) {
    const auto& parent = places[node].parent;
    if (parent && parent->value < plan.nodes.size()) {
      parents[plan.nodes[node].member_id] = plan.nodes[parent->value].member_id;
    }
  }
  return parents;
}

std::uint64_t milliseconds_of(Duration duration) {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(duration).count());
}

transport::FleetStatus make_status(const apply::FleetView& view) {
  transport::FleetStatus status{view.fleet, view.epoch, view.committed, {}, {}, view.last};
  std::map<std::string, std::string> parents;
  if (view.refit) {
    const apply::RefitView& open = *view.refit;
    status.refit = transport::RefitStatus{open.refit,
                                          open.phase,
                                          open.base.version,
                                          open.target_version,
                                          "",
                                          open.planned,
                                          open.lost,
                                          open.yes,
                                          open.no,
                                          open.frames_min,
                                          milliseconds_of(open.open)};
    if (open.plan) {
      status.refit->shape = open.plan->shape;
      parents = parents_of(*open.plan);
    }
  }
  for (const apply::MemberView& member : view.members) {
    const auto parent = parents.find(member.id);
    status.members.push_back(
        {member.id, member.role, member.state, member.content, member.cause, member.region,
         member.ready, member.connected, member.unconfirmed, member.process,
         milliseconds_of(member.silent), member.frames, member.bytes,
         parent == parents.end() ? std::string() : parent->second, member.scrub});
  }
  return status;
}

}  // namespace

// Owns:    as CoordinatorService.
// Threads: any for the public part; the rest belongs to the loop (in open() to its caller).
class CoordinatorService::Impl final : public transport::ControlServerObserver {
 public:
  Impl(const CoordinatorConfig& config, EventSink& events, DecisionStore store,
       apply::DecisionFold fold)
      : config_(config),
        events_(events),
        store_(std::move(store)),
        role_(role_options(config), std::move(fold), random_process_id(), random_fleet_id(),
              plan_trees) {}
  ~Impl() override { close(); }

  // Binds first: a taken port must not cost an epoch. What members say meanwhile waits.
  Status start() {
    transport::ControlServerOptions options;
    options.listen = config_.listen;
    options.tls = config_.tls;
    options.heartbeat_interval = config_.control.heartbeat_interval;
    options.lost_after = config_.control.lost_after;
    WEFT_TRY(server_, transport::ControlServer::open(options, *this, events_));
    take(step::Start{});
    if (auto error = stopped()) return *std::move(error);
    snapshot();
    thread_ = std::thread([this] { run(); });
    return ok();
  }

  const transport::HostPort& address() const { return server_->address(); }
  std::optional<Error> stopped() const {
    return stopped_.with([](const std::optional<Error>& error) { return error; });
  }
  bool serving() const { return serving_.load() && !stopped(); }

  void close() {
    inbox_.update([](Inbox& inbox) { inbox.closed = true; });
    if (thread_.joinable()) thread_.join();
    if (server_ != nullptr) server_->close();
    for (auto& [request, reply] : std::exchange(replies_, {})) {
      reply(failure(ErrorCode::kBusy, Stage::kControl, "the coordinator stops"));
    }
  }

  // --- ControlServerObserver: gRPC's threads ---
  void on_message(transport::SessionId session, wire::MemberMessage message) override {
    const bool full = inbox_.update([&](Inbox& inbox) {
      if (inbox.closed) return false;
      if (inbox.events.size() < limits::kQueueDepthMax) {
        inbox.events.push_back(
            step::MemberSaid{apply::SessionId{session.value}, std::move(message)});
        return false;
      }
      // A heartbeat more or less; anything else must not be lost without the member's knowledge.
      if (!std::holds_alternative<wire::Heartbeat>(message)) inbox.overrun.insert(session.value);
      return true;
    });
    if (full) events_.count("coordinator_inbox_full_total", 1);
  }
  void on_closed(transport::SessionId session, Error reason) override {
    const std::array fields = {EventField{"session", std::to_string(session.value)},
                               EventField{"cause", std::string(to_string(reason.code))},
                               EventField{"detail", std::move(reason.detail)}};
    events_.report(Severity::kInfo, "session_closed", fields);
    inbox_.update([&](Inbox& inbox) {
      inbox.events.push_back(step::SessionClosed{apply::SessionId{session.value}});
    });
  }
  transport::FleetStatus status() override {
    return status_.with([](const transport::FleetStatus& status) { return status; });
  }
  void on_resolve(RefitId refit, bool commit, ResolveReply reply) override {
    inbox_.update([&](Inbox& inbox) {
      inbox.resolves.push_back({refit, commit, std::move(reply)});
    });
  }

 private:
  struct Resolve {
    RefitId refit;
    bool commit = false;
    ResolveReply reply;
  };
  struct Inbox {
    std::deque<CoordinatorEvent> events;
    std::set<std::uint64_t> overrun;  // sessions of which something was dropped
    std::vector<Resolve> resolves;
    bool closed = false;

    bool empty() const { return events.empty() && overrun.empty() && resolves.empty() && !closed; }
  };

  void run() {
    owner_.adopt();
    TimePoint ticked_at = clock_.now();
    TimePoint shown_at = ticked_at;
    bool changed = false;
    while (!stopped()) {
      Inbox inbox = inbox_.wait_for(
          kTick, [](const Inbox& waiting) { return !waiting.empty(); },
          [](Inbox& waiting, bool) {
            Inbox taken = std::exchange(waiting, Inbox{});
            waiting.closed = taken.closed;
            return taken;
          });
      if (inbox.closed) return;
      changed = changed || !inbox.events.empty() || !inbox.resolves.empty();
      for (const std::uint64_t session : inbox.overrun) {
        server_->end(transport::SessionId{session});
      }
      for (CoordinatorEvent& event : inbox.events) take(std::move(event));
      for (Resolve& resolve : inbox.resolves) take_resolve(std::move(resolve));
      const TimePoint now = clock_.now();
      if (now - ticked_at >= kTick) {
        ticked_at = now;
        take(step::Tick{});
      }
      // A tick can change the view too (a member is lost), so it is taken now and then anyway.
      if (now - shown_at >= (changed ? kSnapshot : 5 * kSnapshot)) {
        shown_at = now;
        changed = false;
        snapshot();
      }
    }
  }

  // One event, and the log completions that follow from it.
  void take(CoordinatorEvent event) {
    std::deque<CoordinatorEvent> pending;
    pending.push_back(std::move(event));
    while (!pending.empty() && !stopped()) {
      const CoordinatorEvent next = std::move(pending.front());
      pending.pop_front();
      for (apply::CoordinatorAction& action : role_.step(next, clock_.now())) {
        std::visit([&](auto& what) { carry_out(what, pending); }, action);
        if (stopped()) return;  // nothing may be sent or written after a Stop
      }
    }
  }

  void take_resolve(Resolve resolve) {
    const std::uint64_t request = next_request_++;
    replies_[request] = std::move(resolve.reply);
    take(step::OperatorResolve{request, resolve.refit,
                               resolve.commit ? wire::Verdict::kCommit : wire::Verdict::kAbort});
  }

  void carry_out(step::Send& action, std::deque<CoordinatorEvent>&) {
    const Status sent = server_->send({action.session.value}, action.message);
    // Lost with its session; but a plan that fits no message is an operator's problem.
    if (!sent && sent.error().code == ErrorCode::kResourceLimit) {
      const std::array fields = {EventField{"cause", "resource_limit"},
                                 EventField{"detail", sent.error().detail}};
      events_.report(Severity::kError, "control_send_failed", fields);
    }
  }
  void carry_out(step::CloseSession& action, std::deque<CoordinatorEvent>&) {
    server_->end({action.session.value});
  }
  void carry_out(step::RewriteLog& action, std::deque<CoordinatorEvent>& pending) {
    kill_point("coordinator.before_start");
    Status rewritten = store_.rewrite(action.records);
    kill_point("coordinator.after_start");
    complete(action.token, std::move(rewritten), pending);
  }
  void carry_out(step::AppendRecord& action, std::deque<CoordinatorEvent>& pending) {
    const auto* decision = std::get_if<apply::DecisionRecord>(&action.record);
    const bool commits = decision != nullptr && decision->verdict == wire::Verdict::kCommit;
    if (commits) kill_point("coordinator.before_decision");
    Status appended = store_.append(action.record);
    if (commits) kill_point("coordinator.after_decision");
    if (action.sync) return complete(action.token, std::move(appended), pending);
    if (!appended) {
      const std::array fields = {EventField{"detail", appended.error().message()}};
      events_.report(Severity::kError, "decision_log_append_failed", fields);
    }
  }
  void carry_out(step::Serve& action, std::deque<CoordinatorEvent>&) {
    const std::array fields = {
        EventField{"address", to_string(server_->address())},
        EventField{"fleet", to_hex(action.fleet)},
        EventField{"epoch", std::to_string(action.epoch.number)},
        EventField{"version", std::to_string(action.committed.version.value)},
        EventField{"root", to_hex(action.committed.root)}};
    serving_ = true;
    events_.report(Severity::kInfo, "coordinator_serves", fields);
  }
  void carry_out(step::OperatorAnswer& action, std::deque<CoordinatorEvent>&) {
    const auto found = replies_.find(action.request);
    if (found == replies_.end()) return;
    found->second(action.status);
    replies_.erase(found);
  }
  void carry_out(step::Note& action, std::deque<CoordinatorEvent>&) {
    const std::array fields = {EventField{"detail", action.detail}};
    events_.report(action.severity, action.name, fields);
    events_.count(std::string(action.name) + "_total", 1);
  }
  void carry_out(step::Stop& action, std::deque<CoordinatorEvent>&) {
    const std::array fields = {EventField{"cause", std::string(to_string(action.error.code))},
                               EventField{"detail", action.error.detail}};
    events_.report(Severity::kError, "coordinator_stops", fields);
    stopped_.update([&](std::optional<Error>& error) { error = action.error; });
  }

  static void complete(apply::LogToken token, Status status,
                       std::deque<CoordinatorEvent>& pending) {
    if (status) {
      pending.push_back(step::LogSynced{token});
    } else {
      pending.push_back(step::LogFailed{token, std::move(status).error()});
    }
  }

  void snapshot() {
    auto status = make_status(role_.view());
    status_.with([&](transport::FleetStatus& shown) { shown = std::move(status); });
  }

  const CoordinatorConfig config_;
  EventSink& events_;
  const MonotonicClock clock_;
  ThreadOwner owner_;
  DecisionStore store_;
  apply::CoordinatorRole role_;
  std::map<std::uint64_t, ResolveReply> replies_;
  std::uint64_t next_request_ = 1;

  Guarded<Inbox> inbox_;
  Guarded<transport::FleetStatus> status_;
  Guarded<std::optional<Error>> stopped_;
  std::atomic<bool> serving_{false};
  std::unique_ptr<transport::ControlServer> server_;
  std::thread thread_;
};

CoordinatorService::CoordinatorService(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CoordinatorService::~CoordinatorService() = default;

Result<std::unique_ptr<CoordinatorService>> CoordinatorService::open(
    const CoordinatorConfig& config, EventSink& events) {
  WEFT_TRY(auto store, DecisionStore::open(config.state_dir, config.durability, events));
  WEFT_TRY(auto fold, apply::fold_decisions(store.records()));
  auto impl = std::make_unique<Impl>(config, events, std::move(store), std::move(fold));
  WEFT_TRY_STATUS(impl->start());
  return std::unique_ptr<CoordinatorService>(new CoordinatorService(std::move(impl)));
}

const transport::HostPort& CoordinatorService::address() const { return impl_->address(); }
transport::FleetStatus CoordinatorService::status() const { return impl_->status(); }
std::optional<Error> CoordinatorService::stopped() const { return impl_->stopped(); }
bool CoordinatorService::serving() const { return impl_->serving(); }
void CoordinatorService::close() { impl_->close(); }

}  // namespace weft::agent
