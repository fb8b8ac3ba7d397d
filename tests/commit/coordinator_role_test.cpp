// SPDX-License-Identifier: Apache-2.0
#include "apply/commit/coordinator_role.hpp"

#include <gtest/gtest.h>

#include "commit/coordinator_rig.hpp"

namespace weft::apply {
namespace {

using namespace testing;
using wire::MemberState;
using wire::Verdict;

// --- starts, sessions, epochs ---

TEST(CoordinatorRole, RecordsAStartOfAHigherEpochBeforeItServes) {
  CoordinatorRole role({}, fold_at_version_5(), ProcessId{77}, kFleet, plan_chain);
  const auto actions = role.step(coordinator::Start{}, at(0));
  const auto* rewrite = find<coordinator::RewriteLog>(actions);
  ASSERT_TRUE(rewrite);
  EXPECT_FALSE(find<coordinator::Serve>(actions));
  EXPECT_EQ(std::get<StartRecord>(rewrite->records.back()).epoch, (Epoch{3, ProcessId{77}}));
  const auto after = role.step(coordinator::LogSynced{rewrite->token}, at(1));
  ASSERT_TRUE(find<coordinator::Serve>(after));
  EXPECT_EQ(find<coordinator::Serve>(after)->committed, content(5));
}

TEST(CoordinatorRole, TellsNobodyAndEndsWhenItsLogCannotBeWritten) {
  CoordinatorRig rig;
  rig.start_refit(1);
  rig.seal();
  rig.vote_yes("agent-0");
  const auto token = find<coordinator::AppendRecord>(rig.actions)->token;
  rig.step(
      coordinator::LogFailed{token, make_error(ErrorCode::kNoSpace, Stage::kDecide, "ENOSPC")});
  ASSERT_EQ(rig.actions.size(), 1U);
  EXPECT_TRUE(find<coordinator::Stop>(rig.actions));
  EXPECT_TRUE(rig.step(coordinator::Tick{}).empty());
}

TEST(CoordinatorRole, EndsWhenAMemberHasMetAHigherEpochOrVersionThanItsLogHolds) {
  for (int kind = 0; kind < 3; ++kind) {
    CoordinatorRig rig;
    wire::Hello hello = rig.hello("agent-0", content(kind == 0 ? 6 : 5));
    if (kind == 1) hello.epoch = Epoch{4, ProcessId{1}};
    if (kind == 2) hello.epoch = Epoch{3, ProcessId{1}};  // another process of our number
    rig.join(hello);
    ASSERT_TRUE(find<coordinator::Stop>(rig.actions)) << kind;
    EXPECT_EQ(find<coordinator::Stop>(rig.actions)->error.code, ErrorCode::kFenced);
  }
}

TEST(CoordinatorRole, RefusesAMemberOfAnotherFleet) {
  CoordinatorRig rig;
  wire::Hello hello = rig.hello("agent-0", content(9));
  hello.fleet = FleetId{{5, 5}};
  rig.join(hello);
  ASSERT_TRUE(rig.sent<wire::SessionRefused>());
  EXPECT_EQ(rig.sent<wire::SessionRefused>()->cause.code, ErrorCode::kDenied);
  EXPECT_FALSE(find<coordinator::Stop>(rig.actions));
}

TEST(CoordinatorRole, AMemberTakesPartOnceItHasStoredOurEpoch) {
  CoordinatorRig rig;
  wire::Hello hello = rig.hello("agent-0", content(5));
  hello.epoch = Epoch{2, ProcessId{66}};
  rig.join(hello);
  ASSERT_TRUE(rig.sent<wire::Welcome>());
  rig.join(rig.hello("publisher", content(5)));
  rig.say("publisher", rig.begin(5, 6));
  EXPECT_FALSE(rig.sent<wire::Plan>());
  hello.epoch = kEpoch;
  rig.say("agent-0", hello);
  EXPECT_TRUE(rig.sent<wire::Plan>());
}

// --- begin (B-022, B-023, B-082) ---

ErrorCode refusal_of(const CoordinatorRig& rig) {
  const auto* refused = rig.sent<wire::BeginRefused>();
  return refused ? refused->cause.code : ErrorCode::kInternal;
}

TEST(CoordinatorRole, RefusesVersionsThatAreOldSkippedOrNotAboveTheirBase) {
  CoordinatorRig rig;
  rig.join_all(1);
  rig.say("publisher", rig.begin(4, 7));  // lower base
  EXPECT_EQ(refusal_of(rig), ErrorCode::kVersionOrder);
  rig.say("publisher", rig.begin(6, 7));  // skips one
  EXPECT_EQ(refusal_of(rig), ErrorCode::kVersionOrder);
  rig.say("publisher", rig.begin(3, 4));  // already past
  EXPECT_EQ(refusal_of(rig), ErrorCode::kVersionOrder);
  rig.say("publisher", rig.begin(5, 5));
  EXPECT_EQ(refusal_of(rig), ErrorCode::kVersionOrder);
}

TEST(CoordinatorRole, RefusesABaseOfOtherBytesWithBothDigests) {
  CoordinatorRig rig;
  rig.join_all(1);
  wire::Begin begin = rig.begin(5, 6);
  begin.base.root = root_digest(50);
  begin.base_part = part_digest(50);
  rig.say("publisher", begin);
  ASSERT_EQ(refusal_of(rig), ErrorCode::kBaseMismatch);
  const std::string& detail = rig.sent<wire::BeginRefused>()->cause.detail;
  EXPECT_NE(detail.find(to_hex(root_digest(50))), std::string::npos);
  EXPECT_NE(detail.find(to_hex(root_digest(5))), std::string::npos);
}

TEST(CoordinatorRole, RefusesPartsThatDoNotFoldToTheBaseTheyName) {
  CoordinatorRig rig;
  rig.join_all(1);
  wire::Begin begin = rig.begin(5, 6);
  begin.base_part = part_digest(51);
  rig.say("publisher", begin);
  EXPECT_EQ(refusal_of(rig), ErrorCode::kBaseMismatch);
}

TEST(CoordinatorRole, TheCommittedVersionAgainIsSuccessWithTheSameContentAndAConflictWithOther) {
  CoordinatorRig rig;
  rig.join_all(1);
  wire::Begin begin = rig.begin(4, 5, 10);
  rig.say("publisher", begin);
  EXPECT_EQ(refusal_of(rig), ErrorCode::kVersionOrder);  // content not known yet
  EXPECT_EQ(rig.sent<wire::BeginRefused>()->committed, content(5));
  begin.request = 11;
  begin.target_part = part_digest(5);
  rig.say("publisher", begin);
  EXPECT_TRUE(rig.sent<wire::BeginRefused>()->already_committed);
  begin.request = 12;
  begin.target_part = part_digest(55);
  rig.say("publisher", begin);
  EXPECT_FALSE(rig.sent<wire::BeginRefused>()->already_committed);
  EXPECT_EQ(refusal_of(rig), ErrorCode::kPayloadConflict);
}

TEST(CoordinatorRole, ASecondTrainerIsBusyAndTheFirstIsNotDisturbed) {
  CoordinatorRig rig;
  rig.start_refit(1);
  rig.join(rig.hello("publisher-b", content(5)));
  rig.say("publisher-b", rig.begin(5, 6, 2));
  EXPECT_EQ(refusal_of(rig), ErrorCode::kBusy);
  rig.seal();
  rig.vote_yes("agent-0");
  EXPECT_EQ(rig.decision()->verdict, Verdict::kCommit);
}

TEST(CoordinatorRole, APlanSaysHowManyTreesMayBeOpenAtAnAgent) {
  CoordinatorOptions options;
  options.trees_open_max = 3;
  CoordinatorRig rig(options);
  rig.start_refit(2);
  EXPECT_EQ(rig.plan.trees_open_max, 3U);
}

TEST(CoordinatorRole, APublisherThatDiedIsTakenOverByItsNextProcess) {
  CoordinatorRig rig;
  rig.start_refit(1);
  rig.join(rig.hello("publisher", content(5), MemberState::kClean, 2));
  ASSERT_TRUE(rig.decision());
  EXPECT_EQ(rig.decision()->verdict, Verdict::kAbort);
  EXPECT_EQ(rig.decision()->cause->code, ErrorCode::kPeerLost);
  rig.sync();
  rig.say("agent-0", wire::Ack{rig.plan.refit, content(5), std::nullopt});
  rig.say("publisher", rig.begin(5, 6, 2));
  ASSERT_TRUE(rig.sent<wire::Plan>());
  EXPECT_LT(rig.plan.refit, rig.sent<wire::Plan>()->refit);
}

TEST(CoordinatorRole, APublisherThatStaysAwayLosesItsRefitWhenItsHeartbeatsEnd) {
  CoordinatorRig rig;
  rig.start_refit(1);
  rig.step(coordinator::SessionClosed{rig.sessions.at("publisher")});
  rig.sessions.erase("publisher");
  rig.wait(std::chrono::seconds(5));
  ASSERT_TRUE(rig.decision());
  EXPECT_EQ(rig.decision()->verdict, Verdict::kAbort);
}

DecisionFold fresh_fleet() {
  DecisionFold fold = fold_at_version_5();
  fold.committed = Content{};
  return fold;
}

TEST(CoordinatorRole, AFreshFleetTakesVersionAndRootFromTheFirstBegin) {
  CoordinatorRig rig({}, fresh_fleet());
  wire::Hello unversioned = rig.hello("agent-0", content(5), MemberState::kUnversioned);
  unversioned.content.version = Version{0};
  rig.join(unversioned);
  rig.join(rig.hello("publisher", content(5)));
  rig.say("publisher", rig.begin(5, 6));
  EXPECT_FALSE(rig.sent<wire::Plan>());
  EXPECT_EQ(std::get<ContentRecord>(rig.sync()).content, content(5));
  EXPECT_EQ(rig.sent_to<wire::Welcome>("agent-0")->committed, content(5));
  rig.say("agent-0", rig.hello("agent-0", content(5)));
  EXPECT_TRUE(rig.sent<wire::Plan>());
}

TEST(CoordinatorRole, AFreshFleetWhoseMembersHaveOtherBytesIsNotFounded) {
  CoordinatorRig rig({}, fresh_fleet());
  wire::Hello unversioned = rig.hello("agent-0", content(8), MemberState::kUnversioned);
  unversioned.content.version = Version{0};
  rig.join(unversioned);
  rig.join(rig.hello("publisher", content(5)));
  rig.say("publisher", rig.begin(5, 6));
  EXPECT_EQ(refusal_of(rig), ErrorCode::kBaseMismatch);
  EXPECT_EQ(rig.role.committed().version.value, 0U);
}

TEST(CoordinatorRole, ANewLatticeIsRehashedAttestedAndRecordedBeforeItIsPlanned) {
  CoordinatorRig rig;
  rig.join_all(1);
  const Digest lattice{{0x1B, 0}};
  const std::vector<Digest> parts{part_digest(500)};
  wire::Begin begin = rig.begin(5, 6);
  begin.base = Content{Version{5}, lattice, codec::fold_root(kSchema, lattice, parts)};
  begin.base_part = parts[0];
  rig.say("publisher", begin);
  ASSERT_TRUE(rig.sent_to<wire::Rehash>("agent-0"));
  EXPECT_EQ(rig.sent_to<wire::Rehash>("agent-0")->lattice, lattice);
  rig.say("agent-0", rig.hello("agent-0", begin.base));
  EXPECT_EQ(std::get<ContentRecord>(rig.sync()).content, begin.base);
  ASSERT_TRUE(rig.sent<wire::Plan>());
  EXPECT_EQ(rig.sent<wire::Plan>()->base, begin.base);
}

TEST(CoordinatorRole, SeveralProducersBeginTogetherOrNotAtAll) {
  CoordinatorRig rig;
  rig.join_all(1);
  rig.join(rig.hello("publisher-b", content(5)));
  const std::vector<Digest> parts{part_digest(5), part_digest(51)};
  wire::Begin begin = rig.begin(5, 6);
  begin.producer_count = 2;
  rig.say("publisher", begin);
  EXPECT_FALSE(rig.sent<wire::Plan>());
  rig.wait(std::chrono::seconds(30));
  EXPECT_EQ(refusal_of(rig), ErrorCode::kTimeout);
}

// --- who takes part (B-069) ---

TEST(CoordinatorRole, LeavesOutMembersThatLagNeedAReseedOrHaveOtherContent) {
  CoordinatorRig rig;
  rig.join(rig.hello("agent-0", content(5)));
  rig.join(rig.hello("agent-1", content(5), MemberState::kNeedsReseed));
  rig.join(rig.hello("agent-2", content(4), MemberState::kLagging));
  rig.join(rig.hello("publisher", content(5)));
  rig.say("publisher", rig.begin(5, 6));
  ASSERT_TRUE(rig.sent<wire::Plan>());
  EXPECT_EQ(rig.sent<wire::Plan>()->nodes.size(), 2U);
  EXPECT_EQ(rig.sent<wire::Plan>()->nodes[1].member_id, "agent-0");
}

TEST(CoordinatorRole, AJoinerWaitsForTheNextVersion) {
  CoordinatorRig rig;
  rig.start_refit(1);
  rig.join(rig.hello("agent-9", content(5)));
  EXPECT_FALSE(rig.sent_to<wire::Plan>("agent-9"));
  rig.seal();
  EXPECT_FALSE(rig.sent_to<wire::Seal>("agent-9"));
  rig.vote_yes("agent-0");
  EXPECT_EQ(rig.decision()->verdict, Verdict::kCommit);
}

TEST(CoordinatorRole, RefusesABeginWhenNobodyCanTakePartAndSaysWhy) {
  CoordinatorRig rig;
  wire::Hello sick = rig.hello("agent-0", content(5), MemberState::kNeedsReseed);
  sick.cause = wire::Cause{ErrorCode::kBaseMismatch, "chunk 7 of norm"};
  rig.join(sick);
  rig.join(rig.hello("publisher", content(5)));
  rig.say("publisher", rig.begin(5, 6));
  ASSERT_EQ(refusal_of(rig), ErrorCode::kPeerLost);
  EXPECT_NE(rig.sent<wire::BeginRefused>()->cause.detail.find("chunk 7 of norm"),
            std::string::npos);
}

TEST(CoordinatorRole, ANewSchemaIsRefusedByName) {
  CoordinatorRig rig;
  wire::Hello other = rig.hello("agent-0", content(5));
  other.schema = Digest{{0x5D, 0}};
  rig.join(other);
  rig.join(rig.hello("publisher", content(5)));
  rig.say("publisher", rig.begin(5, 6));
  EXPECT_EQ(refusal_of(rig), ErrorCode::kSchemaChanged);
}

TEST(CoordinatorRole, ABeginWaitsForMembersThatStillApplyItsBase) {
  CoordinatorRig rig;
  rig.start_refit(2);
  rig.seal();
  rig.vote_yes("agent-0");
  rig.vote_yes("agent-1");
  rig.sync();
  rig.say("publisher", wire::Ack{rig.plan.refit, content(6), std::nullopt});
  rig.say("agent-0", wire::Ack{rig.plan.refit, content(6), std::nullopt});
  rig.say("agent-0", rig.hello("agent-0", content(6)));
  rig.say("agent-1", rig.hello("agent-1", content(5), MemberState::kApplying));
  rig.say("publisher", rig.begin(6, 7, 2));
  EXPECT_FALSE(rig.sent<wire::Plan>());
  rig.say("agent-1", wire::Ack{rig.plan.refit, content(6), std::nullopt});
  rig.say("agent-1", rig.hello("agent-1", content(6)));
  ASSERT_TRUE(rig.sent<wire::Plan>());
  EXPECT_EQ(rig.sent<wire::Plan>()->nodes.size(), 3U);
}

TEST(CoordinatorRole, MembersThatStillApplyTheBaseTakePartAsLeavesWhenAllowed) {
  CoordinatorOptions options;
  options.leaf_while_applying = true;
  CoordinatorRig rig(options);
  rig.start_refit(2);
  rig.seal();
  rig.vote_yes("agent-0");
  rig.vote_yes("agent-1");
  rig.sync();
  rig.say("agent-0", wire::Ack{rig.plan.refit, content(6), std::nullopt});
  rig.say("agent-0", rig.hello("agent-0", content(6)));
  rig.say("agent-1", rig.hello("agent-1", content(5), MemberState::kApplying));
  rig.say("publisher", wire::Ack{rig.plan.refit, content(6), std::nullopt});
  rig.say("publisher", rig.begin(6, 7, 2));
  ASSERT_TRUE(rig.sent<wire::Plan>());
  EXPECT_EQ(rig.sent<wire::Plan>()->nodes.size(), 3U);
}

}  // namespace
}  // namespace weft::apply
