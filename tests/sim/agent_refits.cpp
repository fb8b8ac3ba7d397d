// SPDX-License-Identifier: Apache-2.0
// The node's part that is neither role nor log: frames, journal, weight files.
#include <algorithm>
#include <utility>

#include "sim/agent_host.hpp"
#include "sim/producer_host.hpp"

namespace weft::sim {

namespace agent = apply::agent;

namespace {

Error io_fault(World& world) {
  return world.random.chance(0.5) ? make_error(ErrorCode::kNoSpace, Stage::kPrepare, "disk full")
                                  : make_error(ErrorCode::kIoFailed, Stage::kPrepare, "bad sector");
}

}  // namespace

const SimSpool* AgentHost::frames(const RefitId& refit, ProcessId process) const {
  const auto running = refits_.find(refit);
  const auto journal = journals_.find(refit);
  const bool serves = alive() && process == process_ && running != refits_.end() &&
                      running->second.opened && journal != journals_.end();
  return serves ? &journal->second.spool : nullptr;
}

void AgentHost::act(const agent::OpenRefit& action) {
  Running& running = refits_[action.plan.refit];
  running.plan = action.plan;
  running.resolving = action.resolve;
  later(io(1, 10), [this, refit = action.plan.refit] {
    const auto found = refits_.find(refit);
    if (found == refits_.end()) return;
    if (world_.faulty() && world_.random.chance(world_.setting.io_failure / 4)) {
      step(agent::RefitFailed{refit, io_fault(world_)});
      return;
    }
    found->second.opened = true;
    journals_[refit];
    step(agent::RefitOpened{refit});
    resolve(refit);
    fetch(refit);
  });
}

void AgentHost::act(const agent::StartResolve& action) {
  const auto found = refits_.find(action.refit);
  if (found == refits_.end()) return;
  found->second.resolving = true;
  later(io(0, 1), [this, refit = action.refit] { resolve(refit); });
}

void AgentHost::act(const agent::UpdatePlan& action) {
  const auto found = refits_.find(action.plan.refit);
  if (found != refits_.end()) found->second.plan = action.plan;
}

// Takes a frame from each tree's parent, if it is there and has one that is missing here.
void AgentHost::fetch(RefitId refit) {
  const auto found = refits_.find(refit);
  if (found == refits_.end()) return;
  const wire::Plan plan = found->second.plan;
  const auto self = std::find_if(plan.nodes.begin(), plan.nodes.end(), [&](const auto& node) {
    return node.member_id == name_ && node.process == process_;
  });
  const auto place = static_cast<std::size_t>(self - plan.nodes.begin());
  for (std::uint32_t p = 0; self != plan.nodes.end() && p < plan.trees.size(); ++p) {
    const auto parent = plan.trees[p].nodes[place].parent;
    const std::size_t from = parent ? parent->value : p;
    const wire::Endpoint& node = plan.nodes[from];
    const SimSpool* spool = nullptr;
    if (world_.reaches(node.member_id, name_)) {
      Host* host = world_.find_host(node.member_id);
      if (auto* peer = dynamic_cast<AgentHost*>(host)) {
        spool = peer->frames(refit, node.process);
      } else if (auto* producer = dynamic_cast<ProducerHost*>(host)) {
        spool = producer->frames(refit, node.process);
      }
    }
    if (!spool || world_.random.chance(0.2)) continue;
    for (const auto& [key, frame] : *spool) {
      if (key.first != p || journals_[refit].spool.contains(key)) continue;
      const SimFrame copy = frame;
      take(refit, copy);
      break;
    }
    if (!refits_.contains(refit)) return;
  }
  later(io(5, 25), [this, refit] { fetch(refit); });
}

void AgentHost::take(RefitId refit, const SimFrame& frame) {
  if (world_.faulty() && world_.random.chance(world_.setting.io_failure / 4)) {
    step(agent::RefitFailed{refit, io_fault(world_)});
    return;
  }
  journals_[refit].spool[{frame.producer, frame.sequence}] = frame;
  Running& running = refits_[refit];
  ++running.frames;
  if (!resolve(refit)) return;
  step(agent::RefitProgressed{refit, running.frames, running.frames * 100});
}

// Decodes what is spooled against this node's own old bytes.
bool AgentHost::resolve(RefitId refit) {
  const auto found = refits_.find(refit);
  if (found == refits_.end() || !found->second.resolving) return false;
  Journal& journal = journals_[refit];
  for (const auto& [key, frame] : journal.spool) {
    if (journal.values.contains(frame.chunk)) continue;
    const Chunk& old = cached_[frame.chunk];
    const std::uint64_t value = old.value ^ frame.mask;
    if (value != frame.new_digest || old.torn) {
      step(agent::RefitFailed{refit, make_error(ErrorCode::kBaseMismatch, Stage::kResolve,
                                                "chunk " + std::to_string(frame.chunk))});
      return false;
    }
    if (world_.faulty() && world_.random.chance(world_.setting.io_failure / 8)) {
      step(agent::RefitFailed{
          refit, make_error(ErrorCode::kCorruptPayload, Stage::kResolve, "flipped on its way")});
      return false;
    }
    journal.values[frame.chunk] = value;
  }
  return true;
}

void AgentHost::act(const agent::Prove& action) {
  const auto found = refits_.find(action.manifest.refit);
  if (found == refits_.end()) return;
  found->second.manifest = action.manifest;
  found->second.deadline = action.deadline;
  later(io(0, 2), [this, refit = action.manifest.refit] { try_prove(refit); });
}

void AgentHost::try_prove(RefitId refit) {
  const auto found = refits_.find(refit);
  if (found == refits_.end()) return;
  const wire::Manifest& manifest = *found->second.manifest;
  Journal& journal = journals_[refit];
  std::size_t expected = 0;
  for (const wire::ProducerSeal& seal : manifest.producers) expected += seal.frame_count;
  if (journal.values.size() < expected) {
    if (world_.now < found->second.deadline) {
      later(io(5, 20), [this, refit] { try_prove(refit); });
    } else {
      step(agent::ProveFailed{
          refit, make_error(ErrorCode::kTimeout, Stage::kPrepare, "frames are missing")});
    }
    return;
  }
  Weights result = cached_;
  for (const auto& [chunk, value] : journal.values) result[chunk].value = value;
  if (root_of(result, world_.setting.producer_count) != manifest.target.root) {
    step(agent::ProveFailed{refit, make_error(ErrorCode::kBaseMismatch, Stage::kPrepare,
                                              "the table does not fold to the target's root")});
    return;
  }
  later(io(2, 30), [this, refit] {
    if (!refits_.contains(refit)) return;
    if (world_.faulty() && world_.random.chance(world_.setting.io_failure)) {
      step(agent::ProveFailed{refit, io_fault(world_)});
      return;
    }
    journals_[refit].synced = true;
    step(agent::Proved{refit});
  });
}

void AgentHost::act(const agent::ApplyJournal& action) {
  later(io(1, 10), [this, action] {
    if (!journals_.contains(action.refit) || !journals_[action.refit].synced) {
      step(agent::ApplyFailed{
          action.refit, make_error(ErrorCode::kFormat, Stage::kApply, "no such journal"), false});
      return;
    }
    if (world_.faulty() && world_.random.chance(world_.setting.io_failure)) {
      step(agent::ApplyFailed{
          action.refit, make_error(ErrorCode::kTimeout, Stage::kApply, "a reader holds it"), true});
      return;
    }
    write_next(action, 0);
  });
}

// One chunk per event, so that a kill can fall between any two.
void AgentHost::write_next(agent::ApplyJournal action, std::uint32_t chunk) {
  const auto journal = journals_.find(action.refit);
  if (journal == journals_.end()) return;
  if (chunk == kChunkCount) {
    later(io(2, 30), [this, action] { finish_apply(action); });
    return;
  }
  if (const auto value = journal->second.values.find(chunk);
      value != journal->second.values.end()) {
    if (world_.faulty() && world_.random.chance(world_.setting.io_failure / 8)) {
      const ErrorCode code = world_.random.chance(0.7) ? ErrorCode::kNoSpace : ErrorCode::kIoFailed;
      step(agent::ApplyFailed{action.refit, make_error(code, Stage::kApply, "fault"), false});
      return;
    }
    world_.checker.writes_weights(name_, action.refit);
    cached_[chunk].value = value->second;
    ++mtime_;
    check();
  }
  later(io(1, 6), [this, action, chunk] { write_next(action, chunk + 1); });
}

void AgentHost::finish_apply(const agent::ApplyJournal& action) {
  if (action.check_written) {
    for (const auto& [chunk, value] : journals_[action.refit].values) {
      if (!cached_[chunk].torn) continue;
      step(agent::ApplyFailed{
          action.refit, make_error(ErrorCode::kInconsistentCheckpoint, Stage::kApply, "torn block"),
          false});
      return;
    }
  }
  on_disk_ = cached_;
  step(agent::Applied{action.refit, boot_, stamps()});
}

void AgentHost::act(const agent::ForgetRefit& action) {
  refits_.erase(action.refit);
  later(io(1, 10), [this, refit = action.refit] {
    journals_.erase(refit);
    step(agent::RefitForgotten{refit});
  });
}

void AgentHost::act(const agent::RetireRefit& action) {
  refits_.erase(action.refit);
  journals_.erase(action.refit);
}

}  // namespace weft::sim
