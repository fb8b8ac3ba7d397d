// SPDX-License-Identifier: Apache-2.0
#include "sim/agent_host.hpp"

#include <algorithm>
#include <utility>

#include "sim/producer_host.hpp"

namespace weft::sim {

namespace agent = apply::agent;

AgentHost::AgentHost(World& world, std::string name, Weights weights)
    : MemberHost(world, std::move(name)), cached_(std::move(weights)) {
  on_disk_ = cached_;
  boot_.low = world.random.next();
}

Duration AgentHost::io(std::uint64_t low_ms, std::uint64_t high_ms) {
  const Duration time = world_.random.millis(low_ms, high_ms);
  const std::uint64_t slow = world_.setting.slow_agent;
  const bool mine = slow < world_.agents.size() && world_.agents[slow].get() == this;
  return mine && world_.faulty() ? time * 20 : time;
}

std::vector<apply::FileIdentity> AgentHost::stamps() const {
  return {apply::FileIdentity{1, 2, kChunkCount * 8, mtime_, mtime_}};
}

apply::StateEvidence AgentHost::look() const {
  const apply::StateFold fold = apply::fold_state(log_.durable(), world_.setting.hooks);
  apply::StateEvidence evidence;
  evidence.files_as_recorded = fold.applied && fold.applied->files == stamps();
  evidence.boot_changed = fold.applied && fold.applied->boot != boot_;
  return evidence;
}

void AgentHost::on_start() {
  const bool hooks = world_.setting.hooks;
  const apply::StateFold fold = apply::fold_state(log_.durable(), hooks);
  apply::AgentRecovery recovery = apply::recover_agent(fold, look());
  if (world_.bug == PlantedBug::kTornBlocksTrusted) recovery.check_written = false;
  log_.set_durable(apply::compact_state(log_.durable(), hooks));
  log_closed_ = false;
  std::erase_if(journals_, [&](const auto& entry) {
    const bool front = recovery.front && recovery.front->refit == entry.first;
    const bool behind = recovery.behind && recovery.behind->refit == entry.first;
    return !front && !behind;
  });
  refits_.clear();
  shown_ = agent::ShowState{};
  log_free_at_ = world_.now;
  apply::AgentOptions options;
  options.endpoint.member_id = name_;
  options.endpoint.process = process_;
  options.hooks = hooks;
  options.heartbeat_period = std::chrono::milliseconds(300);
  options.coordinator_lost_after = std::chrono::milliseconds(1500);
  options.hello_period = std::chrono::seconds(1);
  options.query_period = std::chrono::milliseconds(400);
  options.retry_period = std::chrono::milliseconds(200);
  options.in_doubt_after = std::chrono::seconds(2);
  role_ = std::make_unique<apply::AgentRole>(options, recovery);
  world_.trace(name_ + " starts, row " + std::to_string(static_cast<int>(recovery.row)));
  step(agent::Start{schema_digest()});
  tick_every(std::chrono::milliseconds(100), [this] { step(agent::Tick{}); });
  reconnect();
}

void AgentHost::on_kill(bool power) {
  forget_session();
  role_.reset();
  refits_.clear();
  shown_ = agent::ShowState{};
  const std::size_t kept = world_.random.below(log_.in_flight_count() + 1);
  for (const apply::StateRecord& record : log_.crash(kept)) {
    world_.checker.durable(name_, record);
  }
  if (!power) return;
  boot_.low = world_.random.next();
  for (std::uint32_t chunk = 0; chunk < kChunkCount; ++chunk) {
    if (cached_[chunk] == on_disk_[chunk]) continue;
    switch (world_.random.below(3)) {
      case 0:
        cached_[chunk] = on_disk_[chunk];
        break;
      case 1:
        break;
      default:
        cached_[chunk].torn = true;
    }
  }
  on_disk_ = cached_;
  std::erase_if(journals_, [&](const auto& entry) { return !entry.second.synced; });
}

void AgentHost::damage() {
  const auto chunk = static_cast<std::uint32_t>(world_.random.below(kChunkCount));
  cached_[chunk].value ^= 0x10;
  on_disk_[chunk].value ^= 0x10;
  damaged_ = true;
  world_.trace(name_ + " has a flipped bit in chunk " + std::to_string(chunk));
}

void AgentHost::step(const apply::AgentEvent& event) {
  const std::uint64_t self = incarnation();
  for (const apply::AgentAction& action : role_->step(event, world_.now)) {
    if (!alive() || incarnation() != self) return;
    plant(action);
    std::visit([this](const auto& concrete) { act(concrete); }, action);
  }
  check();
}

void AgentHost::check() {
  if (!alive() || damaged_) return;
  world_.checker.shows(name_, shown_.content, shown_.ready, cached_, on_disk_,
                       world_.setting.producer_count);
}

void AgentHost::on_opened(apply::SessionId session) { step(agent::SessionOpened{session}); }
void AgentHost::on_closed(apply::SessionId session) { step(agent::SessionClosed{session}); }
void AgentHost::on_message(apply::SessionId session, const wire::CoordinatorMessage& message) {
  step(agent::CoordinatorSaid{session, message});
}

// The test-only variants: what the role would do if it were wrong.
void AgentHost::plant(const apply::AgentAction& action) {
  const auto* send = std::get_if<agent::Send>(&action);
  const auto* append = std::get_if<agent::AppendRecord>(&action);
  if (world_.bug == PlantedBug::kApplyBeforeDecision && send) {
    const auto* vote = std::get_if<wire::Vote>(&send->message);
    if (vote && vote->yes) write_next({vote->refit, {}, false}, 0);
  }
  if (world_.bug == PlantedBug::kVoteBeforeSync && append) {
    const auto* prepared = std::get_if<apply::PreparedRecord>(&append->record);
    if (prepared) {
      act(agent::Send{session_, wire::Vote{prepared->prepared.refit, true, std::nullopt,
                                           prepared->manifest, prepared->prepared.target.root}});
    }
  }
  if (world_.bug == PlantedBug::kApplyBeforeCommitSync && append) {
    const auto* commit = std::get_if<apply::CommitRecord>(&append->record);
    if (commit) write_next({commit->refit, commit->target, false}, 0);
  }
}

void AgentHost::act(const agent::Send& action) {
  if (const auto* vote = std::get_if<wire::Vote>(&action.message)) {
    world_.checker.said(name_, *vote);
  }
  world_.to_coordinator(action.session, action.message);
}

void AgentHost::act(const agent::CloseSession& action) { drop_session(action.session); }

void AgentHost::act(const agent::AppendRecord& action) {
  log_.append(action.record, true);
  log_free_at_ = std::max(log_free_at_, world_.now) + io(1, 12);
  later(log_free_at_ - world_.now, [this, token = action.token] {
    const bool fails =
        log_closed_ || (world_.faulty() && world_.random.chance(world_.setting.log_failure));
    const bool lost = log_closed_ || (fails && world_.random.chance(0.5));
    for (const apply::StateRecord& record : log_.settle_one(lost)) {
      world_.checker.durable(name_, record);
    }
    if (fails) {
      log_closed_ = true;
      step(agent::LogFailed{token, make_error(ErrorCode::kIoFailed, Stage::kPrepare, "fault")});
    } else {
      step(agent::LogSynced{token});
    }
  });
}

void AgentHost::act(const agent::ComputeTable& action) {
  const Digest lattice =
      action.lattice.is_zero() ? lattice_digest(world_.setting.producer_count) : action.lattice;
  later(io(20, 200), [this, lattice] {
    step(agent::TableComputed{lattice, root_of(cached_, world_.setting.producer_count), boot_,
                              stamps()});
  });
}

void AgentHost::act(const agent::CallAfterApply& action) {
  later(io(5, 50), [this, refit = action.refit] {
    Status status = ok();
    if (world_.faulty() && world_.random.chance(0.2)) {
      status = failure(ErrorCode::kTimeout, Stage::kPublish, "the hook did not answer");
    }
    step(agent::HookDone{refit, std::move(status)});
  });
}

void AgentHost::act(const agent::Probe&) {
  later(io(5, 50), [this] {
    if (world_.faulty() && world_.random.chance(0.3)) {
      step(agent::Probed{failure(ErrorCode::kNoSpace, Stage::kPrepare, "still full")});
      return;
    }
    if (log_.in_flight_count() == 0) {
      log_closed_ = false;
      log_.set_durable(apply::compact_state(log_.durable(), world_.setting.hooks));
    }
    step(agent::Probed{ok()});
  });
}

void AgentHost::act(const agent::ShowState& action) {
  shown_ = action;
  if (world_.tracing()) {
    world_.trace(name_ + " is " + std::to_string(static_cast<int>(action.state)) + " at version " +
                 std::to_string(action.content.version.value) + (action.ready ? ", ready" : "") +
                 (action.cause ? ": " + action.cause->detail : std::string()));
  }
}

void AgentHost::act(const agent::Note& action) {
  if (world_.tracing()) world_.trace(name_ + " notes " + action.name + ": " + action.detail);
}

void AgentHost::act(const agent::Stop& action) {
  world_.checker.violate(name_ + " stopped: " + action.error.message());
}

}  // namespace weft::sim
