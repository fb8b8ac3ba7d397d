// SPDX-License-Identifier: Apache-2.0
#include "apply/patch/apply_delta.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <filesystem>

#include "apply/patch/digest_directory.hpp"
#include "apply/read/state_page.hpp"
#include "apply/spool/delta_file.hpp"
#include "apply/store/checkpoint_dir.hpp"
#include "apply/store/checkpoint_source.hpp"
#include "support/checkpoint_files.hpp"
#include "support/memory_slots.hpp"
#include "support/refit_builder.hpp"
#include "support/temp_directory.hpp"
#include "support/tmpfs_mount.hpp"

namespace weft::apply {
namespace {

using namespace test_support;  // NOLINT(google-build-using-namespace)

NullEventSink no_events;

void write_directory(const std::string& path, const TestCheckpoint& checkpoint) {
  std::filesystem::create_directories(path);
  write_checkpoint(**open_store(path, {}, no_events), checkpoint, true);
}

void expect_directory(const std::string& path, const TestCheckpoint& expected) {
  for (const auto& [name, tensors] : expected) {
    ASSERT_EQ(read_file(path + "/" + name), safetensors_bytes(tensors)) << name;
  }
}

// base/, target/ and a delta between them, all on disk.
// Threads: one at a time.
class ApplyDelta : public testing::TestWithParam<std::uint32_t> {
 protected:
  ApplyDelta() : base_(make_checkpoint(1'200'000, 1)), target_(change_elements(base_, 0.03, 2)) {
    write_directory(base_dir(), base_);
    write_directory(target_dir(), target_);
    write_delta("d.weft", base_dir(), target_dir(), 1);
  }
  std::string base_dir() const { return directory_ / "base"; }
  std::string target_dir() const { return directory_ / "target"; }
  std::string delta() const { return directory_ / "d.weft"; }

  void write_delta(const std::string& name, const std::string& from, const std::string& to,
                   std::uint32_t producer_count) {
    const auto old_dir = *CheckpointDir::open_path(from, Access::kRead, {}, no_events);
    const auto new_dir = *CheckpointDir::open_path(to, Access::kRead, {}, no_events);
    const auto lattice = lattice_of(old_dir.schema(), producer_count);
    auto store = *open_store(directory_.path(), {}, no_events);
    auto writer = *DeltaFileWriter::open(*store, name, old_dir.schema(), lattice);
    CheckpointSource source(lattice, old_dir, new_dir);
    MemorySlots slots(4);
    codec::EncodeFlowOptions options;
    options.threads = 1;
    options.frame_bytes = 16'384;
    wire::Manifest manifest;
    for (std::uint32_t i = 0; i < producer_count; ++i) {
      const auto summary =
          codec::encode_flow(lattice, ProducerIndex{i}, source, slots, *writer, options);
      ASSERT_TRUE(summary) << summary.error().message();
      manifest.producers.push_back(summary->seal);
    }
    manifest.schema = old_dir.schema().digest();
    manifest.base = {Version{}, lattice.digest(),
                     digest_directory(old_dir, lattice, 1)->root(lattice)};
    manifest.target = {Version{}, lattice.digest(),
                       digest_directory(new_dir, lattice, 1)->root(lattice)};
    const auto bytes = writer->finish(manifest);
    ASSERT_TRUE(bytes) << bytes.error().message();
    EXPECT_EQ(*bytes, std::filesystem::file_size(directory_ / name));
  }
  Result<ApplyDeltaSummary> apply(const ApplyDeltaOptions& options = {}) {
    return apply_delta_file(base_dir(), delta(), options, no_events);
  }

