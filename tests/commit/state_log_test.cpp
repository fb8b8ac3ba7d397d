// SPDX-License-Identifier: Apache-2.0
#include "apply/commit/state_log.hpp"

#include <gtest/gtest.h>

#include <random>

#include "commit/samples.hpp"

namespace weft::apply {
namespace {

using namespace testing;

PreparedRecord prepared_record(std::uint32_t attempt) {
  return PreparedRecord{{refit_id(attempt), content(5), content(6)}, Digest{{attempt, 2}}};
}
AppliedRecord applied_record(std::optional<RefitId> refit, std::uint64_t version) {
  return AppliedRecord{
      refit, content(version), BootId{{9, 9}}, {{1, 2, 3, 4, 5}, {6, 7, 8, 9, 10}}};
}
std::vector<StateRecord> one_of_each() {
  return {EpochRecord{kFleet, kEpoch},
          BeginRecord{refit_id(1), content(5), Version{6}},
          prepared_record(1),
          CommitRecord{refit_id(1), content(6)},
          applied_record(refit_id(1), 6),
          applied_record(std::nullopt, 6),
          HookedRecord{refit_id(1)},
          AbortRecord{refit_id(2), true},
          ReseedRecord{{ErrorCode::kBaseMismatch, "chunk 7 of model.norm"}}};
}

TEST(StateRecord, DecodesToWhatWasEncoded) {
  for (const StateRecord& record : one_of_each()) {
    const auto decoded = decode_state_record(encode(record));
    ASSERT_TRUE(decoded) << record.index();
    EXPECT_EQ(*decoded, record) << record.index();
  }
}

TEST(StateRecord, RefusesEveryTruncationAndEveryTail) {
  for (const StateRecord& record : one_of_each()) {
    LogRecord bytes = encode(record);
    LogRecord longer = bytes;
    longer.payload.push_back(std::byte{0});
    EXPECT_FALSE(decode_state_record(longer));
    while (!bytes.payload.empty()) {
      bytes.payload.pop_back();
      const auto decoded = decode_state_record(bytes);
      ASSERT_FALSE(decoded) << record.index() << " at " << bytes.payload.size();
      EXPECT_EQ(decoded.error().code, ErrorCode::kNeedsReseed);
    }
  }
}

TEST(StateRecord, RefusesKindsFlagsAndCodesThatDoNotExist) {
  EXPECT_FALSE(decode_state_record({99, {}}));
  LogRecord abort = encode(AbortRecord{refit_id(1), false});
  abort.payload.back() = std::byte{2};
  EXPECT_FALSE(decode_state_record(abort));
  LogRecord reseed = encode(ReseedRecord{{ErrorCode::kIoFailed, ""}});
  reseed.payload.front() = std::byte{200};
  EXPECT_FALSE(decode_state_record(reseed));
}

TEST(StateRecord, AllocatesNothingFromACountThatTheBytesDoNotHold) {
  LogRecord applied = encode(applied_record(std::nullopt, 6));
  const std::size_t count_at = 1 + 40 + 16;
  applied.payload[count_at + 3] = std::byte{0xFF};
  EXPECT_FALSE(decode_state_record(applied));
}

TEST(StateFold, KeepsTheOldestRefitThatIsCommittedAndTheOneBehindIt) {
  const std::vector<StateRecord> records{applied_record(std::nullopt, 5),
                                         BeginRecord{refit_id(1), content(5), Version{6}},
                                         prepared_record(1), CommitRecord{refit_id(1), content(6)},
                                         BeginRecord{refit_id(2), content(6), Version{7}}};
  const AgentRecovery recovery = recover_agent(fold_state(records, false), {});
  EXPECT_EQ(recovery.row, StartRow::kCommitted);
  ASSERT_TRUE(recovery.front && recovery.behind);
  EXPECT_EQ(recovery.front->refit, refit_id(1));
  EXPECT_EQ(recovery.front->target, content(6));
  EXPECT_EQ(recovery.behind->refit, refit_id(2));
}

TEST(StateFold, ForgetsEverythingBeforeAReseedUntilAnAnchorIsApplied) {
  std::vector<StateRecord> records{applied_record(std::nullopt, 5),
                                   BeginRecord{refit_id(1), content(5), Version{6}},
                                   prepared_record(1), CommitRecord{refit_id(1), content(6)},
                                   ReseedRecord{{ErrorCode::kIoFailed, "sync"}}};
  EXPECT_TRUE(fold_state(records, false).refits.empty());
  EXPECT_TRUE(fold_state(records, false).reseed);
  records.push_back(applied_record(std::nullopt, 9));
  EXPECT_FALSE(fold_state(records, false).reseed);
  EXPECT_EQ(fold_state(records, false).applied->content, content(9));
}

// What an agent may have written up to some moment: refit after refit, each up to some step.
std::vector<StateRecord> random_history(std::mt19937_64& random) {
  const auto maybe = [&](int percent) { return static_cast<int>(random() % 100) < percent; };
  std::vector<StateRecord> records{EpochRecord{kFleet, kEpoch}, applied_record(std::nullopt, 5)};
  for (std::uint32_t attempt = 1; attempt <= random() % 5; ++attempt) {
    const RefitId refit = refit_id(attempt);
    records.emplace_back(BeginRecord{refit, content(5), Version{6}});
    if (maybe(70)) records.emplace_back(prepared_record(attempt));
    const bool prepared = std::holds_alternative<PreparedRecord>(records.back());
    if (maybe(15)) return records;
    if (!prepared || maybe(20)) {
      records.emplace_back(AbortRecord{refit, maybe(30)});
      continue;
    }
    records.emplace_back(CommitRecord{refit, content(6)});
    if (maybe(15)) {
      records.emplace_back(BeginRecord{refit_id(attempt + 1), content(6), Version{7}});
      return records;
    }
    if (maybe(15)) return records;
    if (maybe(10)) records.emplace_back(ReseedRecord{{ErrorCode::kIoFailed, "sync"}});
    if (std::holds_alternative<ReseedRecord>(records.back())) {
      if (maybe(50)) return records;
      records.emplace_back(applied_record(std::nullopt, 9));
      continue;
    }
    records.emplace_back(applied_record(refit, 6));
    if (maybe(70)) records.emplace_back(HookedRecord{refit});
  }
  return records;
}

TEST(StateFold, IsWhatACompactedLogFoldsTo) {
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    std::mt19937_64 random(seed);
    const std::vector<StateRecord> records = random_history(random);
    const bool hooks = random() % 2 == 0;
    const StateFold expected = fold_state(records, hooks);
    const std::vector<StateRecord> kept = compact_state(records, hooks);
    // What a start uses must be the same.
    for (const bool as_recorded : {false, true}) {
      StateEvidence evidence;
      evidence.files_as_recorded = as_recorded;
      const bool same =
          recover_agent(fold_state(kept, hooks), evidence) == recover_agent(expected, evidence);
      ASSERT_TRUE(same) << "seed " << seed;
    }
    EXPECT_LE(kept.size(), 4 + 5 * expected.refits.size()) << "seed " << seed;
  }
}

// --- the table of what a start does, cell by cell ---

StateEvidence as_recorded() {
  StateEvidence evidence;
  evidence.files_as_recorded = true;
  return evidence;
}

TEST(AgentRecovery, OfNothingComputesTheTable) {
  const AgentRecovery recovery = recover_agent(fold_state({}, false), {});
  EXPECT_EQ(recovery.row, StartRow::kNone);
  EXPECT_EQ(recovery.content.version.value, 0U);
}

TEST(AgentRecovery, OfAppliedIsCleanWhenFilesAndBootAreAsRecorded) {
  const std::vector<StateRecord> records{applied_record(refit_id(1), 6)};
  const AgentRecovery recovery = recover_agent(fold_state(records, false), as_recorded());
  EXPECT_EQ(recovery.row, StartRow::kClean);
  EXPECT_EQ(recovery.content, content(6));
  EXPECT_FALSE(recovery.verify_first);
}

TEST(AgentRecovery, OfAppliedVerifiesFilesThatChangedOrAKernelThatStartedAgain) {
  const std::vector<StateRecord> records{applied_record(refit_id(1), 6)};
  EXPECT_EQ(recover_agent(fold_state(records, false), {}).row, StartRow::kVerify);
  StateEvidence rebooted = as_recorded();
  rebooted.boot_changed = true;
  const AgentRecovery recovery = recover_agent(fold_state(records, false), rebooted);
  EXPECT_EQ(recovery.row, StartRow::kVerify);
  EXPECT_TRUE(recovery.verify_first);
}

TEST(AgentRecovery, OfAbortIsAsBeforeTheRefit) {
  const std::vector<StateRecord> records{applied_record(std::nullopt, 5),
                                         BeginRecord{refit_id(1), content(5), Version{6}},
                                         prepared_record(1), AbortRecord{refit_id(1), false}};
  const AgentRecovery recovery = recover_agent(fold_state(records, false), as_recorded());
  EXPECT_EQ(recovery.row, StartRow::kClean);
  EXPECT_EQ(recovery.newest, refit_id(1));
}

TEST(AgentRecovery, OfBeginMayRejoin) {
  const std::vector<StateRecord> records{applied_record(std::nullopt, 5),
                                         BeginRecord{refit_id(1), content(5), Version{6}}};
  const AgentRecovery recovery = recover_agent(fold_state(records, false), as_recorded());
  EXPECT_EQ(recovery.row, StartRow::kBegun);
  EXPECT_EQ(recovery.front->refit, refit_id(1));
}

TEST(AgentRecovery, OfPreparedServesTheBaseAndAsks) {
  const std::vector<StateRecord> records{applied_record(std::nullopt, 5),
                                         BeginRecord{refit_id(1), content(5), Version{6}},
                                         prepared_record(1)};
  const AgentRecovery recovery = recover_agent(fold_state(records, false), as_recorded());
  EXPECT_EQ(recovery.row, StartRow::kPrepared);
  EXPECT_EQ(recovery.content, content(5));
  EXPECT_EQ(recovery.front->target, content(6));
}

TEST(AgentRecovery, OfCommitAppliesAndHashesOnlyAfterAPowerCut) {
  const std::vector<StateRecord> records{applied_record(std::nullopt, 5), prepared_record(1),
                                         CommitRecord{refit_id(1), content(6)}};
  StateEvidence evidence;
  EXPECT_EQ(recover_agent(fold_state(records, false), evidence).row, StartRow::kCommitted);
  EXPECT_FALSE(recover_agent(fold_state(records, false), evidence).check_written);
  evidence.boot_changed = true;
  EXPECT_TRUE(recover_agent(fold_state(records, false), evidence).check_written);
}

TEST(AgentRecovery, CallsTheHookAgainUntilHookedIsRecorded) {
  std::vector<StateRecord> records{prepared_record(1), CommitRecord{refit_id(1), content(6)},
                                   applied_record(refit_id(1), 6)};
  EXPECT_EQ(recover_agent(fold_state(records, true), as_recorded()).hooks_due,
            std::vector<RefitId>{refit_id(1)});
  EXPECT_TRUE(recover_agent(fold_state(records, false), as_recorded()).hooks_due.empty());
  records.push_back(HookedRecord{refit_id(1)});
  EXPECT_TRUE(recover_agent(fold_state(records, true), as_recorded()).hooks_due.empty());
}

TEST(AgentRecovery, OfReseedStaysSo) {
  const std::vector<StateRecord> records{applied_record(std::nullopt, 5),
                                         ReseedRecord{{ErrorCode::kBaseMismatch, "chunk 3"}}};
  const AgentRecovery recovery = recover_agent(fold_state(records, false), as_recorded());
  EXPECT_EQ(recovery.row, StartRow::kReseed);
  EXPECT_EQ(recovery.cause->detail, "chunk 3");
  EXPECT_FALSE(recovery.record_cause);
}

TEST(AgentRecovery, OfUnreadableStateOrResizedFilesAsksForAReseedAndRecordsIt) {
  StateEvidence evidence;
  evidence.log_readable =
      failure(ErrorCode::kNeedsReseed, Stage::kRecover, "a bad record before a good one");
  EXPECT_EQ(recover_agent(fold_state({}, false), evidence).row, StartRow::kReseed);
  EXPECT_TRUE(recover_agent(fold_state({}, false), evidence).record_cause);

  const std::vector<StateRecord> records{applied_record(std::nullopt, 5), prepared_record(1),
                                         CommitRecord{refit_id(1), content(6)}};
  StateEvidence resized;
  resized.files_resized = true;
  const AgentRecovery recovery = recover_agent(fold_state(records, false), resized);
  EXPECT_EQ(recovery.row, StartRow::kReseed);
  EXPECT_EQ(recovery.cause->code, ErrorCode::kInconsistentCheckpoint);
}

}  // namespace
}  // namespace weft::apply
