// SPDX-License-Identifier: Apache-2.0
// What only a real machine does: full disks, limits, links, a kernel that refuses io_uring.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <filesystem>

#include "apply/store/store.hpp"
#include "support/event_recorder.hpp"
#include "support/temp_directory.hpp"
#include "support/tmpfs_mount.hpp"

namespace weft::apply {
namespace {

using test_support::EventRecorder;
using test_support::TempDirectory;
using test_support::TmpfsMount;

NullEventSink no_events;

// Limits and filters of a process are tried in a process of their own, started afresh: the threads
// of earlier tests must not be half there.
template <typename Work>
void expect_zero_in_own_process(Work&& work) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(::_exit(work()), testing::ExitedWithCode(0), "");
}

std::unique_ptr<Store> open_at(const std::string& path, Engine engine) {
  auto store = open_store(path, {engine, Durability::kDisk}, no_events);
  EXPECT_TRUE(store) << store.error().message();
  return *std::move(store);
}

class OnBothEngines : public testing::TestWithParam<Engine> {};
INSTANTIATE_TEST_SUITE_P(Engines, OnBothEngines, testing::Values(Engine::kPosix, Engine::kUring));

// B-053: full is full; no signal, no endless retry. B-051: a write cut short by the limit goes on
// until the error.
TEST_P(OnBothEngines, FullDiskIsNoSpaceForWriteAllocateAndQueue) {
  const TmpfsMount disk("256k");
  ASSERT_TRUE(disk.mounted()) << "this test mounts a tmpfs: run it as root";
  auto store = open_at(disk.path(), GetParam());
  auto file = *store->create("f");
  const Status reserved = file->allocate(0, 1 << 20, true);
  ASSERT_FALSE(reserved);
  EXPECT_EQ(reserved.error().code, ErrorCode::kNoSpace);
  const Status written = file->write(0, std::vector<std::byte>(1 << 20));
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code, ErrorCode::kNoSpace);
  EXPECT_EQ(written.error().native, ENOSPC);

  auto queue = *store->open_queue({.depth = 1, .buffer_count = 1, .buffer_bytes = 1 << 20});
  auto second = *store->create("g");
  queue->post({IoRequest::Kind::kWrite, second.get(), 0, queue->buffer(0), 3});
  std::array<IoCompletion, 1> done;
  ASSERT_EQ(*queue->wait(done), 1U);
  ASSERT_FALSE(done[0].status);
  EXPECT_EQ(done[0].status.error().code, ErrorCode::kNoSpace);
}

TEST_P(OnBothEngines, FileSizeLimitIsAResourceLimitBehindAShortWrite) {
  const TempDirectory directory;
  const auto work = [&] {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{100'000, 100'000};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 1;
    auto store = open_store(directory.path(), {GetParam(), Durability::kDisk}, no_events);
    if (!store) return 2;
    auto file = (*store)->create("f");
    auto queue = (*store)->open_queue({.depth = 1, .buffer_count = 1, .buffer_bytes = 131072});
    if (!file || !queue) return 3;
    (*queue)->post({IoRequest::Kind::kWrite, file->get(), 0, (*queue)->buffer(0), 3});
    std::array<IoCompletion, 1> done;
    if (!(*queue)->wait(done) || done[0].status) return 4;
    if (done[0].status.error().code != ErrorCode::kResourceLimit) return 5;
    return *(*file)->size() == 100'000 ? 0 : 6;  // the first piece was written
  };
  expect_zero_in_own_process(work);
}

TEST_P(OnBothEngines, TooManyOpenFilesIsAResourceLimit) {
  const TempDirectory directory;
  const auto work = [&] {
    auto store = open_store(directory.path(), {GetParam(), Durability::kDisk}, no_events);
    if (!store) return 1;
    const rlimit limit{64, 64};
    ::setrlimit(RLIMIT_NOFILE, &limit);
    std::vector<std::unique_ptr<File>> files;
    for (int i = 0; i < 100; ++i) {
      auto file = (*store)->create("f" + std::to_string(i));
      if (!file) return file.error().code == ErrorCode::kResourceLimit ? 0 : 2;
      files.push_back(*std::move(file));
    }
    return 3;
  };
  expect_zero_in_own_process(work);
}

