// SPDX-License-Identifier: Apache-2.0
// From the stream to a decision that everyone knows.
#include <gtest/gtest.h>

#include "apply/commit/coordinator_role.hpp"
#include "commit/coordinator_rig.hpp"

namespace weft::apply {
namespace {

using namespace testing;
using wire::MemberState;
using wire::Verdict;

TEST(CoordinatorVote, CommitsWhenAllHavePreparedAndTellsOnlyWhatIsDurable) {
  CoordinatorRig rig;
  rig.start_refit(2);
  rig.seal();
  EXPECT_EQ(rig.manifest.target, content(6));
  rig.vote_yes("agent-0");
  EXPECT_FALSE(rig.decision());
  rig.vote_yes("agent-1");
  ASSERT_TRUE(rig.decision());
  EXPECT_EQ(rig.decision()->verdict, Verdict::kCommit);
  EXPECT_FALSE(rig.sent<wire::Decision>());
  EXPECT_EQ(rig.role.committed(), content(5));
  rig.sync();
  EXPECT_EQ(rig.sent_to<wire::Decision>("agent-0")->verdict, Verdict::kCommit);
  EXPECT_EQ(rig.sent_to<wire::Decision>("publisher")->target, content(6));
  EXPECT_EQ(rig.sent_to<wire::RefitOutcome>("publisher")->prepared, 2U);
  EXPECT_EQ(rig.role.committed(), content(6));
}

// B-020: the version follows what the files are.
TEST(CoordinatorVote, AStepThatChangesNothingIsCommittedAndConsumesItsVersion) {
  CoordinatorRig rig;
  rig.start_refit(1);
  wire::ProducerSeal same;
  same.part = part_digest(5);
  rig.say("publisher", wire::SealReport{rig.plan.refit, ProducerIndex{0}, same});
  ASSERT_TRUE(rig.sent<wire::Seal>());
  rig.manifest = rig.sent<wire::Seal>()->manifest;
  rig.vote_yes("agent-0");
  rig.sync();
  EXPECT_EQ(rig.role.committed().version.value, 6U);
  EXPECT_EQ(rig.role.committed().root, root_digest(5));
}

TEST(CoordinatorVote, ChangesWithoutATraceOfThemAreAProtocolErrorAndStayAtTheBase) {
  struct Case {
    std::uint32_t frames;
    std::uint64_t changed;
    std::uint64_t target;
  };
  for (const Case& c : {Case{0, 10, 6}, Case{2, 10, 5}, Case{2, 0, 6}}) {
    CoordinatorRig rig;
    rig.start_refit(1);
    wire::ProducerSeal seal = rig.seal_of(c.target);
    seal.frame_count = c.frames;
    seal.changed_elements = c.changed;
    rig.say("publisher", wire::SealReport{rig.plan.refit, ProducerIndex{0}, seal});
    ASSERT_TRUE(rig.decision());
    EXPECT_EQ(rig.decision()->verdict, Verdict::kAbort);
    EXPECT_EQ(rig.decision()->cause->code, ErrorCode::kProtocol);
  }
}

TEST(CoordinatorVote, AFullCopyOfTheSameContentIsCommitted) {
  CoordinatorRig rig;
  rig.join_all(1);
  wire::Begin begin = rig.begin(5, 6);
  begin.full = true;
  rig.say("publisher", begin);
  rig.plan = *rig.sent<wire::Plan>();
  rig.say("publisher", wire::SealReport{rig.plan.refit, ProducerIndex{0}, rig.seal_of(5)});
  EXPECT_TRUE(rig.sent<wire::Seal>());
}

TEST(CoordinatorVote, ANoAbortsAtOnceNamesTheNodeAndItsCauseAndLeavesTheBaseline) {
  CoordinatorRig rig;
  rig.start_refit(2);
  rig.seal();
  rig.vote_no("agent-1", ErrorCode::kCorruptPayload);
  ASSERT_TRUE(rig.decision());
  EXPECT_EQ(rig.decision()->verdict, Verdict::kAbort);
  rig.sync();
  const auto* outcome = rig.sent_to<wire::RefitOutcome>("publisher");
  EXPECT_EQ(outcome->cause->code, ErrorCode::kCorruptPayload);
  EXPECT_NE(outcome->cause->detail.find("agent-1"), std::string::npos);
  EXPECT_EQ(rig.role.committed(), content(5));
}

TEST(CoordinatorVote, WhoVotedNoIsLeftOutOfTheRetryUntilItSaysItIsClean) {
  CoordinatorRig rig;
  rig.start_refit(2);
  rig.vote_no("agent-1", ErrorCode::kNoSpace);
  rig.sync();
  for (const char* id : {"agent-0", "agent-1", "publisher"}) {
    rig.say(id, wire::Ack{rig.plan.refit, content(5), std::nullopt});
  }
  wire::Hello full = rig.hello("agent-1", content(5), MemberState::kLagging);
  full.cause = wire::Cause{ErrorCode::kNoSpace, "disk full"};
  rig.say("agent-1", full);
  rig.say("publisher", rig.begin(5, 6, 2));
  ASSERT_TRUE(rig.sent<wire::Plan>());
  EXPECT_EQ(rig.sent<wire::Plan>()->nodes.size(), 2U);
  EXPECT_FALSE(rig.sent_to<wire::Plan>("agent-1"));
}

TEST(CoordinatorVote, QuorumCommitsWithoutTheOneThatSaidNo) {
  CoordinatorOptions options;
  options.quorum = 0.6;
  CoordinatorRig rig(options);
  rig.start_refit(3);
  rig.seal();
  rig.vote_no("agent-1", ErrorCode::kNoSpace);
  rig.vote_yes("agent-0");
  EXPECT_FALSE(rig.decision());
  rig.vote_yes("agent-2");
  ASSERT_TRUE(rig.decision());
  EXPECT_EQ(rig.decision()->verdict, Verdict::kCommit);
}

TEST(CoordinatorVote, PayloadConflictAbortsWhateverTheQuorum) {
  CoordinatorOptions options;
  options.quorum = 0.1;
  options.min_fraction = 0.1;
  CoordinatorRig rig(options);
  rig.start_refit(3);
  rig.seal();
  rig.vote_yes("agent-0");
  rig.vote_no("agent-1", ErrorCode::kPayloadConflict);
  ASSERT_TRUE(rig.decision());
  EXPECT_EQ(rig.decision()->verdict, Verdict::kAbort);
}

TEST(CoordinatorVote, WhoIsSilentAtTheDeadlineIsNamedAndLeftOutNextTime) {
  CoordinatorRig rig;
  rig.start_refit(2);
  rig.seal();
  rig.vote_yes("agent-0");
  rig.wait(std::chrono::seconds(61));
  ASSERT_TRUE(rig.decision());
  EXPECT_EQ(rig.decision()->cause->code, ErrorCode::kTimeout);
  EXPECT_NE(rig.decision()->cause->detail.find("agent-1"), std::string::npos);
  rig.sync();
  rig.say("agent-0", wire::Ack{rig.plan.refit, content(5), std::nullopt});
  rig.say("publisher", wire::Ack{rig.plan.refit, content(5), std::nullopt});
  rig.say("publisher", rig.begin(5, 6, 2));
  ASSERT_TRUE(rig.sent<wire::Plan>());
  EXPECT_FALSE(rig.sent_to<wire::Plan>("agent-1"));
}

TEST(CoordinatorVote, ALeafThatIsLostIsEvictedAndTheSurvivorsCommit) {
  CoordinatorRig rig;
  rig.start_refit(3);
  rig.step(coordinator::SessionClosed{rig.sessions.at("agent-2")});
  rig.sessions.erase("agent-2");
  rig.wait(std::chrono::seconds(5));
  EXPECT_FALSE(rig.decision());
  rig.seal();
  rig.vote_yes("agent-0");
  rig.vote_yes("agent-1");
  ASSERT_TRUE(rig.decision());
  EXPECT_EQ(rig.decision()->verdict, Verdict::kCommit);
  rig.sync();
  EXPECT_EQ(rig.sent_to<wire::RefitOutcome>("publisher")->lost, 1U);
}

TEST(CoordinatorVote, WithoutReparentingARelayThatIsLostMidStreamAborts) {
  CoordinatorOptions options;
  options.replan = false;
  CoordinatorRig rig(options);
  rig.start_refit(3);
  rig.step(coordinator::SessionClosed{rig.sessions.at("agent-0")});
  rig.sessions.erase("agent-0");
  rig.wait(std::chrono::seconds(5));
  ASSERT_TRUE(rig.decision());
  EXPECT_EQ(rig.decision()->verdict, Verdict::kAbort);
  EXPECT_EQ(rig.decision()->cause->code, ErrorCode::kPeerLost);
  EXPECT_NE(rig.decision()->cause->detail.find("agent-0"), std::string::npos);
}

TEST(CoordinatorVote, ALostRelayGivesNewTreesForTheSameRefit) {
  CoordinatorRig rig;
  rig.start_refit(3);
  for (const char* id : {"agent-0", "agent-1", "agent-2"}) {
    rig.say(id, wire::Progress{rig.plan.refit, 0, 0, {}});
  }
  rig.step(coordinator::SessionClosed{rig.sessions.at("agent-0")});
  rig.say("agent-1", wire::Progress{rig.plan.refit, 1, 100, "agent-0"});
  ASSERT_TRUE(rig.sent<wire::Plan>());
  EXPECT_EQ(rig.sent<wire::Plan>()->refit, rig.plan.refit);
  EXPECT_EQ(rig.sent<wire::Plan>()->revision, 1U);
  EXPECT_EQ(rig.sent<wire::Plan>()->nodes.size(), 3U);
  // Started again, it comes back as a leaf.
  rig.join(rig.hello("agent-0", content(5), MemberState::kClean, 2));
  ASSERT_TRUE(rig.sent_to<wire::Plan>("agent-0"));
  EXPECT_EQ(rig.sent_to<wire::Plan>("agent-0")->revision, 2U);
}

// Given up, but at it still: a process that was stopped and goes on.
TEST(CoordinatorVote, AMemberThatComesBackAsTheSameProcessIsALeafAgain) {
  CoordinatorRig rig;
  rig.start_refit(3);
  for (const char* id : {"agent-0", "agent-1", "agent-2"}) {
    rig.say(id, wire::Progress{rig.plan.refit, 0, 0, {}});
  }
  rig.step(coordinator::SessionClosed{rig.sessions.at("agent-0")});
  rig.say("agent-1", wire::Progress{rig.plan.refit, 1, 100, "agent-0"});
  ASSERT_EQ(rig.sent<wire::Plan>()->nodes.size(), 3U);
  wire::Hello hello = rig.hello("agent-0", content(5), MemberState::kStreaming);
  hello.begun = rig.plan.refit;
  rig.join(hello);
  ASSERT_TRUE(rig.sent_to<wire::Plan>("agent-0"));
  EXPECT_EQ(rig.sent_to<wire::Plan>("agent-0")->nodes.size(), 4U);
  rig.seal();
  for (const char* id : {"agent-0", "agent-1", "agent-2"}) rig.vote_yes(id);
  ASSERT_TRUE(rig.decision());
  EXPECT_EQ(rig.decision()->verdict, Verdict::kCommit);
  rig.sync();
  EXPECT_EQ(rig.sent_to<wire::RefitOutcome>("publisher")->lost, 0U);
}

TEST(CoordinatorVote, ADurableYesCountsThoughItsSenderIsLostLater) {
  CoordinatorRig rig;
  rig.start_refit(2);
  rig.seal();
  rig.vote_yes("agent-1");
  rig.step(coordinator::SessionClosed{rig.sessions.at("agent-1")});
  rig.sessions.erase("agent-1");
  rig.wait(std::chrono::seconds(5));
  rig.vote_yes("agent-0");
  ASSERT_TRUE(rig.decision());
  EXPECT_EQ(rig.decision()->verdict, Verdict::kCommit);
}

TEST(CoordinatorVote, HalfOfThePlannedMustHavePreparedHoweverManyAreLost) {
  CoordinatorRig rig;
  rig.start_refit(3);
  rig.seal();
  for (const char* id : {"agent-1", "agent-2"}) {
    rig.step(coordinator::SessionClosed{rig.sessions.at(id)});
    rig.sessions.erase(id);
  }
  rig.wait(std::chrono::seconds(5));
  ASSERT_TRUE(rig.decision());  // one of three is less than min_fraction
  EXPECT_EQ(rig.decision()->verdict, Verdict::kAbort);
}

TEST(CoordinatorVote, AStreamWithoutProgressEndsAtItsDeadline) {
  CoordinatorRig rig;
  rig.start_refit(1);
  rig.wait(std::chrono::seconds(61));
  ASSERT_TRUE(rig.decision());
  EXPECT_EQ(rig.decision()->cause->code, ErrorCode::kTimeout);
}

TEST(CoordinatorVote, VotesAndSealsOfAnotherAttemptAreNotCounted) {
  CoordinatorRig rig;
  rig.start_refit(1);
  const wire::Plan first = rig.plan;
  rig.vote_no("agent-0", ErrorCode::kCorruptPayload);
  rig.sync();
  rig.say("agent-0", wire::Ack{first.refit, content(5), std::nullopt});
  rig.say("agent-0", rig.hello("agent-0", content(5)));
  rig.say("publisher", wire::Ack{first.refit, content(5), std::nullopt});
  rig.say("publisher", rig.begin(5, 6, 2));
  ASSERT_TRUE(rig.sent<wire::Plan>());
  const RefitId second = rig.sent<wire::Plan>()->refit;
  EXPECT_NE(second, first.refit);
  rig.say("publisher", wire::SealReport{first.refit, ProducerIndex{0}, rig.seal_of(6)});
  EXPECT_FALSE(rig.sent<wire::Seal>());
  EXPECT_EQ(rig.sent<wire::Decision>()->verdict, Verdict::kAbort);
  rig.plan.refit = second;
  rig.seal();
  rig.say("agent-0", wire::Vote{first.refit, true, std::nullopt, rig.manifest.digest(),
                                rig.manifest.target.root});
  EXPECT_FALSE(rig.decision());
  EXPECT_EQ(rig.sent<wire::Decision>()->refit, first.refit);
}

TEST(CoordinatorVote, AYesForAnotherManifestIsANo) {
  CoordinatorRig rig;
  rig.start_refit(1);
  rig.seal();
  rig.manifest.target.root = root_digest(9);
  rig.vote_yes("agent-0");
  ASSERT_TRUE(rig.decision());
  EXPECT_EQ(rig.decision()->verdict, Verdict::kAbort);
}

// --- telling it (B-074) ---

TEST(CoordinatorDecision, IsUndecidedWhileOpenAndWhileItsRecordIsBeingSynced) {
  CoordinatorRig rig;
  rig.start_refit(1);
  rig.seal();
  const wire::DecisionQuery query{{rig.plan.refit, content(5), content(6)}};
  EXPECT_EQ((rig.say("agent-0", query), rig.sent<wire::Decision>()->verdict), Verdict::kUndecided);
  rig.vote_yes("agent-0");
  const auto token = find<coordinator::AppendRecord>(rig.actions)->token;
  EXPECT_EQ((rig.say("agent-0", query), rig.sent<wire::Decision>()->verdict), Verdict::kUndecided);
  rig.step(coordinator::LogSynced{token});
  EXPECT_EQ((rig.say("agent-0", query), rig.sent<wire::Decision>()->verdict), Verdict::kCommit);
}

TEST(CoordinatorDecision, IsRepeatedUntilItIsAcknowledgedAndNeverReversed) {
  CoordinatorRig rig;
  rig.start_refit(1);
  rig.seal();
  rig.vote_yes("agent-0");
  rig.sync();
  rig.say("publisher", wire::Ack{rig.plan.refit, content(6), std::nullopt});
  for (int i = 0; i < 3; ++i) {
    rig.now += std::chrono::seconds(1);
    rig.step(coordinator::Tick{});
    ASSERT_TRUE(rig.sent_to<wire::Decision>("agent-0"));
    EXPECT_TRUE(rig.role.view().members[0].unconfirmed);
  }
  rig.say("agent-0", wire::Ack{rig.plan.refit, content(6), std::nullopt});
  EXPECT_TRUE(rig.sent<wire::AckReceived>());
  EXPECT_TRUE(rig.sent_to<wire::RefitOutcome>("publisher")->settled);
  rig.now += std::chrono::seconds(2);
  rig.step(coordinator::Tick{});
  EXPECT_FALSE(rig.sent<wire::Decision>());
}

DecisionFold fold_with_commit_of_epoch_1() {
  DecisionFold fold = fold_at_version_5();
  DecisionRecord commit;
  commit.refit = RefitId{Epoch{1, ProcessId{55}}, 4};
  commit.verdict = Verdict::kCommit;
  commit.base = content(4);
  commit.target = content(5);
  commit.planned = {"agent-0", "agent-1"};
  fold.commits.push_back({commit, {"agent-1"}});
  return fold;
}

TEST(CoordinatorDecision, SurvivesARestartForThoseWhoHaveNotAcknowledged) {
  CoordinatorRig rig({}, fold_with_commit_of_epoch_1());
  const RefitId refit{Epoch{1, ProcessId{55}}, 4};
  wire::Hello doubt = rig.hello("agent-0", content(4), MemberState::kPrepared);
  doubt.prepared = wire::PreparedRefit{refit, content(4), content(5)};
  rig.join(doubt);
  ASSERT_TRUE(rig.sent<wire::Decision>());
  EXPECT_EQ(rig.sent<wire::Decision>()->verdict, Verdict::kCommit);
  EXPECT_EQ(rig.sent<wire::Decision>()->target, content(5));
}

TEST(CoordinatorDecision, OfAnEarlierEpochWithoutACommitIsAbortWithTheTargetThatWasAsked) {
  CoordinatorRig rig({}, fold_with_commit_of_epoch_1());
  const RefitId refit{Epoch{2, ProcessId{66}}, 1};
  wire::Hello doubt = rig.hello("agent-0", content(5), MemberState::kPrepared);
  doubt.prepared = wire::PreparedRefit{refit, content(5), content(6)};
  rig.join(doubt);
  ASSERT_TRUE(rig.sent<wire::Decision>());
  EXPECT_EQ(rig.sent<wire::Decision>()->verdict, Verdict::kAbort);
  EXPECT_EQ(rig.sent<wire::Decision>()->target, content(6));
}

TEST(CoordinatorDecision, OfAnAttemptThatWasNeverMadeIsNotGiven) {
  CoordinatorRig rig;
  rig.join_all(1);
  rig.say("agent-0", wire::DecisionQuery{{refit_id(99), content(5), content(6)}});
  EXPECT_EQ(rig.sent<wire::Decision>()->verdict, Verdict::kUndecided);
}

TEST(CoordinatorDecision, NeedsNoAcknowledgementFromWhoNeedsAReseed) {
  CoordinatorRig rig({}, fold_with_commit_of_epoch_1());
  rig.join(rig.hello("agent-0", content(4), MemberState::kNeedsReseed));
  bool forgotten = false;
  for (const CoordinatorAction& action : rig.actions) {
    const auto* append = std::get_if<coordinator::AppendRecord>(&action);
    forgotten = forgotten || (append && std::holds_alternative<ForgottenRecord>(append->record));
  }
  EXPECT_TRUE(forgotten);
}

TEST(CoordinatorDecision, IsRememberedInABoundedNumber) {
  CoordinatorOptions options;
  options.decided_max = 3;
  CoordinatorRig rig(options);
  rig.join_all(1);
  for (std::uint64_t version = 6; version < 30; ++version) {
    rig.say("publisher", rig.begin(version - 1, version, version));
    ASSERT_TRUE(rig.sent<wire::Plan>()) << version;
    rig.plan = *rig.sent<wire::Plan>();
    rig.say("publisher", wire::SealReport{rig.plan.refit, ProducerIndex{0}, rig.seal_of(version)});
    rig.manifest = rig.sent<wire::Seal>()->manifest;
    rig.vote_yes("agent-0");
    rig.sync();
    rig.say("publisher", wire::Ack{rig.plan.refit, content(version), std::nullopt});
    rig.say("agent-0", wire::Ack{rig.plan.refit, content(version), std::nullopt});
    rig.say("agent-0", rig.hello("agent-0", content(version)));
    rig.wait(std::chrono::seconds(1));
  }
  EXPECT_EQ(rig.role.committed().version.value, 29U);
}

TEST(CoordinatorDecision, TheOperatorCannotOverruleTheLogOrAnOpenRefit) {
  CoordinatorRig rig({}, fold_with_commit_of_epoch_1());
  const RefitId committed{Epoch{1, ProcessId{55}}, 4};
  const auto answer = [&](RefitId refit, Verdict verdict) {
    rig.step(coordinator::OperatorResolve{1, refit, verdict});
    return find<coordinator::OperatorAnswer>(rig.actions)->status;
  };
  EXPECT_TRUE(answer(committed, Verdict::kCommit));
  EXPECT_EQ(answer(committed, Verdict::kAbort).error().code, ErrorCode::kInDoubt);
  EXPECT_EQ(answer(RefitId{Epoch{2, ProcessId{66}}, 9}, Verdict::kCommit).error().code,
            ErrorCode::kInDoubt);
  rig.start_refit(1);
  EXPECT_EQ(answer(rig.plan.refit, Verdict::kAbort).error().code, ErrorCode::kBusy);
}

}  // namespace
}  // namespace weft::apply
