// SPDX-License-Identifier: Apache-2.0
#include "apply/commit/agent_role.hpp"

#include <gtest/gtest.h>

#include "commit/agent_rig.hpp"

namespace weft::apply {
namespace {

using namespace testing;
using wire::MemberState;
using wire::Verdict;

// --- sessions and epochs ---

TEST(AgentRole, StoresAHigherEpochBeforeItActsOnIt) {
  AgentRig rig;
  rig.step(agent::Start{kSchema});
  rig.step(agent::SessionOpened{rig.session});
  const Epoch higher{4, ProcessId{88}};
  rig.hear(wire::Welcome{kFleet, higher, content(5)});
  wire::Plan plan = rig.plan(1);
  plan.refit.epoch = higher;
  const auto token = find<agent::AppendRecord>(rig.actions)->token;
  EXPECT_FALSE(find<agent::AppendRecord>(rig.hear(plan)));  // not yet
  rig.step(agent::LogSynced{token});
  EXPECT_EQ(rig.sent<wire::Hello>()->epoch, higher);
  EXPECT_TRUE(find<agent::AppendRecord>(rig.hear(plan)));
}

TEST(AgentRole, RefusesACoordinatorOfALowerEpochOrAnotherProcessOfTheSame) {
  for (const Epoch& epoch : {Epoch{2, ProcessId{77}}, Epoch{3, ProcessId{78}}}) {
    AgentRig rig;
    rig.step(agent::Start{kSchema});
    rig.step(agent::SessionOpened{rig.session});
    const auto* closed =
        find<agent::CloseSession>(rig.hear(wire::Welcome{kFleet, epoch, content(5)}));
    ASSERT_TRUE(closed);
    EXPECT_EQ(closed->reason.code, ErrorCode::kFenced);
  }
}

TEST(AgentRole, RefusesACoordinatorOfAnotherFleet) {
  AgentRig rig;
  rig.step(agent::Start{kSchema});
  rig.step(agent::SessionOpened{rig.session});
  const auto* closed =
      find<agent::CloseSession>(rig.hear(wire::Welcome{FleetId{{1, 2}}, kEpoch, content(5)}));
  ASSERT_TRUE(closed);
  EXPECT_EQ(closed->reason.code, ErrorCode::kDenied);
}

TEST(AgentRole, ClosesASessionThatFellSilent) {
  AgentRig rig;
  rig.connect();
  const auto* closed = find<agent::CloseSession>(rig.wait(std::chrono::seconds(6)));
  ASSERT_TRUE(closed);
  EXPECT_EQ(closed->reason.code, ErrorCode::kTimeout);
}

// --- what the files are (B-022, B-029) ---

TEST(AgentRole, TakesItsVersionOnlyFromAnEqualRootAndRecordsIt) {
  AgentRig rig(AgentRecovery{});
  rig.step(agent::Start{kSchema});
  ASSERT_TRUE(find<agent::ComputeTable>(rig.actions));
  rig.step(agent::TableComputed{kLattice, root_digest(5), {}, {}});
  EXPECT_EQ(rig.state.state, MemberState::kUnversioned);
  rig.step(agent::SessionOpened{rig.session});
  rig.hear(wire::Welcome{kFleet, kEpoch, content(5)});
  rig.sync();  // EPOCH
  const StateRecord record = rig.sync();
  EXPECT_EQ(std::get<AppliedRecord>(record).content, content(5));
  EXPECT_EQ(rig.state.state, MemberState::kClean);
  EXPECT_TRUE(rig.state.ready);
}

TEST(AgentRole, OtherBytesUnderTheSameNumberNeedAReseed) {
  AgentRig rig(AgentRecovery{});
  rig.step(agent::Start{kSchema});
  rig.step(agent::TableComputed{kLattice, root_digest(99), {}, {}});
  rig.step(agent::SessionOpened{rig.session});
  rig.hear(wire::Welcome{kFleet, kEpoch, content(5)});
  rig.sync();
  EXPECT_EQ(rig.state.state, MemberState::kNeedsReseed);
  EXPECT_EQ(rig.state.cause->code, ErrorCode::kBaseMismatch);
  EXPECT_NE(rig.state.cause->detail.find(to_hex(root_digest(99))), std::string::npos);
  EXPECT_NE(rig.state.cause->detail.find(to_hex(root_digest(5))), std::string::npos);
}

TEST(AgentRole, IsNotReadyAfterAStartUntilItIsLevelWithTheFleet) {
  AgentRig rig;
  rig.step(agent::Start{kSchema});
  EXPECT_FALSE(rig.state.ready);
  rig.step(agent::SessionOpened{rig.session});
  rig.hear(wire::Welcome{kFleet, kEpoch, content(6)});  // the fleet is one further
  EXPECT_FALSE(rig.state.ready);
  EXPECT_EQ(rig.state.state, MemberState::kLagging);
}

TEST(AgentRole, FilesThatChangedWhileItWasAwayAreVerifiedBeforeItSaysClean) {
  AgentRecovery recovery = AgentRig::at_version_5();
  recovery.row = StartRow::kVerify;
  recovery.verify_first = true;
  AgentRig rig(recovery);
  rig.step(agent::Start{kSchema});
  EXPECT_EQ(rig.state.state, MemberState::kStarting);
  rig.step(agent::TableComputed{kLattice, root_digest(7), {}, {}});
  EXPECT_EQ(rig.state.state, MemberState::kNeedsReseed);
}

// --- until the vote (B-019, B-063, B-080) ---

TEST(AgentRole, OpensARefitOnlyAfterItsBeginIsDurable) {
  AgentRig rig;
  rig.connect();
  rig.hear(rig.plan(1));
  EXPECT_FALSE(find<agent::OpenRefit>(rig.actions));
  EXPECT_EQ(std::get<BeginRecord>(rig.sync()).refit, refit_id(1));
  EXPECT_TRUE(find<agent::OpenRefit>(rig.actions));
}

TEST(AgentRole, VotesYesOnlyAfterPreparedIsDurable) {
  AgentRig rig;
  rig.prove();
  ASSERT_TRUE(find<agent::Prove>(rig.actions));
  rig.step(agent::Proved{refit_id(1)});
  EXPECT_FALSE(rig.sent<wire::Vote>());
  const StateRecord record = rig.sync();
  EXPECT_EQ(std::get<PreparedRecord>(record).prepared.target, content(6));
  ASSERT_TRUE(rig.sent<wire::Vote>());
  EXPECT_TRUE(rig.sent<wire::Vote>()->yes);
  EXPECT_EQ(rig.sent<wire::Vote>()->target_root, root_digest(6));
  EXPECT_EQ(rig.sent<wire::Vote>()->manifest, rig.seal(1).manifest.digest());
}

TEST(AgentRole, APreparedRecordThatCannotBeSyncedIsANo) {
  AgentRig rig;
  rig.prove();
  rig.step(agent::Proved{refit_id(1)});
  rig.fail_log();
  ASSERT_TRUE(rig.sent<wire::Vote>());
  EXPECT_FALSE(rig.sent<wire::Vote>()->yes);
  EXPECT_EQ(rig.sent<wire::Vote>()->cause->code, ErrorCode::kIoFailed);
  EXPECT_EQ(rig.state.content, content(5));
}

TEST(AgentRole, AFullDiskIsANoAndTheNodeLagsUntilAProbeSucceeds) {
  AgentRig rig;
  rig.stream();
  rig.step(agent::RefitFailed{
      refit_id(1), make_error(ErrorCode::kNoSpace, Stage::kResolve, "spool: disk full")});
  EXPECT_FALSE(rig.sent<wire::Vote>()->yes);
  EXPECT_EQ(rig.state.state, MemberState::kLagging);
  rig.hear(rig.decision(1, Verdict::kAbort));
  rig.sync();
  rig.step(agent::RefitForgotten{refit_id(1)});
  EXPECT_EQ(rig.state.cause->code, ErrorCode::kNoSpace);
  ASSERT_TRUE(find<agent::Probe>(rig.wait(std::chrono::seconds(3))));
  rig.step(agent::Probed{ok()});
  EXPECT_EQ(rig.state.state, MemberState::kClean);
  EXPECT_EQ(rig.sent<wire::Hello>()->state, MemberState::kClean);
}

TEST(AgentRole, AWrongBaseIsANoWithItsChunkAndThenAReseed) {
  AgentRig rig;
  rig.stream();
  rig.step(agent::RefitFailed{
      refit_id(1), make_error(ErrorCode::kBaseMismatch, Stage::kResolve, "norm, chunk 7")});
  EXPECT_FALSE(rig.sent<wire::Vote>()->yes);
  EXPECT_EQ(rig.sent<wire::Vote>()->cause->detail, "norm, chunk 7");
  EXPECT_EQ(rig.state.state, MemberState::kNeedsReseed);
  EXPECT_TRUE(find<agent::ForgetRefit>(rig.actions));
  EXPECT_TRUE(std::holds_alternative<ReseedRecord>(rig.sync()));
}

TEST(AgentRole, ACorruptDeltaLeavesItCleanAndTheRetrySucceedsInTheSameProcess) {
  AgentRig rig;
  rig.stream();
  rig.step(agent::RefitFailed{refit_id(1),
                              make_error(ErrorCode::kCorruptPayload, Stage::kResolve, "frame 3")});
  rig.hear(rig.decision(1, Verdict::kAbort));
  rig.sync();
  rig.step(agent::RefitForgotten{refit_id(1)});
  EXPECT_EQ(rig.state.state, MemberState::kClean);
  rig.hear(rig.plan(2));
  rig.sync();
  rig.step(agent::RefitOpened{refit_id(2)});
  rig.hear(rig.seal(2));
  rig.step(agent::Proved{refit_id(2)});
  rig.sync();
  EXPECT_TRUE(rig.sent<wire::Vote>()->yes);
}

TEST(AgentRole, MissingFramesAtTheDeadlineAreANo) {
  AgentRig rig;
  rig.prove();
  rig.now += std::chrono::seconds(11);
  rig.hear(wire::Welcome{kFleet, kEpoch, content(5)});
  rig.wait(std::chrono::milliseconds(100));
  ASSERT_TRUE(rig.sent<wire::Vote>());
  EXPECT_EQ(rig.sent<wire::Vote>()->cause->code, ErrorCode::kTimeout);
}

TEST(AgentRole, MessagesOfAnEarlierRoundDoNothing) {
  AgentRig rig;
  rig.start_apply(3);
  rig.step(agent::Applied{refit_id(3), {}, {}});
  rig.sync();
  for (const std::uint32_t attempt : {1U, 2U, 3U}) {
    rig.hear(rig.plan(attempt));
    EXPECT_FALSE(find<agent::AppendRecord>(rig.actions)) << attempt;
    rig.hear(rig.seal(attempt));
    EXPECT_FALSE(find<agent::Prove>(rig.actions)) << attempt;
  }
}

TEST(AgentRole, APlanOnAnotherBaseIsRefusedWithBothContents) {
  AgentRig rig;
  rig.connect();
  wire::Plan plan = rig.plan(1);
  plan.base = content(8);
  plan.target_version = Version{9};
  rig.hear(plan);
  ASSERT_TRUE(rig.sent<wire::Vote>());
  EXPECT_EQ(rig.sent<wire::Vote>()->cause->code, ErrorCode::kBaseMismatch);
  EXPECT_FALSE(find<agent::OpenRefit>(rig.actions));
}

TEST(AgentRole, ASecondManifestForOneRefitIsAConflict) {
  AgentRig rig;
  rig.prove();
  wire::Seal other = rig.seal(1);
  other.manifest.target = content(7);
  other.manifest.target.version = Version{6};
  rig.hear(other);
  ASSERT_TRUE(rig.sent<wire::Vote>());
  EXPECT_EQ(rig.sent<wire::Vote>()->cause->code, ErrorCode::kPayloadConflict);
}

// --- from the decision (B-074, B-078) ---

TEST(AgentRole, WritesWeightsOnlyAfterItsCommitRecordIsDurable) {
  AgentRig rig;
  rig.prepare();
  rig.hear(rig.decision(1, Verdict::kCommit));
  EXPECT_FALSE(find<agent::ApplyJournal>(rig.actions));
  EXPECT_FALSE(rig.state.ready);
  EXPECT_EQ(std::get<CommitRecord>(rig.sync()).refit, refit_id(1));
  EXPECT_TRUE(find<agent::ApplyJournal>(rig.actions));
}

TEST(AgentRole, ACommitRecordThatCannotBeSyncedWritesNothingUntilTheLogWorks) {
  AgentRig rig;
  rig.prepare();
  rig.hear(rig.decision(1, Verdict::kCommit));
  rig.fail_log();
  EXPECT_FALSE(find<agent::ApplyJournal>(rig.actions));
  EXPECT_EQ(rig.state.state, MemberState::kPrepared);
  rig.hear(rig.decision(1, Verdict::kCommit));
  EXPECT_FALSE(find<agent::ApplyJournal>(rig.actions));
  EXPECT_FALSE(find<agent::AppendRecord>(rig.actions));
  rig.wait(std::chrono::seconds(3));
  rig.step(agent::Probed{ok()});
  rig.sync();
  EXPECT_TRUE(find<agent::ApplyJournal>(rig.actions));
}

TEST(AgentRole, ReportsTheNewVersionOnlyAfterAppliedIsDurable) {
  AgentRig rig;
  rig.start_apply();
  rig.step(agent::Applied{refit_id(1), {}, {}});
  EXPECT_EQ(rig.role.content(), content(5));
  EXPECT_FALSE(rig.sent<wire::Ack>());
  EXPECT_EQ(std::get<AppliedRecord>(rig.sync()).content, content(6));
  EXPECT_EQ(rig.role.content(), content(6));
  ASSERT_TRUE(rig.sent<wire::Ack>());
  EXPECT_EQ(rig.sent<wire::Ack>()->content, content(6));
  EXPECT_TRUE(rig.state.ready);
}

TEST(AgentRole, ACommitToldAgainIsAnsweredAgainWithoutASecondEffect) {
  AgentRig rig;
  rig.start_apply();
  rig.hear(rig.decision(1, Verdict::kCommit));
  EXPECT_FALSE(find<agent::ApplyJournal>(rig.actions));
  rig.step(agent::Applied{refit_id(1), {}, {}});
  rig.sync();
  rig.hear(rig.decision(1, Verdict::kCommit));
  EXPECT_FALSE(find<agent::AppendRecord>(rig.actions));
  EXPECT_EQ(rig.sent<wire::Ack>()->content, content(6));
  EXPECT_FALSE(rig.sent<wire::Ack>()->cause);
}

TEST(AgentRole, ObeysOnlyADecisionForItsRefitAndItsTargetRoot) {
  AgentRig rig;
  rig.prepare();
  for (const Verdict verdict : {Verdict::kCommit, Verdict::kAbort}) {
    wire::Decision other_root = rig.decision(1, verdict);
    other_root.target.root = root_digest(77);
    rig.hear(other_root);
    EXPECT_FALSE(find<agent::AppendRecord>(rig.actions));
  }
  rig.hear(rig.decision(2, Verdict::kCommit));
  EXPECT_FALSE(find<agent::AppendRecord>(rig.actions));
  EXPECT_EQ(rig.state.state, MemberState::kPrepared);
}

TEST(AgentRole, APreparedNodeNeverDecidesAloneButAsks) {
  AgentRig rig;
  rig.prepare();
  rig.step(agent::SessionClosed{rig.session});
  rig.wait(std::chrono::hours(24));
  EXPECT_FALSE(find<agent::AppendRecord>(rig.actions));
  EXPECT_FALSE(rig.state.ready);  // in doubt
  rig.session = SessionId{5};
  rig.step(agent::SessionOpened{rig.session});
  ASSERT_TRUE(rig.sent<wire::Hello>()->prepared);
  EXPECT_EQ(rig.sent<wire::Hello>()->prepared->refit, refit_id(1));
  rig.hear(wire::Welcome{kFleet, kEpoch, content(5)});
  rig.wait(std::chrono::seconds(1));
  ASSERT_TRUE(rig.sent<wire::DecisionQuery>());
  EXPECT_EQ(rig.sent<wire::DecisionQuery>()->prepared.target, content(6));
  rig.hear(rig.decision(1, Verdict::kUndecided));
  EXPECT_FALSE(find<agent::AppendRecord>(rig.actions));
}

TEST(AgentRole, ANewPlanWaitsForTheDecisionOnAPreparedRefit) {
  AgentRig rig;
  rig.prepare();
  rig.hear(rig.plan(2));
  EXPECT_FALSE(find<agent::AppendRecord>(rig.actions));
  EXPECT_TRUE(rig.sent<wire::DecisionQuery>());
}

TEST(AgentRole, AnAbortDropsSpoolAndJournalAndKeepsTheBase) {
  AgentRig rig;
  rig.prepare();
  rig.hear(rig.decision(1, Verdict::kAbort));
  EXPECT_FALSE(find<agent::ForgetRefit>(rig.actions));
  EXPECT_EQ(std::get<AbortRecord>(rig.sync()).refit, refit_id(1));
  EXPECT_TRUE(find<agent::ForgetRefit>(rig.actions));
  rig.step(agent::RefitForgotten{refit_id(1)});
  EXPECT_EQ(rig.sent<wire::Ack>()->content, content(5));
  EXPECT_TRUE(rig.state.ready);
}

TEST(AgentRole, AnApplyThatFailsForGoodNeedsAReseedAndIsNotRetried) {
  AgentRig rig;
  rig.start_apply();
  rig.step(agent::ApplyFailed{refit_id(1),
                              make_error(ErrorCode::kIoFailed, Stage::kApply, "fdatasync"), false});
  EXPECT_EQ(rig.state.state, MemberState::kNeedsReseed);
  EXPECT_TRUE(std::holds_alternative<ReseedRecord>(rig.sync()));
  rig.wait(std::chrono::minutes(10));
  EXPECT_FALSE(find<agent::ApplyJournal>(rig.actions));
  // Told again, it says that it could not.
  rig.session = SessionId{6};
  rig.step(agent::SessionOpened{rig.session});
  rig.hear(wire::Welcome{kFleet, kEpoch, content(6)});
  rig.hear(rig.decision(1, Verdict::kCommit));
  EXPECT_TRUE(rig.sent<wire::Ack>()->cause);
}

TEST(AgentRole, AReaderThatHoldsTheLockMakesItLagAndAFullDiskKeepsItApplying) {
  AgentRig rig;
  rig.start_apply();
  rig.step(agent::ApplyFailed{
      refit_id(1), make_error(ErrorCode::kTimeout, Stage::kApply, "lock held by pid 7"), true});
  EXPECT_EQ(rig.state.state, MemberState::kLagging);
  EXPECT_EQ(rig.state.cause->detail, "lock held by pid 7");
  EXPECT_TRUE(rig.state.ready);
  rig.wait(std::chrono::milliseconds(2100));
  ASSERT_TRUE(find<agent::ApplyJournal>(rig.actions));
  EXPECT_FALSE(rig.state.ready);  // from here on bytes may change
  rig.step(agent::ApplyFailed{refit_id(1), make_error(ErrorCode::kNoSpace, Stage::kApply, "ENOSPC"),
                              false});
  EXPECT_EQ(rig.state.state, MemberState::kApplying);
  EXPECT_FALSE(rig.state.ready);
}

TEST(AgentRole, RuntimeThatRefusesToPauseTooLongTakesTheNodeOut) {
  AgentRig rig;
  rig.start_apply();
  const auto refused = make_error(ErrorCode::kBusy, Stage::kApply, "before_apply: status 503");
  rig.step(agent::ApplyFailed{refit_id(1), refused, true, true});
  EXPECT_EQ(rig.state.state, MemberState::kLagging);
  EXPECT_TRUE(rig.state.ready);
  for (int i = 0; i < 20; ++i) {
    if (find<agent::ApplyJournal>(rig.wait(std::chrono::minutes(1)))) {
      rig.step(agent::ApplyFailed{refit_id(1), refused, true, true});
    }
  }
  EXPECT_EQ(rig.state.state, MemberState::kLagging);
  EXPECT_FALSE(rig.state.ready);
  EXPECT_EQ(rig.state.cause->detail, refused.detail);
}

TEST(AgentRole, ReadersOfTwoSetsStayWhileTheStandbyIsWritten) {
  AgentOptions options;
  options.in_place = false;
  AgentRig rig(AgentRig::at_version_5(), options);
  rig.start_apply();
  EXPECT_EQ(rig.state.state, MemberState::kApplying);
  EXPECT_TRUE(rig.state.ready);
  EXPECT_EQ(rig.state.content, content(5));
}

TEST(AgentRole, WhoWasTooSlowForTheVoteStillAppliesWhatItProves) {
  AgentRig rig;
  rig.prove();
  rig.hear(rig.decision(1, Verdict::kCommit));
  EXPECT_FALSE(find<agent::ApplyJournal>(rig.actions));
  rig.step(agent::Proved{refit_id(1)});
  EXPECT_TRUE(std::holds_alternative<PreparedRecord>(rig.sync()));
  EXPECT_TRUE(std::holds_alternative<CommitRecord>(rig.sync()));
  EXPECT_TRUE(find<agent::ApplyJournal>(rig.actions));
}

TEST(AgentRole, WhoRefusedWhatTheFleetCommittedIsLeftOutAndLags) {
  AgentRig rig;
  rig.prove();
  rig.step(agent::ProveFailed{refit_id(1),
                              make_error(ErrorCode::kCorruptPayload, Stage::kPrepare, "frame 2")});
  rig.hear(rig.decision(1, Verdict::kCommit));
  EXPECT_TRUE(std::get<AbortRecord>(rig.sync()).left_out);
  rig.step(agent::RefitForgotten{refit_id(1)});
  EXPECT_TRUE(rig.sent<wire::Ack>()->cause);
  EXPECT_EQ(rig.state.state, MemberState::kLagging);
  EXPECT_EQ(rig.state.content, content(5));
}

TEST(AgentRole, SpoolsTheNextRefitAsALeafWhileItStillAppliesItsBase) {
  AgentRig rig;
  rig.start_apply();
  wire::Plan next = rig.plan(2);
  next.base = content(6);
  next.target_version = Version{7};
  rig.hear(next);
  rig.sync();
  ASSERT_TRUE(find<agent::OpenRefit>(rig.actions));
  EXPECT_FALSE(find<agent::OpenRefit>(rig.actions)->resolve);
  rig.step(agent::RefitOpened{refit_id(2)});
  rig.step(agent::Applied{refit_id(1), {}, {}});
  rig.sync();
  EXPECT_TRUE(find<agent::StartResolve>(rig.actions));
}

TEST(AgentRole, ARefitThatIsOpenedWhileItsBaseIsAppliedIsResolvedWhenBothAreDone) {
  AgentRig rig;
  rig.start_apply();
  wire::Plan next = rig.plan(2);
  next.base = content(6);
  next.target_version = Version{7};
  rig.hear(next);
  rig.sync();
  ASSERT_TRUE(find<agent::OpenRefit>(rig.actions));
  rig.step(agent::Applied{refit_id(1), {}, {}});
  rig.sync();
  EXPECT_FALSE(find<agent::StartResolve>(rig.actions));  // it has no spool yet
  rig.step(agent::RefitOpened{refit_id(2)});
  EXPECT_TRUE(find<agent::StartResolve>(rig.actions));
}

// --- starts in the middle (B-078, B-081) ---

AgentRecovery in_row(StartRow row) {
  AgentRecovery recovery = AgentRig::at_version_5();
  recovery.row = row;
  FoldedRefit front;
  front.refit = refit_id(1);
  front.base = content(5);
  front.target = content(6);
  front.target_version = Version{6};
  if (row == StartRow::kPrepared) {
    front.prepared = PreparedRecord{{refit_id(1), content(5), content(6)}, Digest{{4, 4}}};
  }
  recovery.front = front;
  recovery.newest = refit_id(1);
  return recovery;
}

TEST(AgentRole, StartedWithCommitIsNotReadyAndAppliesTheJournalAgain) {
  AgentRecovery recovery = in_row(StartRow::kCommitted);
  recovery.check_written = true;
  AgentRig rig(recovery);
  rig.step(agent::Start{kSchema});
  ASSERT_TRUE(find<agent::ApplyJournal>(rig.actions));
  EXPECT_TRUE(find<agent::ApplyJournal>(rig.actions)->check_written);
  EXPECT_FALSE(rig.state.ready);
  rig.step(agent::Applied{refit_id(1), {}, {}});
  rig.sync();
  EXPECT_EQ(rig.role.content(), content(6));
}

TEST(AgentRole, StartedWithPreparedAsksAndObeys) {
  AgentRig rig(in_row(StartRow::kPrepared));
  rig.step(agent::Start{kSchema});
  EXPECT_EQ(rig.state.state, MemberState::kPrepared);
  rig.step(agent::SessionOpened{rig.session});
  EXPECT_EQ(rig.sent<wire::Hello>()->prepared->target, content(6));
  rig.hear(wire::Welcome{kFleet, kEpoch, content(6)});
  rig.hear(rig.decision(1, Verdict::kCommit));
  rig.sync();
  EXPECT_TRUE(find<agent::ApplyJournal>(rig.actions));
}

TEST(AgentRole, StartedWithBeginRejoinsUntilTheSealElseForgets) {
  AgentRig rejoins(in_row(StartRow::kBegun));
  rejoins.connect();
  EXPECT_EQ(rejoins.sent<wire::Hello>()->begun, refit_id(1));
  rejoins.hear(rejoins.plan(1));
  EXPECT_TRUE(find<agent::OpenRefit>(rejoins.actions));

  AgentRig forgets(in_row(StartRow::kBegun));
  forgets.connect();
  forgets.hear(forgets.decision(1, Verdict::kAbort));
  forgets.sync();
  EXPECT_TRUE(find<agent::ForgetRefit>(forgets.actions));
}

TEST(AgentRole, StartedWithAHookDueCallsItUntilItSucceeds) {
  AgentRecovery recovery = AgentRig::at_version_5();
  recovery.hooks_due = {refit_id(1)};
  AgentOptions options;
  options.hooks = true;
  AgentRig rig(recovery, options);
  rig.step(agent::Start{kSchema});
  ASSERT_TRUE(find<agent::CallAfterApply>(rig.actions));
  rig.step(agent::HookDone{refit_id(1), failure(ErrorCode::kTimeout, Stage::kPublish, "no")});
  ASSERT_TRUE(find<agent::CallAfterApply>(rig.wait(std::chrono::seconds(5))));
  rig.step(agent::HookDone{refit_id(1), ok()});
  EXPECT_EQ(std::get<HookedRecord>(rig.sync()).refit, refit_id(1));
}

TEST(AgentRole, RuntimeThatFailsToLoadTooLongTakesTheNodeOutUntilItDoes) {
  AgentRecovery recovery = AgentRig::at_version_5();
  recovery.hooks_due = {refit_id(1)};
  AgentOptions options;
  options.hooks = true;
  AgentRig rig(recovery, options);
  rig.connect();
  const auto failed = failure(ErrorCode::kBusy, Stage::kApply, "after_apply: status 500");
  rig.step(agent::HookDone{refit_id(1), failed});
  EXPECT_TRUE(rig.state.ready);
  for (int i = 0; i < 20; ++i) {
    rig.hear(wire::Welcome{kFleet, kEpoch, content(5)});  // the coordinator is there
    if (find<agent::CallAfterApply>(rig.wait(std::chrono::minutes(1)))) {
      rig.step(agent::HookDone{refit_id(1), failed});
    }
  }
  EXPECT_FALSE(rig.state.ready);
  EXPECT_EQ(rig.state.cause->detail, "after_apply: status 500");
  rig.wait(std::chrono::minutes(2));
  rig.step(agent::HookDone{refit_id(1), ok()});
  rig.sync();
  EXPECT_TRUE(rig.state.ready);
}

TEST(AgentRole, UnreadableStateIsRecordedAsAReseedUntilAnAnchorComes) {
  AgentRecovery recovery;
  recovery.row = StartRow::kReseed;
  recovery.cause = wire::Cause{ErrorCode::kNeedsReseed, "state: bad record at 4096"};
  recovery.record_cause = true;
  AgentRig rig(recovery);
  rig.step(agent::Start{kSchema});
  EXPECT_TRUE(std::holds_alternative<ReseedRecord>(rig.sync()));
  EXPECT_EQ(rig.state.state, MemberState::kNeedsReseed);
  rig.step(agent::Reseeded{content(9), {}, {}});
  rig.sync();
  EXPECT_EQ(rig.role.content(), content(9));
}

}  // namespace
}  // namespace weft::apply
