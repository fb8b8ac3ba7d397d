// SPDX-License-Identifier: Apache-2.0
#include "apply/commit/producer_role.hpp"

#include <gtest/gtest.h>

#include <utility>

#include "commit/samples.hpp"

namespace weft::apply {
namespace {

using namespace testing;
using wire::Verdict;

// Threads: one at a time.
class ProducerRig {
 public:
  explicit ProducerRig(std::optional<PendingRecord> pending = std::nullopt)
      : role(options(), recovery(std::move(pending))) {
    step(producer::Start{});
    step(producer::SessionOpened{session});
    hear(wire::Welcome{kFleet, kEpoch, content(5)});
  }
  static ProducerOptions options() {
    ProducerOptions options;
    options.endpoint = endpoint("publisher");
    options.schema = kSchema;
    return options;
  }
  static ProducerRecovery recovery(std::optional<PendingRecord> pending) {
    return {kFleet, kEpoch, content(5), part_digest(5), std::move(pending)};
  }

  const std::vector<ProducerAction>& step(ProducerEvent event) {
    actions = role.step(event, now);
    for (const ProducerAction& action : actions) {
      if (const auto* answer = std::get_if<producer::PublishDone>(&action)) done = *answer;
    }
    return actions;
  }
  const std::vector<ProducerAction>& hear(wire::CoordinatorMessage message) {
    return step(producer::CoordinatorSaid{session, std::move(message)});
  }
  const std::vector<ProducerAction>& wait(Duration time) {
    now += time;
    return step(producer::Tick{});
  }
  ProducerRecord sync() {
    const auto* append = find<producer::AppendRecord>(actions);
    EXPECT_TRUE(append) << "nothing was to be recorded";
    if (!append) return {};
    ProducerRecord record = append->record;
    step(producer::LogSynced{append->token});
    return record;
  }
  void publish(std::uint64_t version = 6, std::uint32_t retries = 1) {
    producer::Publish publish;
    publish.request = 100;
    publish.target_version = Version{version};
    publish.retries = retries;
    step(publish);
  }
  wire::Plan plan(std::uint32_t attempt, std::uint64_t request) const {
    wire::Plan plan;
    plan.refit = refit_id(attempt);
    plan.fleet = kFleet;
    plan.base = content(5);
    plan.target_version = Version{6};
    plan.requests = {request};
    plan.nodes = {endpoint("publisher"), endpoint("agent-0")};
    return plan;
  }
  static wire::ProducerSeal seal() {
    wire::ProducerSeal seal;
    seal.frame_count = 2;
    seal.part = part_digest(6);
    seal.changed_elements = 3;
    return seal;
  }
  void encode() {
    publish();
    hear(plan(1, sent<wire::Begin>()->request));
  }
  void report_seal() {
    encode();
    step(producer::Encoded{refit_id(1), seal()});
    sync();
  }
  wire::Decision decision(std::uint32_t attempt, Verdict verdict) const {
    wire::Decision decision{refit_id(attempt), verdict, content(5), content(6), std::nullopt};
    if (verdict == Verdict::kAbort) {
      decision.cause = wire::Cause{ErrorCode::kCorruptPayload, "agent-1: frame 3"};
    }
    return decision;
  }
  template <typename Message>
  const Message* sent() const {
    return find_sent<Message, producer::Send>(actions);
  }

