// SPDX-License-Identifier: Apache-2.0
#include "apply/patch/patcher.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>

#include "support/checkpoint_files.hpp"
#include "support/event_recorder.hpp"
#include "support/fault_store.hpp"
#include "support/journal_builder.hpp"
#include "support/memory_store.hpp"
#include "support/temp_directory.hpp"

namespace weft::apply {
namespace {

using namespace test_support;  // NOLINT(google-build-using-namespace)

NullEventSink no_events;

PatchOptions small_blocks(std::uint32_t threads = 1) {
  PatchOptions options;
  options.block_bytes = 64 * 1024;
  options.depth = 4;
  options.threads = threads;
  return options;
}

Result<PatchStats> apply_in(std::unique_ptr<Store> weights, Store& journals,
                            const PatchOptions& options) {
  WEFT_TRY(auto checkpoint, CheckpointDir::open(std::move(weights), Access::kReadWrite));
  WEFT_TRY(const auto journal, JournalReader::open(journals, test_refit(), checkpoint.schema()));
  WEFT_TRY(const PatchStats stats, apply_journal(*journal, checkpoint, options));
  WEFT_TRY_STATUS(checkpoint.sync());
  return stats;
}

Status journal_for(Store& root, const TestCheckpoint& base, const TestCheckpoint& target,
                   std::uint64_t seed = 0) {
  WEFT_TRY(auto weights, root.open_directory("weights", true));
  write_checkpoint(*weights, base, true);
  WEFT_TRY(auto checkpoint, CheckpointDir::open(std::move(weights), Access::kRead));
  WEFT_TRY(auto journals, root.open_directory("journal", true));
  WEFT_TRY_STATUS(root.sync_directory());
  return write_journal(*journals, checkpoint.schema(), base, target, seed);
}

// Disk with weights/ at `base` and journal/ that leads to `target`.
std::shared_ptr<MemoryDisk> memory_with_journal(const TestCheckpoint& base,
                                                const TestCheckpoint& target) {
  auto disk = MemoryDisk::make();
  auto root = disk->open();
  const Status made = journal_for(*root, base, target);
  EXPECT_TRUE(made) << made.error().message();
  return disk;
}

void expect_content(const MemoryDisk& disk, const TestCheckpoint& expected) {
  for (const auto& [name, tensors] : expected) {
    ASSERT_EQ(disk.content("weights/" + name), safetensors_bytes(tensors)) << name;
  }
}

class PatcherOnDisk : public testing::TestWithParam<std::tuple<Engine, double, std::uint32_t>> {};

TEST_P(PatcherOnDisk, FilesEqualTheTargetByteForByteAndKeepTheirModes) {
  const auto [engine, density, threads] = GetParam();
  const auto base = make_checkpoint(1'200'000, 1);
  const auto target = change_elements(base, density, 2);
  const TempDirectory directory;
  auto root = *open_store(directory.path(), {engine, Durability::kDisk}, no_events);
  ASSERT_TRUE(journal_for(*root, base, target, 5));
  for (const auto& [name, tensors] : base) {
    std::filesystem::permissions(directory / ("weights/" + name), std::filesystem::perms(0644));
  }
  auto journals = *root->open_directory("journal", false);
  const auto stats =
      apply_in(*root->open_directory("weights", false), *journals, small_blocks(threads));
  ASSERT_TRUE(stats) << stats.error().message();
  for (const auto& [name, tensors] : target) {
    EXPECT_EQ(read_file(directory / ("weights/" + name)), safetensors_bytes(tensors)) << name;
    struct stat status {};
    ASSERT_EQ(::stat((directory / ("weights/" + name)).c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 07777U, 0644U);
  }
  // Again from its start: nothing is different.
  ASSERT_TRUE(apply_in(*root->open_directory("weights", false), *journals, small_blocks(threads)));
  for (const auto& [name, tensors] : target) {
    EXPECT_EQ(read_file(directory / ("weights/" + name)), safetensors_bytes(tensors)) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, PatcherOnDisk,
                         testing::Combine(testing::Values(Engine::kPosix, Engine::kUring),
                                          testing::Values(0.0, 0.00005, 0.03, 0.9),
                                          testing::Values(1U, 3U)));

TEST(Patcher, SparseChangesTouchOnlyTheirPages) {
  const auto base = make_checkpoint(4'000'000, 1);
  auto target = base;
  target.begin()->second.front().bytes[300'000] ^= std::byte{1};
  auto disk = memory_with_journal(base, target);
  auto root = disk->open();
  auto journals = *root->open_directory("journal", false);
  const auto stats = apply_in(*root->open_directory("weights", false), *journals, {});
  ASSERT_TRUE(stats);
  EXPECT_EQ(stats->records, 1U);
  EXPECT_EQ(stats->written_bytes, 4096U);
  EXPECT_EQ(stats->read_bytes, 4096U);
  expect_content(*disk, target);
}

// B-060: blocks are shared by tensors and records come in any order; there is one result.
TEST(Patcher, OrderOfRecordsAndThreadsDoesNotMatter) {
  const auto base = make_checkpoint(300'000, 1);
  const auto target = change_elements(base, 0.05, 2);
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    auto disk = MemoryDisk::make();
    auto root = disk->open();
    ASSERT_TRUE(journal_for(*root, base, target, seed));
    auto journals = *root->open_directory("journal", false);
    ASSERT_TRUE(
        apply_in(*root->open_directory("weights", false), *journals, small_blocks(1 + seed % 4)));
    expect_content(*disk, target);
  }
}

// B-061, B-078: the machine stops at any step of an apply; doing it again completes it.
TEST(Patcher, AppliedAgainAfterAPowerCutAtAnyStepGivesTheTarget) {
  const auto base = make_checkpoint(400'000, 1);
  const auto target = change_elements(base, 0.03, 2);
  bool completed = false;
  for (std::uint64_t step = 0; !completed; ++step) {
    for (const Unsynced unsynced : {Unsynced::kDropped, Unsynced::kKept, Unsynced::kRandom}) {
      auto disk = memory_with_journal(base, target);
      auto plan = std::make_shared<FaultPlan>();
      {
        auto root = wrap_with_faults(disk->open(), plan);
        auto journals = *root->open_directory("journal", false);
        plan->die_at(step);
        completed = static_cast<bool>(
            apply_in(*root->open_directory("weights", false), *journals, small_blocks()));
      }
      auto after = disk->power_cut(unsynced, step);
      if (completed) expect_content(*after, target);  // it said so: it is durable
      auto root = after->open();
      auto journals = *root->open_directory("journal", false);
      const auto again =
          apply_in(*root->open_directory("weights", false), *journals, small_blocks());
      ASSERT_TRUE(again) << "step " << step << ": " << again.error().message();
      expect_content(*after, target);
    }
  }
}

TEST(Patcher, FullOrBrokenDiskStopsWithTheJournalIntact) {
  const auto base = make_checkpoint(400'000, 1);
  const auto target = change_elements(base, 0.03, 2);
  const std::vector<std::pair<int, ErrorCode>> causes = {{ENOSPC, ErrorCode::kNoSpace},
                                                         {EDQUOT, ErrorCode::kNoSpace},
                                                         {EIO, ErrorCode::kIoFailed},
                                                         {EFBIG, ErrorCode::kResourceLimit},
                                                         {EROFS, ErrorCode::kDenied}};
  for (const auto& [native, code] : causes) {
    auto disk = memory_with_journal(base, target);
    auto plan = std::make_shared<FaultPlan>();
    auto root = wrap_with_faults(disk->open(), plan);
    auto journals = *root->open_directory("journal", false);
    plan->add({.call = Call::kWrite, .name_part = "safetensors", .native = native, .skip = 2});
    const auto failed =
        apply_in(*root->open_directory("weights", false), *journals, small_blocks(2));
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().code, code);
    EXPECT_EQ(failed.error().native, native);
    plan->clear();
    ASSERT_TRUE(apply_in(*root->open_directory("weights", false), *journals, small_blocks(2)));
    expect_content(*disk, target);
  }
}

TEST(Patcher, FailedReadOfWeightsStopsTheApply) {
  const auto base = make_checkpoint(400'000, 1);
  auto disk = memory_with_journal(base, change_elements(base, 0.03, 2));
  auto plan = std::make_shared<FaultPlan>();
  auto root = wrap_with_faults(disk->open(), plan);
  auto journals = *root->open_directory("journal", false);
  auto checkpoint =
      CheckpointDir::open(*root->open_directory("weights", false), Access::kReadWrite);
  const auto journal = JournalReader::open(*journals, test_refit(), checkpoint->schema());
  plan->add({.call = Call::kRead, .name_part = "safetensors", .native = EIO, .skip = 3});
  const auto failed = apply_journal(**journal, *checkpoint, small_blocks());
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, ErrorCode::kIoFailed);
}

TEST(Patcher, DamagedRecordAsksForAReseed) {
  const auto base = make_checkpoint(400'000, 1);
  auto disk = memory_with_journal(base, change_elements(base, 0.03, 2));
  auto root = disk->open();
  auto journals = *root->open_directory("journal", false);
  {
    auto file = *journals->open(to_string(test_refit()) + "/records", Access::kReadWrite);
    std::byte byte{};
    const std::uint64_t middle = *file->size() / 2;
    ASSERT_TRUE(file->read(middle, {&byte, 1}));
    byte ^= std::byte{1};
    ASSERT_TRUE(file->write(middle, {&byte, 1}));
  }
  const auto failed = apply_in(*root->open_directory("weights", false), *journals, small_blocks());
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, ErrorCode::kNeedsReseed);
}

TEST(Patcher, RefusesACheckpointThatIsNotOpenForWriting) {
  const auto base = make_checkpoint(50'000, 1);
  auto disk = memory_with_journal(base, change_elements(base, 0.03, 2));
  auto root = disk->open();
  auto journals = *root->open_directory("journal", false);
  auto checkpoint = CheckpointDir::open(*root->open_directory("weights", false), Access::kRead);
  const auto journal = JournalReader::open(*journals, test_refit(), checkpoint->schema());
  ASSERT_TRUE(journal);
  const auto refused = apply_journal(**journal, *checkpoint, small_blocks());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kDenied);
}

TEST(Patcher, RefusesOptionsOutOfRange) {
  const auto base = make_checkpoint(50'000, 1);
  auto disk = memory_with_journal(base, base);
  auto root = disk->open();
  auto journals = *root->open_directory("journal", false);
  PatchOptions odd;
  odd.block_bytes = 100'000;
  PatchOptions idle;
  idle.threads = 0;
  PatchOptions shallow;
  shallow.depth = 0;
  for (const PatchOptions& options : {odd, idle, shallow}) {
    const auto refused = apply_in(*root->open_directory("weights", false), *journals, options);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::kConfig);
  }
}

TEST(Patcher, ReportsProgressUpToTheTotal) {
  const auto base = make_checkpoint(3'000'000, 1);
  auto disk = memory_with_journal(base, change_elements(base, 0.03, 2));
  auto root = disk->open();
  auto journals = *root->open_directory("journal", false);
  std::uint64_t last = 0;
  std::uint64_t total = 0;
  PatchOptions options = small_blocks(2);
  options.on_progress = [&](std::uint64_t done, std::uint64_t of) {
    last = std::max(last, done);
    total = of;
  };
  const auto stats = apply_in(*root->open_directory("weights", false), *journals, options);
  ASSERT_TRUE(stats);
  EXPECT_EQ(last, total);
  EXPECT_EQ(stats->records, total);
}

}  // namespace
}  // namespace weft::apply
