// SPDX-License-Identifier: Apache-2.0
// An AgentRole that has come to a state of interest by the events that lead there.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "apply/commit/agent_role.hpp"
#include "commit/samples.hpp"

namespace weft::apply::testing {

// Threads: one at a time.
class AgentRig {
 public:
  explicit AgentRig(AgentRecovery recovery = at_version_5(), AgentOptions options = {})
      : role(with_endpoint(std::move(options)), std::move(recovery)) {}

  static AgentRecovery at_version_5() {
    AgentRecovery recovery;
    recovery.row = StartRow::kClean;
    recovery.content = content(5);
    recovery.fleet = kFleet;
    recovery.epoch = kEpoch;
    return recovery;
  }
  static AgentOptions with_endpoint(AgentOptions options) {
    options.endpoint = endpoint("agent-0");
    return options;
  }

  const std::vector<AgentAction>& step(AgentEvent event) {
    actions = role.step(event, now);
    for (const AgentAction& action : actions) {
      if (const auto* shown = std::get_if<agent::ShowState>(&action)) state = *shown;
    }
    return actions;
  }
  const std::vector<AgentAction>& hear(wire::CoordinatorMessage message) {
    return step(agent::CoordinatorSaid{session, std::move(message)});
  }
  const std::vector<AgentAction>& wait(Duration time) {
    now += time;
    return step(agent::Tick{});
  }
  // The log record that the last step asked for is durable; what it was.
  StateRecord sync() {
    const auto* append = find<agent::AppendRecord>(actions);
    EXPECT_TRUE(append) << "nothing was to be recorded";
    if (!append) return {};
    StateRecord record = append->record;
    step(agent::LogSynced{append->token});
    return record;
  }
  void fail_log() {
    const auto* append = find<agent::AppendRecord>(actions);
    ASSERT_TRUE(append) << "nothing was to be recorded";
    step(agent::LogFailed{append->token, make_error(ErrorCode::kIoFailed, Stage::kPrepare, "EIO")});
  }

  void connect() {
    step(agent::Start{kSchema});
    step(agent::SessionOpened{session});
    hear(wire::Welcome{kFleet, kEpoch, content(5)});
  }
  wire::Plan plan(std::uint32_t attempt) const {
    wire::Plan plan;
    plan.refit = refit_id(attempt);
    plan.fleet = kFleet;
    plan.base = content(5);
    plan.target_version = Version{6};
    plan.schema = kSchema;
    plan.nodes = {endpoint("publisher"), endpoint("agent-0")};
    return plan;
  }
  wire::Seal seal(std::uint32_t attempt) const {
    wire::Seal seal;
    seal.manifest.refit = refit_id(attempt);
    seal.manifest.fleet = kFleet;
    seal.manifest.base = content(5);
    seal.manifest.target = content(6);
    seal.manifest.schema = kSchema;
    seal.prepare_timeout_ms = 10'000;
    return seal;
  }
  wire::Decision decision(std::uint32_t attempt, wire::Verdict verdict) const {
    return wire::Decision{refit_id(attempt), verdict, content(5), content(6), std::nullopt};
  }
  void stream(std::uint32_t attempt = 1) {
    connect();
    hear(plan(attempt));
    sync();
    step(agent::RefitOpened{refit_id(attempt)});
  }
  void prove(std::uint32_t attempt = 1) {
    stream(attempt);
    hear(seal(attempt));
  }
  void prepare(std::uint32_t attempt = 1) {
    prove(attempt);
    step(agent::Proved{refit_id(attempt)});
    sync();
  }
  void start_apply(std::uint32_t attempt = 1) {
    prepare(attempt);
    hear(decision(attempt, wire::Verdict::kCommit));
    sync();
  }

  template <typename Message>
  const Message* sent() const {
    return find_sent<Message, agent::Send>(actions);
  }

  TimePoint now = at(0);
  SessionId session{4};
  AgentRole role;
  std::vector<AgentAction> actions;
  agent::ShowState state;
};

}  // namespace weft::apply::testing
