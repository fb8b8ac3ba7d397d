// SPDX-License-Identifier: Apache-2.0
#include "apply/commit/lost_log.hpp"

#include <gtest/gtest.h>

#include "commit/samples.hpp"

namespace weft::apply {
namespace {

using namespace testing;

constexpr FleetId kOther{{9, 9}};

wire::Hello agent(const std::string& id, std::uint64_t version) {
  wire::Hello hello;
  hello.endpoint.member_id = id;
  hello.fleet = kFleet;
  hello.epoch = kEpoch;
  hello.content = content(version);
  return hello;
}

wire::Hello prepared(const std::string& id, std::uint64_t base) {
  wire::Hello hello = agent(id, base);
  hello.prepared = wire::PreparedRefit{refit_id(4), content(base), content(base + 1)};
  return hello;
}

Result<DecisionFold> rebuilt(std::vector<wire::Hello> hellos, wire::Verdict verdict,
                             const DecisionFold& left = {}) {
  WEFT_TRY(const auto records, rebuild_lost_log(left, hellos, refit_id(4), verdict));
  return fold_decisions(records);
}

TEST(LostLog, CommitsWhatAMemberIsPreparedFor) {
  const auto fold = rebuilt({prepared("a", 6), agent("b", 6)}, wire::Verdict::kCommit);
  ASSERT_TRUE(fold) << fold.error().message();
  EXPECT_EQ(fold->fleet, kFleet);
  EXPECT_EQ(fold->committed, content(7));
  ASSERT_EQ(fold->commits.size(), 1U);
  EXPECT_EQ(fold->commits[0].decision.refit, refit_id(4));
  EXPECT_GE(fold->epoch.number, kEpoch.number);
}

TEST(LostLog, AbortsBackToTheBase) {
  const auto fold = rebuilt({prepared("a", 6), agent("b", 6)}, wire::Verdict::kAbort);
  ASSERT_TRUE(fold) << fold.error().message();
  EXPECT_EQ(fold->committed, content(6));
  ASSERT_EQ(fold->aborts.size(), 1U);
}

TEST(LostLog, AbortOfWhatNobodyIsPreparedForKeepsTheFurthestContent) {
  const auto fold = rebuilt({agent("a", 5), agent("b", 6)}, wire::Verdict::kAbort);
  ASSERT_TRUE(fold) << fold.error().message();
  EXPECT_EQ(fold->committed, content(6));
}

TEST(LostLog, CommitOfWhatAnotherMemberHasAppliedAlready) {
  const auto fold = rebuilt({prepared("a", 6), agent("b", 7)}, wire::Verdict::kCommit);
  ASSERT_TRUE(fold) << fold.error().message();
  EXPECT_EQ(fold->committed, content(7));
}

TEST(LostLog, AbortOfWhatAnotherMemberHasAppliedIsInDoubt) {
  const auto fold = rebuilt({prepared("a", 6), agent("b", 7)}, wire::Verdict::kAbort);
  ASSERT_FALSE(fold);
  EXPECT_EQ(fold.error().code, ErrorCode::kInDoubt);
}

TEST(LostLog, AMemberThatIsFurtherThanTheRefitStaysSo) {
  const auto fold = rebuilt({prepared("a", 6), agent("b", 9)}, wire::Verdict::kCommit);
  ASSERT_TRUE(fold) << fold.error().message();
  EXPECT_EQ(fold->committed, content(9));
}

TEST(LostLog, TheNextStartIsAboveTheHighestEpochOfAnyMember) {
  wire::Hello late = agent("b", 6);
  late.epoch = Epoch{kEpoch.number + 40, ProcessId{77}};
  const auto fold = rebuilt({prepared("a", 6), late}, wire::Verdict::kCommit);
  ASSERT_TRUE(fold) << fold.error().message();
  EXPECT_EQ(fold->epoch.number, kEpoch.number + 40);
  // Behind that START only the operator's word keeps the decision from being void.
  EXPECT_EQ(fold->committed, content(7));
}

TEST(LostLog, CommitWithoutAPreparedMemberIsPeerLost) {
  for (const auto& hellos : {std::vector{agent("a", 6)}, std::vector<wire::Hello>{}}) {
    const auto fold = rebuilt(hellos, wire::Verdict::kCommit);
    ASSERT_FALSE(fold);
    EXPECT_EQ(fold.error().code, ErrorCode::kPeerLost);
  }
}

TEST(LostLog, TwoTargetsForOneRefitAreInDoubt) {
  wire::Hello other = prepared("b", 6);
  other.prepared->target.root = content(99).root;
  const auto fold = rebuilt({prepared("a", 6), other}, wire::Verdict::kCommit);
  ASSERT_FALSE(fold);
  EXPECT_EQ(fold.error().code, ErrorCode::kInDoubt);
}

TEST(LostLog, MembersOfTwoFleetsAreDenied) {
  wire::Hello stranger = agent("b", 6);
  stranger.fleet = kOther;
  EXPECT_EQ(rebuilt({prepared("a", 6), stranger}, wire::Verdict::kCommit).error().code,
            ErrorCode::kDenied);
  DecisionFold of_another;
  of_another.fleet = kOther;
  of_another.committed = content(2);
  EXPECT_EQ(rebuilt({prepared("a", 6)}, wire::Verdict::kCommit, of_another).error().code,
            ErrorCode::kDenied);
}

TEST(LostLog, ALogThatWasBegunWithoutTheOldOneIsDropped) {
  DecisionFold begun;
  begun.fleet = kOther;
  begun.epoch = Epoch{1, ProcessId{5}};
  const auto fold = rebuilt({prepared("a", 6)}, wire::Verdict::kCommit, begun);
  ASSERT_TRUE(fold) << fold.error().message();
  EXPECT_EQ(fold->fleet, kFleet);
  EXPECT_EQ(fold->committed, content(7));
}

TEST(LostLog, AnOlderCopyOfTheLogKeepsWhatItHolds) {
  DecisionFold copy;
  copy.fleet = kFleet;
  copy.epoch = Epoch{1, ProcessId{5}};
  copy.committed = content(3);
  const auto fold = rebuilt({prepared("a", 6)}, wire::Verdict::kAbort, copy);
  ASSERT_TRUE(fold) << fold.error().message();
  EXPECT_EQ(fold->committed, content(6));
  EXPECT_GE(fold->epoch.number, kEpoch.number);
}

}  // namespace
}  // namespace weft::apply
