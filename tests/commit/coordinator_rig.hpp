// SPDX-License-Identifier: Apache-2.0
// A CoordinatorRole with members that have said hello.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "apply/commit/coordinator_role.hpp"
#include "commit/samples.hpp"

namespace weft::apply::testing {

// Every agent hangs below the one before it: the first ones are relays, the last is a leaf.
inline Result<std::vector<wire::Plan::Tree>> plan_chain(const TreeRequest& request) {
  std::vector<wire::Plan::Tree> trees(request.producer_count);
  for (std::uint32_t p = 0; p < request.producer_count; ++p) {
    trees[p].nodes.resize(request.nodes.size());
    std::uint32_t last = p;
    for (std::uint32_t i = request.producer_count; i < request.nodes.size(); ++i) {
      if (last != p) trees[p].nodes[i].parent = NodeIndex{last};
      trees[p].nodes[last].children.push_back(NodeIndex{i});
      last = i;
    }
  }
  return trees;
}

inline DecisionFold fold_at_version_5() {
  DecisionFold fold;
  fold.fleet = kFleet;
  fold.epoch = Epoch{2, ProcessId{66}};
  fold.committed = content(5);
  return fold;
}

// Threads: one at a time.
class CoordinatorRig {
 public:
  explicit CoordinatorRig(CoordinatorOptions options = {}, DecisionFold fold = fold_at_version_5())
      : role(without_grace(std::move(options)), std::move(fold), kEpoch.coordinator, kFleet,
             plan_chain) {
    step(coordinator::Start{});
    step(coordinator::LogSynced{find<coordinator::RewriteLog>(actions)->token});
  }
  static CoordinatorOptions without_grace(CoordinatorOptions options) {
    options.start_grace = Duration{};
    return options;
  }

  const std::vector<CoordinatorAction>& step(CoordinatorEvent event) {
    actions = role.step(event, now);
    return actions;
  }
  const std::vector<CoordinatorAction>& say(const std::string& id, wire::MemberMessage message) {
    return step(coordinator::MemberSaid{sessions.at(id), std::move(message)});
  }
  // Everyone gives a sign of life, then the timer ticks.
  const std::vector<CoordinatorAction>& wait(Duration time, const std::string& except = {}) {
    const TimePoint end = now + time;
    while (now < end) {
      now = std::min(end, now + std::chrono::seconds(1));
      for (const auto& [id, session] : sessions) {
        if (id == except) continue;
        step(coordinator::MemberSaid{session, wire::Heartbeat{}});
      }
      step(coordinator::Tick{});
      if (find<coordinator::AppendRecord>(actions)) break;
    }
    return actions;
  }
  // The record that the last step asked to sync is durable; what it was.
  CoordinatorRecord sync() {
    const auto* append = find<coordinator::AppendRecord>(actions);
    EXPECT_TRUE(append) << "nothing was to be recorded";
    if (!append) return {};
    CoordinatorRecord record = append->record;
    step(coordinator::LogSynced{append->token});
    return record;
  }

  wire::Hello hello(const std::string& id, const Content& at_content,
                    wire::MemberState state = wire::MemberState::kClean,
                    std::uint64_t process = 1) const {
    wire::Hello hello;
    hello.role = id.starts_with("publisher") ? wire::Role::kProducer : wire::Role::kAgent;
    hello.endpoint = endpoint(id, process);
    hello.fleet = kFleet;
    hello.epoch = kEpoch;
    hello.state = state;
    hello.schema = kSchema;
    hello.content = at_content;
    return hello;
  }
  const std::vector<CoordinatorAction>& join(const wire::Hello& hello) {
    sessions[hello.endpoint.member_id] = SessionId{next_session++};
    return say(hello.endpoint.member_id, hello);
  }
  void join_all(int agents) {
    for (int i = 0; i < agents; ++i) join(hello("agent-" + std::to_string(i), content(5)));
    join(hello("publisher", content(5)));
  }
  static wire::Begin begin(std::uint64_t base, std::uint64_t target, std::uint64_t request = 1) {
    wire::Begin begin;
    begin.request = request;
    begin.base = content(base);
    begin.base_part = part_digest(base);
    begin.target_version = Version{target};
    begin.schema = kSchema;
    return begin;
  }
  void start_refit(int agents) {
    join_all(agents);
    say("publisher", begin(5, 6));
    ASSERT_TRUE(sent<wire::Plan>());
    plan = *sent<wire::Plan>();
  }
  static wire::ProducerSeal seal_of(std::uint64_t target) {
    wire::ProducerSeal seal;
    seal.frame_count = 2;
    seal.part = part_digest(target);
    seal.changed_elements = 10;
    return seal;
  }
  void seal() {
    say("publisher", wire::SealReport{plan.refit, ProducerIndex{0}, seal_of(6)});
    ASSERT_TRUE(sent<wire::Seal>());
    manifest = sent<wire::Seal>()->manifest;
  }
  const std::vector<CoordinatorAction>& vote_yes(const std::string& id) {
    return say(id,
               wire::Vote{plan.refit, true, std::nullopt, manifest.digest(), manifest.target.root});
  }
  const std::vector<CoordinatorAction>& vote_no(const std::string& id, ErrorCode code) {
    return say(id, wire::Vote{plan.refit, false, wire::Cause{code, "why"}, {}, {}});
  }
  // The decision that the last step asked to record; null: none.
  const DecisionRecord* decision() const {
    const auto* append = find<coordinator::AppendRecord>(actions);
    return append ? std::get_if<DecisionRecord>(&append->record) : nullptr;
  }

  template <typename Message>
  const Message* sent() const {
    return find_sent<Message, coordinator::Send>(actions);
  }
  // What the last step said to this member.
  template <typename Message>
  const Message* sent_to(const std::string& id) const {
    for (const CoordinatorAction& action : actions) {
      const auto* send = std::get_if<coordinator::Send>(&action);
      if (!send || send->session != sessions.at(id)) continue;
      if (const auto* found = std::get_if<Message>(&send->message)) return found;
    }
    return nullptr;
  }

  TimePoint now = at(0);
  std::uint64_t next_session = 1;
  std::map<std::string, SessionId> sessions;
  CoordinatorRole role;
  std::vector<CoordinatorAction> actions;
  wire::Plan plan;
  wire::Manifest manifest;
};

}  // namespace weft::apply::testing