  TempDirectory directory_;
  TestCheckpoint base_;
  TestCheckpoint target_;
};

TEST_F(ApplyDelta, MakesTheDirectoryTheTargetAndASecondTimeDoesNothing) {
  for (const std::uint32_t producer_count : {1U, 2U}) {
    write_directory(base_dir(), base_);
    write_delta("d.weft", base_dir(), target_dir(), producer_count);
    const auto summary = apply();
    ASSERT_TRUE(summary) << summary.error().message();
    EXPECT_TRUE(summary->applied);
    EXPECT_FALSE(summary->already_there);
    EXPECT_GT(summary->changed_elements, 1'000U);
    EXPECT_EQ(summary->delta_bytes, std::filesystem::file_size(delta()));
    expect_directory(base_dir(), target_);
    const auto again = apply();
    ASSERT_TRUE(again);
    EXPECT_TRUE(again->already_there);
    EXPECT_FALSE(again->applied);
    const auto page = StatePage::open(**open_store(base_dir(), {}, no_events));
    ASSERT_TRUE(page);
    EXPECT_EQ((*page)->read()->phase, ReadPhase::kReady);
    EXPECT_EQ((*page)->read()->content, summary->target);
  }
}

TEST_F(ApplyDelta, DryRunVerifiesAndLeavesEverythingAsItWas) {
  const auto identity =
      std::filesystem::last_write_time(base_dir() + "/model-00001-of-00002.safetensors");
  ApplyDeltaOptions options;
  options.dry_run = true;
  const auto summary = apply(options);
  ASSERT_TRUE(summary) << summary.error().message();
  EXPECT_FALSE(summary->applied);
  expect_directory(base_dir(), base_);
  EXPECT_EQ(identity,
            std::filesystem::last_write_time(base_dir() + "/model-00001-of-00002.safetensors"));
  EXPECT_TRUE(std::filesystem::is_empty(base_dir() + "/.weft-state/journal"));
  ASSERT_TRUE(apply());
  expect_directory(base_dir(), target_);
}

TEST_F(ApplyDelta, WrongBaseIsAMismatchAndNothingIsWritten) {
  auto other = base_;
  other.begin()->second.back().bytes[1] ^= std::byte{1};
  write_directory(base_dir(), other);
  const auto refused = apply();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kBaseMismatch);
  expect_directory(base_dir(), other);
}

TEST_F(ApplyDelta, OtherTensorsAreASchemaChange) {
  auto other = base_;
  other.begin()->second.back().name = "renamed";
  write_directory(base_dir(), other);
  const auto refused = apply();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kSchemaChanged);
}

TEST_F(ApplyDelta, DamagedDeltaFileIsRefusedWhereverTheDamageIs) {
  const auto bytes = read_file(delta());
  for (std::size_t at = 0; at < bytes.size(); at += bytes.size() / 60 + 1) {
    auto damaged = bytes;
    damaged[at] ^= std::byte{1};
    write_file(delta(), damaged);
    const auto refused = apply();
    ASSERT_FALSE(refused) << at;
    expect_directory(base_dir(), base_);
  }
  for (const std::size_t length :
       {std::size_t{0}, std::size_t{63}, bytes.size() / 2, bytes.size() - 1}) {
    write_file(delta(), std::span(bytes).first(length));
    const auto refused = apply();
    ASSERT_FALSE(refused) << length;
    EXPECT_EQ(refused.error().code, ErrorCode::kFormat);
  }
  auto longer = bytes;
  longer.push_back(std::byte{0});
  write_file(delta(), longer);
  EXPECT_EQ(apply().error().code, ErrorCode::kFormat);
  write_file(delta(), bytes);
  EXPECT_TRUE(apply());
}

// B-078, B-081: cut off between its COMMIT and its end, it is completed by the next run.
TEST_F(ApplyDelta, RunThatFailedWhileItAppliedIsFinishedByTheNext) {
  // The journal fits under the limit, the end of the weights does not.
  ::signal(SIGXFSZ, SIG_IGN);
  rlimit former{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &former), 0);
  const rlimit low{300'000, former.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &low), 0);
  const auto failed = apply();
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &former), 0);
  ::signal(SIGXFSZ, SIG_DFL);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, ErrorCode::kResourceLimit);
  const auto page = StatePage::open(**open_store(base_dir(), {}, no_events));
  ASSERT_TRUE(page);
  EXPECT_EQ((*page)->read()->phase, ReadPhase::kApplying);
  const auto summary = apply();
  ASSERT_TRUE(summary) << summary.error().message();
  EXPECT_TRUE(summary->finished_earlier);
  EXPECT_TRUE(summary->already_there);
  expect_directory(base_dir(), target_);
  EXPECT_EQ((*page)->read()->phase, ReadPhase::kReady);
}

TEST_F(ApplyDelta, SecondWriterIsBusy) {
  auto store = *open_store(base_dir(), {}, no_events);
  const auto lock = store->try_lock("weft.owner", LockMode::kExclusive);
  ASSERT_TRUE(lock);
  const auto refused = apply();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kBusy);
}

TEST_F(ApplyDelta, StopBeforeTheApplyLeavesTheBase) {
  for (const std::string_view step : {"hash", "verify"}) {
    ApplyDeltaOptions options;
    options.on_progress = [&](std::string_view at, std::uint64_t, std::uint64_t) {
      return at != step;
    };
    const auto stopped = apply(options);
    ASSERT_FALSE(stopped) << step;
    EXPECT_EQ(stopped.error().code, ErrorCode::kTimeout);
    expect_directory(base_dir(), base_);
  }
  ASSERT_TRUE(apply());
}

