// SPDX-License-Identifier: Apache-2.0
#include "apply/patch/weight_sets.hpp"

#include <gtest/gtest.h>

#include "support/checkpoint_files.hpp"
#include "support/fault_store.hpp"
#include "support/journal_builder.hpp"
#include "support/memory_store.hpp"
#include "support/temp_directory.hpp"

namespace weft::apply {
namespace {

using namespace test_support;  // NOLINT(google-build-using-namespace)
using namespace std::chrono_literals;

const Bits128 kBoot{1, 2};
const Bits128 kNextBoot{3, 4};

PatchOptions small_blocks() {
  PatchOptions options;
  options.block_bytes = 64 * 1024;
  options.depth = 2;
  return options;
}

// A disk with weights/a at version 1 and journals of versions 1 to 2 and 2 to 3.
struct Line {
  std::vector<TestCheckpoint> versions;
  std::vector<RefitId> refits;
  std::shared_ptr<MemoryDisk> disk = MemoryDisk::make();

  Line() {
    versions.push_back(make_checkpoint(150'000, 1));
    versions.push_back(change_elements(versions[0], 0.03, 2));
    versions.push_back(change_elements(versions[1], 0.03, 3));
    auto root = disk->open();
    auto weights = *root->open_directory("weights", true);
    auto a = *weights->open_directory("a", true);
    write_checkpoint(*a, versions[0], true);
    write_whole(*a, "config.json", std::as_bytes(std::span("{}", 2)));
    const auto checkpoint =
        *CheckpointDir::open(*weights->open_directory("a", false), Access::kRead);
    auto journals = *root->open_directory("journal", true);
    for (std::uint32_t i = 0; i + 1 < versions.size(); ++i) {
      refits.push_back(test_refit(i + 1));
      const Status written = write_journal(*journals, checkpoint.schema(), versions[i],
                                           versions[i + 1], 0, refits.back(), Version{i + 1});
      EXPECT_TRUE(written);
    }
    EXPECT_TRUE(a->sync_directory() && weights->sync_directory() && root->sync_directory());
  }
};

void expect_set(const MemoryDisk& disk, std::string_view set, const TestCheckpoint& expected) {
  for (const auto& [name, tensors] : expected) {
    ASSERT_EQ(disk.content("weights/" + std::string(set) + "/" + name), safetensors_bytes(tensors))
        << set << "/" << name;
  }
}

// One run of an agent that has COMMIT for the given refit of the line.
Result<StandbyReport> apply_refit(Store& root, const Line& line, std::size_t refit, Bits128 boot) {
  WEFT_TRY(auto weights, root.open_directory("weights", false));
  WEFT_TRY(auto journals, root.open_directory("journal", false));
  WEFT_TRY(auto sets, WeightSets::open(*weights, boot, Durability::kDisk));
  WEFT_TRY(const auto journal,
           JournalReader::open(*journals, line.refits[refit], sets.checkpoint()->schema()));
  WEFT_TRY(const bool there, sets.holds(journal->manifest().target));
  if (there) return StandbyReport{};
  WEFT_TRY_STATUS(sets.prepare());
  StandbyGoal goal;
  goal.journal = journal.get();
  goal.journals = journals.get();
  goal.retained = {line.refits.begin(), line.refits.begin() + static_cast<long>(refit)};
  goal.patch = small_blocks();
  goal.lock_timeout = 1s;
  WEFT_TRY(const StandbyReport report, sets.build(goal));
  WEFT_TRY_STATUS(sets.flip());
  return report;
}

TEST(WeightSets, FirstStandbyIsACopyAndLaterOnesComeFromJournals) {
  const Line line;
  auto root = line.disk->open();
  const auto first = apply_refit(*root, line, 0, kBoot);
  ASSERT_TRUE(first) << first.error().message();
  EXPECT_TRUE(first->copied);
  EXPECT_EQ(first->journals, 1U);
  expect_set(*line.disk, "a", line.versions[0]);
  expect_set(*line.disk, "b", line.versions[1]);
  EXPECT_EQ(line.disk->content("weights/b/config.json").size(), 2U);
  const auto second = apply_refit(*root, line, 1, kBoot);
  ASSERT_TRUE(second) << second.error().message();
  EXPECT_FALSE(second->copied);
  EXPECT_EQ(second->journals, 2U);
  expect_set(*line.disk, "b", line.versions[1]);
  expect_set(*line.disk, "a", line.versions[2]);
}

TEST(WeightSets, JournalsThatDontReachBackMakeACopy) {
  Line line;
  auto root = line.disk->open();
  ASSERT_TRUE(apply_refit(*root, line, 0, kBoot));
  ASSERT_TRUE(remove_journal(**root->open_directory("journal", false), line.refits[0]));
  const auto second = apply_refit(*root, line, 1, kBoot);
  ASSERT_TRUE(second) << second.error().message();
  EXPECT_TRUE(second->copied);
  expect_set(*line.disk, "a", line.versions[2]);
}

TEST(WeightSets, DamagedRetainedJournalMakesACopy) {
  const Line line;
  auto root = line.disk->open();
  ASSERT_TRUE(apply_refit(*root, line, 0, kBoot));
  {
    auto file =
        *root->open("journal/" + to_string(line.refits[0]) + "/records", Access::kReadWrite);
    std::byte byte{};
    ASSERT_TRUE(file->read(*file->size() / 2, {&byte, 1}));
    byte ^= std::byte{1};
    ASSERT_TRUE(file->write(*file->size() / 2, {&byte, 1}));
  }
  const auto second = apply_refit(*root, line, 1, kBoot);
  ASSERT_TRUE(second) << second.error().message();
  EXPECT_TRUE(second->copied);
  expect_set(*line.disk, "a", line.versions[2]);
}

TEST(WeightSets, DamagedJournalOfTheGoalLeavesTheCurrentSetAlone) {
  const Line line;
  auto root = line.disk->open();
  {
    auto file =
        *root->open("journal/" + to_string(line.refits[0]) + "/records", Access::kReadWrite);
    std::byte byte{};
    ASSERT_TRUE(file->read(*file->size() / 2, {&byte, 1}));
    byte ^= std::byte{1};
    ASSERT_TRUE(file->write(*file->size() / 2, {&byte, 1}));
  }
  const auto failed = apply_refit(*root, line, 0, kBoot);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, ErrorCode::kNeedsReseed);
  expect_set(*line.disk, "a", line.versions[0]);
  EXPECT_EQ(line.disk->content("weights/current").front(), std::byte{'a'});
}

// A reader that still has the older version mapped holds the writer up; it is named.
TEST(WeightSets, ReaderOfTheStandbyMakesItBusy) {
  const Line line;
  auto root = line.disk->open();
  ASSERT_TRUE(apply_refit(*root, line, 0, kBoot));
  const auto reader = root->try_lock("weights/a/weft.lock", LockMode::kShared);
  ASSERT_TRUE(reader);
  const auto busy = apply_refit(*root, line, 1, kBoot);
  ASSERT_FALSE(busy);
  EXPECT_EQ(busy.error().code, ErrorCode::kBusy);
  expect_set(*line.disk, "a", line.versions[0]);
  expect_set(*line.disk, "b", line.versions[1]);
}

TEST(WeightSets, TornBlockOfADirtyStandbyIsNotBelievedAfterAnotherBoot) {
  const Line line;
  auto root = line.disk->open();
  ASSERT_TRUE(apply_refit(*root, line, 0, kBoot));
  auto a = *root->open_directory("weights/a", false);
  const auto stamp = *read_stamp(*a);
  ASSERT_TRUE(stamp && stamp->clean);
  ASSERT_TRUE(write_stamp(*a, {false, stamp->content, kBoot, {}}));
  const auto second = apply_refit(*root, line, 1, kNextBoot);
  ASSERT_TRUE(second) << second.error().message();
  EXPECT_TRUE(second->copied);
  expect_set(*line.disk, "a", line.versions[2]);
}

TEST(WeightSets, FullDiskIsFoundBeforeTheVote) {
  const Line line;
  line.disk->set_capacity(line.disk->used_bytes() + 50'000);
  auto root = line.disk->open();
  auto weights = *root->open_directory("weights", false);
  auto sets = WeightSets::open(*weights, kBoot, Durability::kDisk);
  ASSERT_TRUE(sets) << sets.error().message();
  const Status prepared = sets->prepare();
  ASSERT_FALSE(prepared);
  EXPECT_EQ(prepared.error().code, ErrorCode::kNoSpace);
  expect_set(*line.disk, "a", line.versions[0]);
}

TEST(WeightSets, DirectoryWithoutSetsSaysWhatToDo) {
  auto disk = MemoryDisk::make();
  auto root = disk->open();
  const auto refused = WeightSets::open(*root, kBoot, Durability::kDisk);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kConfig);
  EXPECT_NE(refused.error().detail.find("a/"), std::string::npos);
}

// B-061, B-078: whatever step the process or the machine ends at, `current` names a whole set, and
// the next start reaches the target.
void end_at_every_step(std::size_t refit, bool machine) {
  bool completed = false;
  for (std::uint64_t step = 0; !completed; ++step) {
    for (const Unsynced unsynced : {Unsynced::kDropped, Unsynced::kKept, Unsynced::kRandom}) {
      if (!machine && unsynced != Unsynced::kKept) continue;
      const Line line;
      for (std::size_t i = 0; i < refit; ++i) {
        ASSERT_TRUE(apply_refit(*line.disk->open(), line, i, kBoot));
      }
      auto plan = std::make_shared<FaultPlan>();
      plan->die_at(step);
      completed = static_cast<bool>(
          apply_refit(*wrap_with_faults(line.disk->open(), plan), line, refit, kBoot));
      auto after = line.disk->power_cut(unsynced, step);
      const auto named = after->exists("weights/current") ? after->content("weights/current")
                                                          : std::vector<std::byte>{};
      const bool is_b = !named.empty() && named.front() == std::byte{'b'};
      const std::string current = is_b ? "b" : "a";
      const bool flipped = is_b == (refit % 2 == 0);
      ASSERT_TRUE(flipped || !completed);
      expect_set(*after, current, line.versions[refit + (flipped ? 1 : 0)]);
      const auto again = apply_refit(*after->open(), line, refit, machine ? kNextBoot : kBoot);
      ASSERT_TRUE(again) << "step " << step << ": " << again.error().message();
      expect_set(*after, refit % 2 == 0 ? "b" : "a", line.versions[refit + 1]);
    }
  }
}

TEST(WeightSets, ProcessKilledAtAnyStepOfACopyReachesTheTarget) { end_at_every_step(0, false); }
TEST(WeightSets, PowerCutAtAnyStepOfACopyReachesTheTarget) { end_at_every_step(0, true); }
TEST(WeightSets, ProcessKilledAtAnyStepOfJournalsReachesTheTarget) { end_at_every_step(1, false); }
TEST(WeightSets, PowerCutAtAnyStepOfJournalsReachesTheTarget) { end_at_every_step(1, true); }

}  // namespace
}  // namespace weft::apply
