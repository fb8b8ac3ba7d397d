// SPDX-License-Identifier: Apache-2.0
#include "apply/commit/decision_log.hpp"

#include <gtest/gtest.h>

#include "apply/commit/producer_log.hpp"
#include "commit/samples.hpp"

namespace weft::apply {
namespace {

using namespace testing;

DecisionRecord decision(const RefitId& refit, wire::Verdict verdict, std::uint64_t version) {
  DecisionRecord record;
  record.refit = refit;
  record.verdict = verdict;
  record.base = content(version - 1);
  record.target = content(version);
  record.planned = {"agent-0", "agent-1", "publisher"};
  if (verdict == wire::Verdict::kAbort) record.cause = wire::Cause{ErrorCode::kTimeout, "slow"};
  return record;
}
RefitId of_epoch(std::uint64_t epoch, std::uint32_t attempt) {
  return RefitId{Epoch{epoch, ProcessId{epoch * 10}}, attempt};
}

TEST(CoordinatorRecord, DecodesToWhatWasEncodedAndRefusesEveryTruncation) {
  const std::vector<CoordinatorRecord> records{FleetRecord{kFleet},
                                               StartRecord{kEpoch},
                                               ContentRecord{content(5)},
                                               decision(refit_id(1), wire::Verdict::kCommit, 6),
                                               decision(refit_id(2), wire::Verdict::kAbort, 6),
                                               AckedRecord{refit_id(1), "agent-0"},
                                               ForgottenRecord{refit_id(1)}};
  for (const CoordinatorRecord& record : records) {
    LogRecord bytes = encode(record);
    const auto decoded = decode_coordinator_record(bytes);
    ASSERT_TRUE(decoded) << record.index();
    EXPECT_EQ(*decoded, record);
    while (!bytes.payload.empty()) {
      bytes.payload.pop_back();
      EXPECT_FALSE(decode_coordinator_record(bytes)) << record.index();
    }
  }
}

TEST(DecisionFold, CommitsAreKeptUntilForgottenAndTheLastContentAlways) {
  std::vector<CoordinatorRecord> records{
      FleetRecord{kFleet}, StartRecord{Epoch{1, ProcessId{10}}}, ContentRecord{content(5)},
      decision(of_epoch(1, 1), wire::Verdict::kCommit, 6), AckedRecord{of_epoch(1, 1), "agent-0"}};
  auto fold = fold_decisions(records);
  ASSERT_TRUE(fold);
  ASSERT_EQ(fold->commits.size(), 1U);
  EXPECT_TRUE(fold->commits[0].acked.contains("agent-0"));
  EXPECT_EQ(fold->committed, content(6));
  records.push_back(ForgottenRecord{of_epoch(1, 1)});
  fold = fold_decisions(records);
  EXPECT_TRUE(fold->commits.empty());
  EXPECT_EQ(fold->committed, content(6));
}

TEST(DecisionFold, ACommitBehindAStartOfAHigherEpochIsVoid) {
  const std::vector<CoordinatorRecord> records{
      FleetRecord{kFleet}, ContentRecord{content(5)}, StartRecord{Epoch{1, ProcessId{10}}},
      StartRecord{Epoch{2, ProcessId{20}}}, decision(of_epoch(1, 4), wire::Verdict::kCommit, 6)};
  const auto fold = fold_decisions(records);
  ASSERT_TRUE(fold);
  EXPECT_TRUE(fold->commits.empty());
  EXPECT_EQ(fold->committed, content(5));
}

TEST(DecisionFold, TwoDecisionsForOneRefitAreAnError) {
  const std::vector<CoordinatorRecord> records{decision(of_epoch(1, 1), wire::Verdict::kAbort, 6),
                                               decision(of_epoch(1, 1), wire::Verdict::kCommit, 6)};
  const auto fold = fold_decisions(records);
  ASSERT_FALSE(fold);
  EXPECT_EQ(fold.error().code, ErrorCode::kFormat);
}

TEST(DecisionFold, IsWhatACompactedLogFoldsToAlsoBehindTheNextStart) {
  const std::vector<CoordinatorRecord> records{FleetRecord{kFleet},
                                               StartRecord{Epoch{1, ProcessId{10}}},
                                               ContentRecord{content(5)},
                                               decision(of_epoch(1, 1), wire::Verdict::kCommit, 6),
                                               AckedRecord{of_epoch(1, 1), "agent-1"},
                                               decision(of_epoch(1, 2), wire::Verdict::kAbort, 7),
                                               StartRecord{Epoch{2, ProcessId{20}}},
                                               decision(of_epoch(2, 1), wire::Verdict::kCommit, 7)};
  const auto fold = fold_decisions(records);
  ASSERT_TRUE(fold);
  std::vector<CoordinatorRecord> kept = compact_decisions(*fold);
  EXPECT_EQ(*fold_decisions(kept), *fold);
  kept.push_back(StartRecord{Epoch{3, ProcessId{30}}});
  const auto next = fold_decisions(kept);
  EXPECT_EQ(next->commits, fold->commits);  // none of them is void
  EXPECT_EQ(next->epoch.number, 3U);
}

TEST(OperatorsResolve, CommitsWhatMembersReportAsPrepared) {
  DecisionFold lost;  // the log was lost: nothing is known
  const wire::PreparedRefit prepared{of_epoch(7, 3), content(5), content(6)};
  const auto added = resolve_by_operator(lost, prepared, wire::Verdict::kCommit);
  ASSERT_TRUE(added);
  const auto fold = fold_decisions(*added);
  ASSERT_TRUE(fold);
  EXPECT_EQ(fold->committed, content(6));
  EXPECT_EQ(fold->commits.size(), 1U);
  EXPECT_EQ(fold->epoch.number, 7U);  // the next start takes 8, so the members believe it
}

TEST(OperatorsResolve, AbortKeepsTheBaseAsTheCommittedContent) {
  const wire::PreparedRefit prepared{of_epoch(7, 3), content(5), content(6)};
  const auto added = resolve_by_operator({}, prepared, wire::Verdict::kAbort);
  ASSERT_TRUE(added);
  const auto fold = fold_decisions(*added);
  EXPECT_EQ(fold->committed, content(5));
  EXPECT_EQ(fold->aborts.size(), 1U);
}

TEST(OperatorsResolve, NeverSaysOtherThanTheLog) {
  DecisionFold fold;
  fold.epoch = Epoch{9, ProcessId{90}};
  fold.commits.push_back({decision(of_epoch(7, 3), wire::Verdict::kCommit, 6), {}});
  const wire::PreparedRefit prepared{of_epoch(7, 3), content(5), content(6)};
  const auto other = resolve_by_operator(fold, prepared, wire::Verdict::kAbort);
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, ErrorCode::kInDoubt);
  EXPECT_TRUE(resolve_by_operator(fold, prepared, wire::Verdict::kCommit)->empty());
}

TEST(OperatorsResolve, CannotCommitWithoutATarget) {
  const auto added = resolve_by_operator({}, {of_epoch(7, 3), {}, {}}, wire::Verdict::kCommit);
  ASSERT_FALSE(added);
  EXPECT_EQ(added.error().code, ErrorCode::kConfig);
}

TEST(ProducerFold, PendingEndsWithItsBaselineOrItsDrop) {
  const BaselineRecord base{std::nullopt, content(5), part_digest(5)};
  const PendingRecord pending{{refit_id(1), content(5), Content{Version{6}, kLattice, {}}},
                              part_digest(6)};
  std::vector<ProducerRecord> records{ProducerEpochRecord{kFleet, kEpoch}, base, pending};
  EXPECT_EQ(fold_producer(records).pending, pending);
  EXPECT_EQ(fold_producer(compact_producer(records)), fold_producer(records));
  records.push_back(DroppedRecord{refit_id(1)});
  EXPECT_FALSE(fold_producer(records).pending);
  records.back() = BaselineRecord{refit_id(1), content(6), part_digest(6)};
  EXPECT_FALSE(fold_producer(records).pending);
  EXPECT_EQ(fold_producer(records).baseline->content, content(6));
}

TEST(ProducerRecord, DecodesToWhatWasEncodedAndRefusesEveryTruncation) {
  const std::vector<ProducerRecord> records{
      ProducerEpochRecord{kFleet, kEpoch}, BaselineRecord{refit_id(4), content(5), part_digest(5)},
      PendingRecord{{refit_id(1), content(5), content(6)}, part_digest(6)},
      DroppedRecord{refit_id(1)}};
  for (const ProducerRecord& record : records) {
    LogRecord bytes = encode(record);
    const auto decoded = decode_producer_record(bytes);
    ASSERT_TRUE(decoded);
    EXPECT_EQ(*decoded, record);
    while (!bytes.payload.empty()) {
      bytes.payload.pop_back();
      EXPECT_FALSE(decode_producer_record(bytes)) << record.index();
    }
  }
}

}  // namespace
}  // namespace weft::apply
