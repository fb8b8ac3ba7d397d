// SPDX-License-Identifier: Apache-2.0
#include "apply/store/checkpoint_dir.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>

#include "support/checkpoint_files.hpp"
#include "support/fault_store.hpp"
#include "support/memory_store.hpp"
#include "support/temp_directory.hpp"
#include "weft/wire/digest.hpp"

namespace weft::apply {
namespace {

using namespace test_support;  // NOLINT(google-build-using-namespace)

NullEventSink no_events;
constexpr const char* kFirst = "model-00001-of-00002.safetensors";
constexpr const char* kSecond = "model-00002-of-00002.safetensors";

// A checkpoint on this machine's disk.
struct DiskCheckpoint {
  TempDirectory directory;
  TestCheckpoint content;
  explicit DiskCheckpoint(bool with_index = false) : content(make_checkpoint(100'000, 1)) {
    auto store = open_store(directory.path(), {}, no_events);
    write_checkpoint(**store, content, with_index);
  }
  Result<CheckpointDir> open(Access access = Access::kRead) const {
    return CheckpointDir::open_path(directory.path(), access, {}, no_events);
  }
};

TEST(CheckpointDir, ReadsEveryChunkAtItsPlace) {
  for (const bool with_index : {false, true}) {
    const DiskCheckpoint disk(with_index);
    const auto opened = disk.open();
    ASSERT_TRUE(opened) << opened.error().message();
    const auto lattice = codec::Lattice::default_for(opened->schema());
    ASSERT_TRUE(lattice);
    std::map<std::string, std::vector<std::byte>> found;
    for (std::uint32_t i = 0; i < lattice->chunk_count(); ++i) {
      const auto place = lattice->place(ChunkIndex{i});
      std::vector<std::byte> bytes(place.bytes());
      ASSERT_TRUE(opened->read(place, bytes));
      auto& tensor = found[opened->schema().tensor(place.tensor).name];
      tensor.insert(tensor.end(), bytes.begin(), bytes.end());
    }
    for (const auto& [file, tensors] : disk.content) {
      for (const TestTensor& tensor : tensors) EXPECT_EQ(found[tensor.name], tensor.bytes);
    }
  }
}

TEST(CheckpointDir, IndexedFileThatIsMissingIsInconsistent) {
  const DiskCheckpoint disk(true);
  std::filesystem::remove(disk.directory / kSecond);
  const auto opened = disk.open();
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, ErrorCode::kInconsistentCheckpoint);
}

TEST(CheckpointDir, EmptyDirectoryIsInconsistent) {
  const TempDirectory directory;
  const auto opened = CheckpointDir::open_path(directory.path(), Access::kRead, {}, no_events);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, ErrorCode::kInconsistentCheckpoint);
}

// B-011
TEST(CheckpointDir, FilesThatTheIndexDoesNotNameAreLeftAloneAndCounted) {
  const DiskCheckpoint disk(true);
  write_file(disk.directory / "consolidated.safetensors", std::vector<std::byte>(77));
  const auto opened = disk.open(Access::kReadWrite);
  ASSERT_TRUE(opened) << opened.error().message();
  EXPECT_EQ(opened->file_count(), 2U);
  EXPECT_EQ(opened->warnings().size(), 1U);
}

// B-087, B-090
TEST(CheckpointDir, LinkedShardIsDenied) {
  const DiskCheckpoint disk;
  const TempDirectory elsewhere;
  std::filesystem::rename(disk.directory / kFirst, elsewhere / "f");
  std::filesystem::create_symlink(elsewhere / "f", disk.directory / kFirst);
  const auto opened = disk.open();
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, ErrorCode::kDenied);
}

TEST(CheckpointDir, HardLinkedShardIsReadButNotWritten) {
  const DiskCheckpoint disk;
  const TempDirectory elsewhere;
  std::filesystem::create_hard_link(disk.directory / kFirst, elsewhere / "f");
  EXPECT_TRUE(disk.open());
  const auto writing = disk.open(Access::kReadWrite);
  ASSERT_FALSE(writing);
  EXPECT_EQ(writing.error().code, ErrorCode::kDenied);
}

// B-013: none of these may end in a signal, or unseen.
TEST(CheckpointDir, EveryChangeBeneathAnOpenCheckpointIsConcurrentModification) {
  enum class How { kTruncate, kRewrite, kReplace, kRemove, kGrow };
  for (const How how : {How::kTruncate, How::kRewrite, How::kReplace, How::kRemove, How::kGrow}) {
    const DiskCheckpoint disk;
    const auto opened = disk.open();
    ASSERT_TRUE(opened);
    ASSERT_TRUE(opened->check_identity());
    const std::string path = disk.directory / kSecond;
    const auto bytes = read_file(path);
    switch (how) {
      case How::kTruncate:
        std::filesystem::resize_file(path, bytes.size() / 2);
        break;
      case How::kRewrite:
        write_file(path, bytes);
        break;
      case How::kReplace:
        write_file(disk.directory / "fresh", bytes);
        std::filesystem::rename(disk.directory / "fresh", path);
        break;
      case How::kRemove:
        std::filesystem::remove(path);
        break;
      case How::kGrow:
        std::filesystem::resize_file(path, bytes.size() + 1);
        break;
    }
    const Status status = opened->check_identity();
    ASSERT_FALSE(status) << static_cast<int>(how);
    EXPECT_EQ(status.error().code, ErrorCode::kConcurrentModification) << static_cast<int>(how);
  }
}