  TimePoint now = at(0);
  SessionId session{9};
  ProducerRole role;
  std::vector<ProducerAction> actions;
  std::optional<producer::PublishDone> done;
};

TEST(ProducerRole, BeginsEncodesAndReportsItsSealOnceThePendingValuesAreDurable) {
  ProducerRig rig;
  rig.publish();
  ASSERT_TRUE(rig.sent<wire::Begin>());
  EXPECT_EQ(rig.sent<wire::Begin>()->base, content(5));
  rig.hear(rig.plan(1, rig.sent<wire::Begin>()->request));
  ASSERT_TRUE(find<producer::StartEncode>(rig.actions));
  rig.step(producer::Encoded{refit_id(1), rig.seal()});
  EXPECT_FALSE(rig.sent<wire::SealReport>());
  EXPECT_EQ(std::get<PendingRecord>(rig.sync()).prepared.refit, refit_id(1));
  EXPECT_TRUE(rig.sent<wire::SealReport>());
  EXPECT_FALSE(find<producer::MoveBaseline>(rig.actions));
}

TEST(ProducerRole, MovesItsBaselineOnlyOnCommitAndSaysSoWhenItHasMoved) {
  ProducerRig rig;
  rig.report_seal();
  rig.hear(rig.decision(1, Verdict::kCommit));
  ASSERT_TRUE(find<producer::MoveBaseline>(rig.actions));
  EXPECT_EQ(rig.role.content(), content(5));
  rig.step(producer::BaselineMoved{refit_id(1)});
  EXPECT_EQ(std::get<BaselineRecord>(rig.sync()).content, content(6));
  EXPECT_EQ(rig.role.content(), content(6));
  ASSERT_TRUE(rig.sent<wire::Ack>());
  EXPECT_FALSE(rig.done);
  rig.hear(wire::AckReceived{refit_id(1)});
  ASSERT_TRUE(rig.done);
  EXPECT_TRUE(rig.done->status);
}

// The next delta is against the old baseline, whatever step failed (B-015, B-032).
TEST(ProducerRole, AnAbortAtAnyStepDropsThePendingValuesAndKeepsTheBaseline) {
  for (int step = 0; step < 3; ++step) {
    ProducerRig rig;
    rig.publish(6, 0);
    rig.hear(rig.plan(1, rig.sent<wire::Begin>()->request));
    if (step >= 1) rig.step(producer::Encoded{refit_id(1), rig.seal()});
    if (step >= 2) rig.sync();
    rig.hear(rig.decision(1, Verdict::kAbort));
    ASSERT_TRUE(find<producer::DropPending>(rig.actions)) << step;
    rig.step(producer::PendingDropped{refit_id(1)});
    if (step >= 1) {
      EXPECT_EQ(std::get<DroppedRecord>(rig.sync()).refit, refit_id(1));
    }
    EXPECT_EQ(rig.role.content(), content(5));
    ASSERT_TRUE(rig.done) << step;
    EXPECT_EQ(rig.done->status.error().code, ErrorCode::kCorruptPayload);
    EXPECT_NE(rig.done->status.error().detail.find("agent-1"), std::string::npos);
  }
}

TEST(ProducerRole, RetriesAtOnceUnderAFreshRefitIdAndIgnoresTheOldOne) {
  ProducerRig rig;
  rig.report_seal();
  rig.hear(rig.decision(1, Verdict::kAbort));
  rig.step(producer::PendingDropped{refit_id(1)});
  rig.sync();
  EXPECT_FALSE(rig.done);
  ASSERT_TRUE(rig.sent<wire::Begin>());
  const std::uint64_t request = rig.sent<wire::Begin>()->request;
  rig.hear(rig.plan(1, request));  // replayed
  EXPECT_FALSE(find<producer::StartEncode>(rig.actions));
  rig.hear(rig.plan(2, request));
  EXPECT_TRUE(find<producer::StartEncode>(rig.actions));
  rig.step(producer::Encoded{refit_id(2), rig.seal()});
  rig.sync();
  rig.hear(rig.decision(1, Verdict::kCommit));  // of the old attempt
  EXPECT_FALSE(find<producer::MoveBaseline>(rig.actions));
}

TEST(ProducerRole, DoesNotRetryWhatOnlyARightRequestCanMend) {
  ProducerRig rig;
  rig.encode();
  wire::Decision conflict = rig.decision(1, Verdict::kAbort);
  conflict.cause = wire::Cause{ErrorCode::kPayloadConflict, "agent-0: two bodies"};
  rig.hear(conflict);
  rig.step(producer::PendingDropped{refit_id(1)});
  ASSERT_TRUE(rig.done);
  EXPECT_EQ(rig.done->attempts, 1U);
}

TEST(ProducerRole, WithoutADecisionByTheDeadlineItIsInDoubtAndThePendingValuesStay) {
  ProducerRig rig;
  rig.report_seal();
  rig.now += std::chrono::minutes(11);
  rig.hear(wire::Welcome{kFleet, kEpoch, content(5)});
  rig.wait(std::chrono::seconds(1));
  ASSERT_TRUE(rig.done);
  EXPECT_EQ(rig.done->status.error().code, ErrorCode::kInDoubt);
  EXPECT_FALSE(find<producer::DropPending>(rig.actions));
  // The next publish asks for that decision first.
  rig.done.reset();
  rig.publish(7);
  EXPECT_FALSE(rig.sent<wire::Begin>());
  rig.hear(rig.decision(1, Verdict::kCommit));
  rig.step(producer::BaselineMoved{refit_id(1)});
  rig.sync();
  rig.hear(wire::AckReceived{refit_id(1)});
  ASSERT_TRUE(rig.sent<wire::Begin>());
  EXPECT_EQ(rig.sent<wire::Begin>()->base, content(6));
}

TEST(ProducerRole, StartedWithPendingValuesAsksAndFinishesOrDropsThem) {
  const PendingRecord pending{{refit_id(1), content(5), Content{Version{6}, kLattice, {}}},
                              part_digest(6)};
  for (const Verdict verdict : {Verdict::kCommit, Verdict::kAbort}) {
    ProducerRig rig(pending);
    rig.wait(std::chrono::seconds(1));
    ASSERT_TRUE(rig.sent<wire::DecisionQuery>());
    EXPECT_FALSE(rig.sent<wire::SealReport>());
    rig.hear(rig.decision(1, verdict));
    EXPECT_EQ(find<producer::MoveBaseline>(rig.actions) != nullptr, verdict == Verdict::kCommit);
    EXPECT_EQ(find<producer::DropPending>(rig.actions) != nullptr, verdict == Verdict::kAbort);
  }
}

TEST(ProducerRole, RefusesACommitOfAnotherTargetThanItSealed) {
  ProducerRig rig;
  rig.report_seal();
  wire::Decision other = rig.decision(1, Verdict::kCommit);
  other.target.version = Version{7};
  rig.hear(other);
  EXPECT_FALSE(find<producer::MoveBaseline>(rig.actions));
}

TEST(ProducerRole, AnEncodeThatFailsAbortsTheRefitForEveryone) {
  ProducerRig rig;
  rig.encode();
  rig.step(producer::EncodeFailed{
      refit_id(1), make_error(ErrorCode::kConcurrentModification, Stage::kScan, "shard 2")});
  ASSERT_TRUE(rig.sent<wire::AbortRequest>());
  EXPECT_EQ(rig.sent<wire::AbortRequest>()->refit, refit_id(1));
  rig.step(producer::PendingDropped{refit_id(1)});
  ASSERT_TRUE(rig.done);
  EXPECT_EQ(rig.done->status.error().code, ErrorCode::kConcurrentModification);
}

TEST(ProducerRole, TheCommittedVersionIsComparedByContentBeforeItIsAnError) {
  ProducerRig rig;
  rig.publish(5);
  wire::BeginRefused refused;
  refused.request = rig.sent<wire::Begin>()->request;
  refused.cause = wire::Cause{ErrorCode::kVersionOrder, "version 5 is committed"};
  refused.committed = content(5);
  rig.hear(refused);
  ASSERT_TRUE(find<producer::ComputeTargetPart>(rig.actions));
  rig.step(producer::TargetPart{part_digest(5)});
  ASSERT_TRUE(rig.sent<wire::Begin>());
  EXPECT_EQ(rig.sent<wire::Begin>()->target_part, part_digest(5));
  refused.request = rig.sent<wire::Begin>()->request;
  refused.already_committed = true;
  rig.hear(refused);
  ASSERT_TRUE(rig.done);
  EXPECT_TRUE(rig.done->status);
  EXPECT_TRUE(rig.done->already);
}

TEST(ProducerRole, APlanForABeginThatWasGivenUpIsAnsweredWithAnAbort) {
  ProducerRig rig;
  rig.publish();
  const std::uint64_t request = rig.sent<wire::Begin>()->request;
  rig.step(producer::Cancel{make_error(ErrorCode::kTimeout, Stage::kPublish, "caller gave up")});
  ASSERT_TRUE(rig.done);
  rig.hear(rig.plan(1, request));
  ASSERT_TRUE(rig.sent<wire::AbortRequest>());
  EXPECT_FALSE(find<producer::StartEncode>(rig.actions));
}

TEST(ProducerRole, ASecondPublishWhileOneRunsIsBusy) {
  ProducerRig rig;
  rig.encode();
  producer::Publish second;
  second.request = 200;
  second.target_version = Version{6};
  rig.step(second);
  ASSERT_TRUE(rig.done);
  EXPECT_EQ(rig.done->request, 200U);
  EXPECT_EQ(rig.done->status.error().code, ErrorCode::kBusy);
}

}  // namespace
}  // namespace weft::apply