// B-053: the journal does not fit: seen before the first weight byte.
TEST_F(ApplyDelta, FullStateDiskIsNoSpaceAndLeavesTheBase) {
  const TmpfsMount disk("64k");
  ASSERT_TRUE(disk.mounted()) << "this test mounts a tmpfs: run it as root";
  std::filesystem::permissions(disk.path(), std::filesystem::perms(0700));
  ApplyDeltaOptions options;
  options.state_dir = disk.path();
  const auto refused = apply(options);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kNoSpace);
  expect_directory(base_dir(), base_);
}

TEST_F(ApplyDelta, VerifyGivesTheRootAndFindsDifferences) {
  const auto base_root = verify_dir(base_dir(), {}, no_events);
  ASSERT_TRUE(base_root) << base_root.error().message();
  EXPECT_TRUE(base_root->matches);
  VerifyDirOptions options;
  options.root = base_root->root;
  EXPECT_TRUE(verify_dir(base_dir(), options, no_events)->matches);
  EXPECT_FALSE(verify_dir(target_dir(), options, no_events)->matches);

  VerifyDirOptions against;
  against.against_dir = target_dir();
  auto one_bit = base_;
  one_bit.begin()->second.front().bytes[20'001] ^= std::byte{1};
  write_directory(target_dir(), one_bit);
  const auto found = verify_dir(base_dir(), against, no_events);
  ASSERT_TRUE(found);
  EXPECT_FALSE(found->matches);
  EXPECT_EQ(found->different_elements, 1U);
  ASSERT_EQ(found->differences.size(), 1U);
  EXPECT_EQ(found->differences[0].tensor, "embed");
  EXPECT_EQ(found->differences[0].element, 10'000U);
  write_directory(target_dir(), base_);
  EXPECT_TRUE(verify_dir(base_dir(), against, no_events)->matches);
}

TEST_F(ApplyDelta, VerifyCountsTheDifferencesOfAllChunksOnEveryNumberOfThreads) {
  const TestCheckpoint large = make_checkpoint(12'000'000, 5);
  const TestCheckpoint other = change_elements(large, 0.01, 6);
  write_directory(base_dir(), large);
  write_directory(target_dir(), other);
  std::uint64_t different = 0;
  for (const auto& [file, tensors] : large) {
    for (std::size_t t = 0; t < tensors.size(); ++t) {
      const auto& before = tensors[t].bytes;
      const auto& after = other.at(file)[t].bytes;
      if (before.empty()) continue;
      std::uint64_t element_count = 1;
      for (const std::uint64_t extent : tensors[t].shape) element_count *= extent;
      const std::size_t width = before.size() / element_count;
      for (std::size_t e = 0; e < element_count; ++e) {
        different += !std::equal(&before[e * width], &before[e * width] + width, &after[e * width]);
      }
    }
  }
  VerifyDirOptions options;
  options.against_dir = target_dir();
  options.threads = 1;
  const auto alone = verify_dir(base_dir(), options, no_events);
  ASSERT_TRUE(alone) << alone.error().message();
  EXPECT_EQ(alone->different_elements, different);
  EXPECT_EQ(alone->root, verify_dir(base_dir(), {}, no_events)->root);
  options.threads = 4;
  const auto together = verify_dir(base_dir(), options, no_events);
  ASSERT_TRUE(together);
  EXPECT_EQ(together->different_elements, different);
  EXPECT_EQ(together->root, alone->root);
  ASSERT_EQ(together->differences.size(), alone->differences.size());
  for (std::size_t i = 0; i < alone->differences.size(); ++i) {
    EXPECT_EQ(together->differences[i].tensor, alone->differences[i].tensor);
    EXPECT_EQ(together->differences[i].element, alone->differences[i].element);
    EXPECT_EQ(together->differences[i].count, alone->differences[i].count);
  }
}

TEST_F(ApplyDelta, VerifyAgainstStopsWhenItIsAskedTo) {
  VerifyDirOptions options;
  options.against_dir = target_dir();
  options.on_progress = [](std::string_view, std::uint64_t, std::uint64_t) { return false; };
  const auto stopped = verify_dir(base_dir(), options, no_events);
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, ErrorCode::kTimeout);
}

}  // namespace
}  // namespace weft::apply