// B-076: times tell nothing; a file is what its identity and its digest say.
TEST(CheckpointDir, AWriteWhoseTimeWasPutBackIsSeen) {
  const DiskCheckpoint disk;
  const auto opened = disk.open();
  ASSERT_TRUE(opened);
  const std::string path = disk.directory / kSecond;
  const auto written = std::filesystem::last_write_time(path);
  auto bytes = read_file(path);
  bytes.back() ^= std::byte{1};
  write_file(path, bytes);
  std::filesystem::last_write_time(path, written);
  const Status status = opened->check_identity();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kConcurrentModification);
}

TEST(CheckpointDir, FilesFromTheFutureAreLikeOthers) {
  const DiskCheckpoint disk;
  const auto tomorrow = std::filesystem::file_time_type::clock::now() + std::chrono::hours(24);
  for (const char* const name : {kFirst, kSecond}) {
    std::filesystem::last_write_time(disk.directory / name, tomorrow);
  }
  const auto opened = disk.open();
  ASSERT_TRUE(opened);
  EXPECT_TRUE(opened->check_identity());
}

TEST(CheckpointDir, ReadOfAChunkThatWasCutOffIsConcurrentModification) {
  const DiskCheckpoint disk;
  const auto opened = disk.open();
  ASSERT_TRUE(opened);
  std::filesystem::resize_file(disk.directory / kFirst, 300);
  const auto lattice = codec::Lattice::default_for(opened->schema());
  const auto place = lattice->place(ChunkIndex{0});
  std::vector<std::byte> bytes(place.bytes());
  const Status status = opened->read(place, bytes);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kConcurrentModification);
}

// B-033: the writer of the checkpoint is still at work.
TEST(CheckpointDir, TruncatedShardIsAFormatError) {
  const DiskCheckpoint disk(true);
  const std::string path = disk.directory / kSecond;
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 2);
  const auto opened = disk.open();
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, ErrorCode::kFormat);
}

// B-063
TEST(CheckpointDir, OpenForWritingFindsARefusalBeforeAnythingIsWritten) {
  auto disk = MemoryDisk::make();
  auto plan = std::make_shared<FaultPlan>();
  write_checkpoint(*disk->open(), make_checkpoint(50'000, 1), false);
  auto opened = CheckpointDir::open(wrap_with_faults(disk->open(), plan), Access::kRead);
  ASSERT_TRUE(opened);
  for (const int native : {EACCES, EROFS, EPERM}) {
    plan->clear();
    plan->add({.call = Call::kOpen, .name_part = kSecond, .native = native});
    const Status status = opened->open_for_writing();
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, ErrorCode::kDenied);
    EXPECT_FALSE(opened->writable());
  }
  plan->clear();
  EXPECT_TRUE(opened->open_for_writing());
  EXPECT_TRUE(opened->open_for_writing());
  EXPECT_TRUE(opened->writable());
  EXPECT_TRUE(opened->check_identity());
  EXPECT_EQ(plan->steps(), 0U);
}

TEST(CheckpointDir, OpenForWritingRefusesAFileThatWasReplaced) {
  const DiskCheckpoint disk;
  auto opened = disk.open();
  ASSERT_TRUE(opened);
  const auto bytes = read_file(disk.directory / kSecond);
  std::filesystem::remove(disk.directory / kSecond);
  write_file(disk.directory / kSecond, bytes);
  const Status status = opened->open_for_writing();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kConcurrentModification);
}

// B-053: a sparse file gets its blocks before the vote, not while it is patched.
TEST(CheckpointDir, HolesGetBlocksWhenItIsOpenedForWriting) {
  const DiskCheckpoint disk;
  const std::string path = disk.directory / kFirst;
  const auto bytes = read_file(path);
  std::filesystem::remove(path);
  {
    auto store = open_store(disk.directory.path(), {}, no_events);
    auto file = *(*store)->create(kFirst);
    ASSERT_TRUE(file->write(0, std::span(bytes).first(4096)));
    ASSERT_TRUE(file->truncate(bytes.size()));
    EXPECT_TRUE(*file->has_holes());
  }
  auto opened = disk.open();
  ASSERT_TRUE(opened) << opened.error().message();
  ASSERT_TRUE(opened->open_for_writing());
  ASSERT_TRUE(opened->check_identity());
  struct stat status {};
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  EXPECT_EQ(static_cast<std::size_t>(status.st_size), bytes.size());
  EXPECT_GE(static_cast<std::size_t>(status.st_blocks) * 512, bytes.size());
}

TEST(CheckpointDir, OpensAThousandFilesWhateverTheSoftLimit) {
  const TempDirectory directory;
  TestCheckpoint checkpoint;
  constexpr int kFiles = 1000;
  constexpr int kTensorsPerFile = 200;
  for (int i = 0; i < kFiles; ++i) {
    auto& tensors = checkpoint["model-" + std::to_string(10'000 + i) + ".safetensors"];
    for (int j = 0; j < kTensorsPerFile; ++j) {
      tensors.push_back({"layer." + std::to_string(i) + "." + std::to_string(j),
                         "BF16",
                         {2},
                         std::vector<std::byte>(4)});
    }
  }
  {
    auto store = open_store(directory.path(), {Engine::kPosix, Durability::kProcess}, no_events);
    write_checkpoint(**store, checkpoint, true);
  }
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit low = before;
  low.rlim_cur = 256;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  const auto start = std::chrono::steady_clock::now();
  const auto opened = CheckpointDir::open_path(directory.path(), Access::kRead, {}, no_events);
  const auto spent = std::chrono::steady_clock::now() - start;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_TRUE(opened) << opened.error().message();
  EXPECT_EQ(opened->file_count(), 1000U);
  EXPECT_EQ(opened->schema().tensors().size(), 200'000U);
  // Far more than it takes; a quadratic step would take minutes.
  EXPECT_LT(spent, std::chrono::seconds(30));
}

}  // namespace
}  // namespace weft::apply