// B-090: whatever was planted under the name, the victim is unchanged.
TEST(StoreOnDisk, PlantedLinksAreDeniedAndTheirVictimsUnchanged) {
  const TempDirectory directory;
  const TempDirectory elsewhere;
  const std::vector<std::byte> secret(100, std::byte{7});
  test_support::write_file(elsewhere / "victim", secret);
  std::filesystem::create_symlink(elsewhere / "victim", directory / "link");
  std::filesystem::create_directory_symlink(elsewhere.path(), directory / "dir");
  std::filesystem::create_hard_link(elsewhere / "victim", directory / "hard");
  std::filesystem::create_symlink(elsewhere / "nothing", directory / "dangling");
  auto store = open_at(directory.path(), Engine::kAuto);
  for (const char* name : {"link", "dir/victim", "dangling", "hard"}) {
    EXPECT_FALSE(store->create(name)) << name;
    const auto opened = store->open(name, Access::kReadWrite);
    ASSERT_FALSE(opened) << name;
    EXPECT_EQ(opened.error().code, ErrorCode::kDenied) << name;
  }
  EXPECT_FALSE(store->open("link", Access::kRead));
  EXPECT_FALSE(store->try_lock("link", LockMode::kExclusive));
  EXPECT_FALSE(store->open_directory("dir", true));
  EXPECT_FALSE(store->open_directory("dir", false));
  EXPECT_FALSE(store->rename("hard", "dir/other"));
  ASSERT_TRUE(store->remove_tree("dir"));  // the link, not what it leads to
  EXPECT_EQ(test_support::read_file(elsewhere / "victim"), secret);
  EXPECT_FALSE(std::filesystem::exists(elsewhere / "nothing"));
}

TEST(StoreOnDisk, HeldDirectoryIsNotLedElsewhereByARename) {
  const TempDirectory directory;
  std::filesystem::create_directory(directory / "state");
  auto store = open_at(directory / "state", Engine::kAuto);
  std::filesystem::rename(directory / "state", directory / "moved");
  std::filesystem::create_directory(directory / "state");
  ASSERT_TRUE(store->create("f"));
  EXPECT_TRUE(std::filesystem::exists(directory / "moved/f"));
  EXPECT_FALSE(std::filesystem::exists(directory / "state/f"));
}

