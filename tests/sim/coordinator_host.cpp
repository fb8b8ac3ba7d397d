// SPDX-License-Identifier: Apache-2.0
#include "sim/coordinator_host.hpp"

#include <algorithm>
#include <utility>

namespace weft::sim {

namespace coordinator = apply::coordinator;

namespace {

// A tree of two children per node; who must be a leaf hangs below the producer itself.
Result<std::vector<wire::Plan::Tree>> plan_trees(const apply::TreeRequest& request) {
  std::vector<wire::Plan::Tree> trees;
  for (std::uint32_t p = 0; p < request.producer_count; ++p) {
    wire::Plan::Tree tree;
    tree.nodes.resize(request.nodes.size());
    std::vector<std::uint32_t> inner;
    for (std::uint32_t i = request.producer_count; i < request.nodes.size(); ++i) {
      const bool leaf = request.leaf_only[i];
      const std::uint32_t parent = leaf || inner.empty() ? p : inner[(inner.size() - 1) / 2];
      if (parent != p) tree.nodes[i].parent = NodeIndex{parent};
      tree.nodes[parent].children.push_back(NodeIndex{i});
      if (!leaf) inner.push_back(i);
    }
    trees.push_back(std::move(tree));
  }
  return trees;
}

}  // namespace

CoordinatorHost::CoordinatorHost(World& world) : Host(world, "coordinator") {
  fleet_ = FleetId{{world.random.next() | 1, 7}};
}

void CoordinatorHost::on_start() {
  auto fold = apply::fold_decisions(log_.durable());
  if (!fold) {
    world_.checker.violate(fold.error().message());
    return;
  }
  if (world_.bug == PlantedBug::kAbortPresumedTooEarly) fold->commits.clear();
  apply::CoordinatorOptions options;
  options.quorum = world_.setting.quorum;
  options.replan = world_.setting.replan;
  options.leaf_while_applying = world_.setting.leaves;
  options.member_lost_after = std::chrono::milliseconds(1200);
  options.heartbeat_period = std::chrono::milliseconds(300);
  options.start_grace = std::chrono::milliseconds(500);
  options.begin_timeout = std::chrono::seconds(3);
  options.settle_timeout = std::chrono::seconds(3);
  options.stall_timeout = std::chrono::seconds(3);
  options.prepare_timeout = std::chrono::seconds(3);
  options.repeat_period = std::chrono::milliseconds(400);
  options.decided_max = 6;
  role_ = std::make_unique<apply::CoordinatorRole>(options, *std::move(fold), process_, fleet_,
                                                   plan_trees);
  log_free_at_ = world_.now;
  sealed_.reset();
  world_.trace("coordinator starts");
  step(coordinator::Start{});
  tick_every(std::chrono::milliseconds(100), [this] { step(coordinator::Tick{}); });
}

void CoordinatorHost::on_kill(bool) { halt(); }

void CoordinatorHost::halt() {
  serving_ = false;
  role_.reset();
  for (const auto& record : log_.crash(world_.random.below(log_.in_flight_count() + 1))) {
    world_.checker.durable(record);
  }
}

void CoordinatorHost::step(const apply::CoordinatorEvent& event) {
  const std::uint64_t self = incarnation();
  for (const apply::CoordinatorAction& action : role_->step(event, world_.now)) {
    if (!alive() || incarnation() != self) return;
    std::visit([this](const auto& concrete) { act(concrete); }, action);
  }
}

// The test-only variant: a YES for an earlier attempt passes for one for the open refit.
void CoordinatorHost::plant(wire::MemberMessage& message) {
  auto* vote = std::get_if<wire::Vote>(&message);
  const bool old = world_.bug == PlantedBug::kVoteOfOldAttempt && vote && vote->yes && sealed_ &&
                   vote->refit.epoch == sealed_->refit.epoch && vote->refit < sealed_->refit;
  if (!old) return;
  vote->refit = sealed_->refit;
  vote->manifest = sealed_->digest();
  vote->target_root = sealed_->target.root;
}

void CoordinatorHost::hear(apply::SessionId session, wire::MemberMessage message) {
  plant(message);
  if (const auto* vote = std::get_if<wire::Vote>(&message)) {
    const apply::FleetView fleet = role_->view();
    std::string voter = "?";
    if (const MemberHost* member = world_.member_of(session)) voter = member->name();
    const bool open = fleet.refit && fleet.refit->refit == vote->refit;
    if (open) world_.checker.counted(voter, *vote);
  }
  step(coordinator::MemberSaid{session, std::move(message)});
}

void CoordinatorHost::hang_up(apply::SessionId session) {
  step(coordinator::SessionClosed{session});
}

void CoordinatorHost::act(const coordinator::Send& action) {
  wire::CoordinatorMessage message = action.message;
  if (const auto* plan = std::get_if<wire::Plan>(&message)) world_.checker.said(*plan);
  if (const auto* seal = std::get_if<wire::Seal>(&message)) sealed_ = seal->manifest;
  if (auto* decision = std::get_if<wire::Decision>(&message)) {
    const bool lies = world_.bug == PlantedBug::kAbortWhileUndecided &&
                      decision->verdict == wire::Verdict::kUndecided;
    if (lies) decision->verdict = wire::Verdict::kAbort;
    world_.checker.said(*decision);
  }
  world_.to_member(action.session, std::move(message));
}

void CoordinatorHost::act(const coordinator::CloseSession& action) {
  world_.at(world_.random.millis(1, 20),
            [this, session = action.session] { world_.close(session); });
}

void CoordinatorHost::act(const coordinator::RewriteLog& action) {
  later(world_.random.millis(2, 40), [this, action] {
    log_.set_durable(action.records);
    world_.checker.rewritten(action.records);
    step(coordinator::LogSynced{action.token});
  });
}

void CoordinatorHost::act(const coordinator::AppendRecord& action) {
  log_.append(action.record, action.sync);
  if (!action.sync) return;
  log_free_at_ = std::max(log_free_at_, world_.now) + world_.random.millis(1, 25);
  later(log_free_at_ - world_.now, [this, token = action.token] {
    const bool fails = world_.faulty() && world_.random.chance(world_.setting.log_failure);
    for (const auto& record : log_.settle_one(fails && world_.random.chance(0.5))) {
      world_.checker.durable(record);
    }
    if (fails) {
      step(
          coordinator::LogFailed{token, make_error(ErrorCode::kIoFailed, Stage::kDecide, "fault")});
    } else {
      step(coordinator::LogSynced{token});
    }
  });
}

void CoordinatorHost::act(const coordinator::Serve&) { serving_ = true; }

void CoordinatorHost::act(const coordinator::OperatorAnswer&) {}

void CoordinatorHost::act(const coordinator::Note& action) {
  if (world_.tracing())
    world_.trace("coordinator notes " + std::string(action.name) + ": " + action.detail);
}

// A process that ends by itself; somebody starts it again. Only a log that fails may end it.
void CoordinatorHost::act(const coordinator::Stop& action) {
  if (action.error.code != ErrorCode::kIoFailed) {
    world_.checker.violate("coordinator stopped: " + action.error.message());
  }
  world_.trace("coordinator stops: " + action.error.message());
  world_.at(Duration{}, [this] { kill(false); });
  world_.at(world_.random.millis(100, 1500), [this] {
    if (!alive()) start();
  });
}

}  // namespace weft::sim
