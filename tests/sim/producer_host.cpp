// SPDX-License-Identifier: Apache-2.0
#include "sim/producer_host.hpp"

#include <algorithm>
#include <utility>

namespace weft::sim {

namespace producer = apply::producer;

ProducerHost::ProducerHost(World& world, std::string name, std::uint32_t index, const Content& base,
                           Weights weights)
    : MemberHost(world, std::move(name)),
      index_(index),
      first_content_(base),
      first_part_(part_of(weights, index, world.setting.producer_count)),
      baseline_(std::move(weights)) {}

bool ProducerHost::mine(std::uint32_t chunk) const {
  return owns(index_, world_.setting.producer_count, chunk);
}

Content ProducerHost::content() const { return role_ ? role_->content() : first_content_; }

void ProducerHost::on_start() {
  const apply::ProducerFold fold = apply::fold_producer(log_.durable());
  log_.set_durable(apply::compact_producer(log_.durable()));
  apply::ProducerRecovery recovery;
  recovery.fleet = fold.fleet;
  recovery.epoch = fold.epoch;
  recovery.content = fold.baseline ? fold.baseline->content : first_content_;
  recovery.part = fold.baseline ? fold.baseline->part : first_part_;
  recovery.pending = fold.pending;
  std::erase_if(pending_, [&](const auto& entry) {
    return !fold.pending || fold.pending->prepared.refit != entry.first;
  });
  apply::ProducerOptions options;
  options.endpoint.member_id = name_;
  options.endpoint.process = process_;
  options.producer = ProducerIndex{index_};
  options.producer_count = world_.setting.producer_count;
  options.schema = schema_digest();
  options.heartbeat_period = std::chrono::milliseconds(300);
  options.coordinator_lost_after = std::chrono::milliseconds(1500);
  options.hello_period = std::chrono::seconds(1);
  options.repeat_period = std::chrono::milliseconds(400);
  options.ack_timeout = std::chrono::seconds(2);
  role_ = std::make_unique<apply::ProducerRole>(options, recovery);
  log_free_at_ = world_.now;
  world_.trace(name_ + " starts at version " + std::to_string(recovery.content.version.value) +
               (recovery.pending ? ", values pending" : ""));
  step(producer::Start{});
  tick_every(std::chrono::milliseconds(100), [this] { step(producer::Tick{}); });
  reconnect();
}

void ProducerHost::on_kill(bool) {
  forget_session();
  role_.reset();
  frames_.clear();
  encoding_.clear();
  request_ = 0;
  log_.crash(world_.random.below(log_.in_flight_count() + 1));
}

const SimSpool* ProducerHost::frames(const RefitId& refit, ProcessId process) const {
  const auto found = frames_.find(refit);
  return alive() && process == process_ && found != frames_.end() ? &found->second : nullptr;
}

bool ProducerHost::publish(Version version, const Weights& target) {
  if (!alive() || request_ != 0) return false;
  target_ = target;
  request_ = world_.random.next() | 1;
  last_.reset();
  producer::Publish publish;
  publish.request = request_;
  publish.target_version = version;
  publish.begin_timeout = std::chrono::seconds(6);
  publish.commit_timeout = std::chrono::seconds(8);
  publish.busy_timeout = std::chrono::seconds(4);
  step(publish);
  return true;
}

void ProducerHost::step(const apply::ProducerEvent& event) {
  const std::uint64_t self = incarnation();
  for (const apply::ProducerAction& action : role_->step(event, world_.now)) {
    if (!alive() || incarnation() != self) return;
    std::visit([this](const auto& concrete) { act(concrete); }, action);
  }
}

void ProducerHost::on_opened(apply::SessionId session) { step(producer::SessionOpened{session}); }
void ProducerHost::on_closed(apply::SessionId session) { step(producer::SessionClosed{session}); }
void ProducerHost::on_message(apply::SessionId session, const wire::CoordinatorMessage& message) {
  step(producer::CoordinatorSaid{session, message});
}

void ProducerHost::act(const producer::Send& action) {
  world_.to_coordinator(action.session, action.message);
}

void ProducerHost::act(const producer::CloseSession& action) { drop_session(action.session); }

void ProducerHost::act(const producer::AppendRecord& action) {
  log_.append(action.record, true);
  log_free_at_ = std::max(log_free_at_, world_.now) + world_.random.millis(1, 10);
  later(log_free_at_ - world_.now, [this, token = action.token] {
    const bool fails = world_.faulty() && world_.random.chance(world_.setting.log_failure / 2);
    log_.settle_one(fails && world_.random.chance(0.5));
    if (fails) {
      step(producer::LogFailed{token, make_error(ErrorCode::kIoFailed, Stage::kPrepare, "fault")});
    } else {
      step(producer::LogSynced{token});
    }
  });
}

void ProducerHost::act(const producer::StartEncode& action) {
  const RefitId refit = action.plan.refit;
  frames_[refit];
  encoding_.insert(refit);
  later(world_.random.millis(1, 20), [this, refit] { encode_next(refit, 0); });
}

void ProducerHost::encode_next(RefitId refit, std::uint32_t chunk) {
  if (!encoding_.contains(refit)) return;
  SimSpool& spool = frames_[refit];
  if (chunk < kChunkCount) {
    if (mine(chunk) && baseline_[chunk] != target_[chunk]) {
      const auto sequence = static_cast<std::uint32_t>(spool.size());
      spool[{index_, sequence}] = {index_, sequence, chunk,
                                   baseline_[chunk].value ^ target_[chunk].value,
                                   target_[chunk].value};
      step(producer::EncodeProgressed{refit, spool.size(), spool.size() * 100});
    }
    later(world_.random.millis(1, 25), [this, refit, chunk] { encode_next(refit, chunk + 1); });
    return;
  }
  encoding_.erase(refit);
  if (world_.faulty() && world_.random.chance(world_.setting.io_failure / 4)) {
    step(producer::EncodeFailed{refit,
                                make_error(ErrorCode::kIoFailed, Stage::kEncode, "pending lost")});
    return;
  }
  pending_[refit] = target_;
  if (world_.bug == PlantedBug::kBaselineAtEncode) {
    world_.checker.moves_baseline(name_, refit);
    baseline_ = target_;
  }
  wire::ProducerSeal seal;
  seal.frame_count = static_cast<std::uint32_t>(spool.size());
  seal.part = part_of(target_, index_, world_.setting.producer_count);
  seal.changed_elements = spool.size();
  seal.wire_bytes = spool.size() * 100;
  step(producer::Encoded{refit, seal});
}

void ProducerHost::act(const producer::UpdatePlan&) {}

void ProducerHost::act(const producer::MoveBaseline& action) {
  world_.checker.moves_baseline(name_, action.refit);
  frames_.erase(action.refit);
  later(world_.random.millis(1, 20), [this, refit = action.refit] { move_next(refit, 0); });
}

void ProducerHost::move_next(RefitId refit, std::uint32_t chunk) {
  if (chunk == kChunkCount) {
    step(producer::BaselineMoved{refit});
    return;
  }
  if (!pending_.contains(refit)) {
    world_.checker.violate(name_ + " moves values that it has not kept");
    return;
  }
  if (world_.faulty() && world_.random.chance(world_.setting.io_failure / 20)) {
    step(producer::BaselineFailed{refit,
                                  make_error(ErrorCode::kIoFailed, Stage::kPublish, "fault")});
    return;
  }
  if (mine(chunk)) baseline_[chunk] = pending_[refit][chunk];
  later(world_.random.millis(0, 5), [this, refit, chunk] { move_next(refit, chunk + 1); });
}

void ProducerHost::act(const producer::DropPending& action) {
  encoding_.erase(action.refit);
  frames_.erase(action.refit);
  later(world_.random.millis(1, 10), [this, refit = action.refit] {
    pending_.erase(refit);
    step(producer::PendingDropped{refit});
  });
}

void ProducerHost::act(const producer::ComputeTargetPart&) {
  later(world_.random.millis(1, 10), [this] {
    step(producer::TargetPart{part_of(target_, index_, world_.setting.producer_count)});
  });
}

void ProducerHost::act(const producer::PublishDone& action) {
  if (action.request != request_) return;
  request_ = 0;
  last_ = action;
  if (world_.tracing()) {
    world_.trace(name_ + " published: " +
                 (action.status ? std::string(action.already ? "already there" : "ok")
                                : action.status.error().message()));
  }
}

void ProducerHost::act(const producer::ShowOutcome&) {}

void ProducerHost::act(const producer::Note& action) {
  if (world_.tracing()) world_.trace(name_ + " notes " + action.name + ": " + action.detail);
}

void ProducerHost::act(const producer::Stop& action) {
  world_.checker.violate(name_ + " stopped: " + action.error.message());
}

void Trainer::start(std::uint32_t rounds) {
  rounds_left_ += rounds;
  world_.at(world_.random.millis(50, 500), [this] { look(); });
}

void Trainer::look() {
  if (running_) {
    const bool busy = std::any_of(world_.producers.begin(), world_.producers.end(),
                                  [](const auto& host) { return host->publishing(); });
    if (!busy) {
      running_ = false;
      bool all = true;
      for (const auto& host : world_.producers) {
        const bool published = host->last() && host->last()->status;
        all = all && published;
        if (!published) {
          last_error_ = host->last() ? host->last()->status.error().message() : "process ended";
        }
      }
      if (all) ++successes_;
    }
  } else if (rounds_left_ > 0) {
    begin_round();
  }
  if (!done()) world_.at(world_.random.millis(50, 300), [this] { look(); });
}

void Trainer::begin_round() {
  for (const auto& host : world_.producers) {
    if (!host->alive()) return;
  }
  Version newest;
  for (const auto& host : world_.producers) newest = std::max(newest, host->content().version);
  newest = std::max(newest, world_.checker.committed().version);
  if (!world_.random.chance(0.1)) {  // else: a step that changes nothing
    for (Chunk& chunk : weights_) {
      if (world_.random.chance(0.6)) chunk.value = world_.random.next();
    }
  }
  const Version target{newest.value + world_.random.between(1, 2)};
  world_.checker.know(root_of(weights_, world_.setting.producer_count), weights_);
  world_.trace("trainer publishes version " + std::to_string(target.value));
  --rounds_left_;
  running_ = true;
  for (const auto& host : world_.producers) host->publish(target, weights_);
}

}  // namespace weft::sim