TEST(StoreOnDisk, ModesArePrivateWhateverTheUmask) {
  const TempDirectory directory;
  const mode_t former = ::umask(0);
  auto store = open_at(directory.path(), Engine::kAuto);
  ASSERT_TRUE(store->create("f"));
  ASSERT_TRUE(store->open_directory("d", true));
  ::umask(former);
  struct stat status {};
  ASSERT_EQ(::stat((directory / "f").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777U, 0600U);
  ASSERT_EQ(::stat((directory / "d").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777U, 0700U);
}

// B-090: a state directory that others can write to, or that is not ours.
TEST(StoreOnDisk, StateDirectoryOfOthersIsDenied) {
  const TempDirectory directory;
  auto store = open_at(directory.path(), Engine::kAuto);
  std::filesystem::create_directory(directory / "open");
  std::filesystem::permissions(directory / "open", std::filesystem::perms(0777));
  const auto open = store->open_directory("open", true);
  ASSERT_FALSE(open);
  EXPECT_EQ(open.error().code, ErrorCode::kDenied);
  std::filesystem::create_directory(directory / "foreign");
  ASSERT_EQ(::chown((directory / "foreign").c_str(), 65534, 65534), 0) << "run this test as root";
  const auto foreign = store->open_directory("foreign", true);
  ASSERT_FALSE(foreign);
  EXPECT_EQ(foreign.error().code, ErrorCode::kDenied);
}

TEST(StoreOnDisk, FifoNeitherHangsNorOpens) {
  const TempDirectory directory;
  ASSERT_EQ(::mkfifo((directory / "f").c_str(), 0600), 0);
  auto store = open_at(directory.path(), Engine::kAuto);
  for (const Access access : {Access::kRead, Access::kReadWrite}) {
    const auto opened = store->open("f", access);
    ASSERT_FALSE(opened);
    EXPECT_EQ(opened.error().code, ErrorCode::kDenied);
  }
}

// B-063: permissions count for whoever is not root.
TEST(StoreOnDisk, ReadOnlyFileIsDeniedForWriting) {
  const TempDirectory directory;
  test_support::write_file(directory / "f", std::vector<std::byte>(10));
  std::filesystem::permissions(directory.path(), std::filesystem::perms(0755));
  std::filesystem::permissions(directory / "f", std::filesystem::perms(0444));
  const auto work = [&] {
    if (::setuid(65534) != 0) return 1;
    auto store = open_store(directory.path(), {Engine::kPosix, Durability::kDisk}, no_events);
    if (!store) return 2;
    if (!(*store)->open("f", Access::kRead)) return 3;
    const auto opened = (*store)->open("f", Access::kReadWrite);
    if (opened || opened.error().code != ErrorCode::kDenied) return 4;
    const auto created = (*store)->create("g");
    return !created && created.error().code == ErrorCode::kDenied ? 0 : 5;
  };
  expect_zero_in_own_process(work);
}

int refuse_io_uring() {
  const std::array<sock_filter, 4> program{
      sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),  // the number of the call
      sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
      sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog filter{static_cast<unsigned short>(program.size()),
                          const_cast<sock_filter*>(program.data())};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return -1;
  return ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);
}

TEST(StoreOnDisk, WithoutIoUringAutoFallsBackAndSaysSoAndUringFails) {
  const TempDirectory directory;
  const auto work = [&] {
    if (refuse_io_uring() != 0) return 1;
    EventRecorder events;
    const auto fallback = open_store(directory.path(), {Engine::kAuto, Durability::kDisk}, events);
    if (!fallback || (*fallback)->engine() != "posix") return 2;
    if (events.times("io_uring_unavailable") != 1) return 3;
    if (!(*fallback)->open_queue({})) return 4;
    const auto refused = open_store(directory.path(), {Engine::kUring, Durability::kDisk}, events);
    return !refused && refused.error().code == ErrorCode::kUnsupported ? 0 : 5;
  };
  expect_zero_in_own_process(work);
}

// B-056: too little lockable memory: the same work without registered buffers, one warning.
TEST(StoreOnDisk, SmallMemlockLimitGoesUnregisteredAndSaysSo) {
  const TempDirectory directory;
  std::filesystem::permissions(directory.path(), std::filesystem::perms(0777));
  const auto work = [&] {
    const rlimit limit{64 * 1024, 64 * 1024};
    if (::setrlimit(RLIMIT_MEMLOCK, &limit) != 0 || ::setuid(65534) != 0) return 1;
    EventRecorder events;
    auto store = open_store(directory.path(), {Engine::kUring, Durability::kDisk}, events);
    if (!store) return 2;
    auto file = (*store)->create("f");
    auto queue = (*store)->open_queue({.depth = 4, .buffer_count = 4, .buffer_bytes = 1 << 20});
    if (!file || !queue) return 3;
    if (events.times("io_uring_buffers_unregistered") != 1) return 4;
    for (std::uint32_t i = 0; i < 4; ++i) {
      std::fill((*queue)->buffer(i).begin(), (*queue)->buffer(i).end(), std::byte{9});
      (*queue)->post(
          {IoRequest::Kind::kWrite, file->get(), std::uint64_t{i} << 20, (*queue)->buffer(i), i});
    }
    std::array<IoCompletion, 4> done;
    while ((*queue)->in_flight() > 0) {
      const auto count = (*queue)->wait(done);
      if (!count) return 5;
      for (std::size_t i = 0; i < *count; ++i) {
        if (!done[i].status) return 6;
      }
    }
    std::vector<std::byte> bytes(4 << 20);
    if (!(*file)->read(0, bytes)) return 7;
    return bytes == std::vector<std::byte>(4 << 20, std::byte{9}) ? 0 : 8;
  };
  expect_zero_in_own_process(work);
}

}  // namespace
}  // namespace weft::apply
