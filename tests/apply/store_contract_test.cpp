// SPDX-License-Identifier: Apache-2.0
// One suite for every store: memory, posix and io_uring.
#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <map>
#include <numeric>

#include "apply/store/store.hpp"
#include "support/event_recorder.hpp"
#include "support/memory_store.hpp"
#include "support/temp_directory.hpp"

namespace weft::apply {
namespace {

using test_support::EventRecorder;
using test_support::MemoryDisk;
using test_support::TempDirectory;

std::vector<std::byte> pattern(std::size_t bytes, unsigned seed = 1) {
  std::vector<std::byte> made(bytes);
  unsigned value = seed;
  for (std::byte& byte : made)
    byte = static_cast<std::byte>((value = value * 1103515245 + 12345) >> 16);
  return made;
}

// Threads: one at a time.
class MemoryPlace {
 public:
  std::unique_ptr<Store> open() { return disk_->open(); }

 private:
  std::shared_ptr<MemoryDisk> disk_ = MemoryDisk::make();
};

// Threads: one at a time.
template <Engine kEngine>
class DiskPlace {
 public:
  std::unique_ptr<Store> open() {
    auto store = open_store(directory_.path(), {kEngine, Durability::kDisk}, events_);
    EXPECT_TRUE(store) << store.error().message();
    return *std::move(store);
  }

 private:
  TempDirectory directory_;
  EventRecorder events_;
};

template <typename Place>
class StoreContract : public testing::Test {
 protected:
  StoreContract() : store_(place_.open()) {}
  std::unique_ptr<File> make_file(std::string_view name, std::span<const std::byte> bytes) {
    auto file = store_->create(name);
    EXPECT_TRUE(file);
    EXPECT_TRUE((*file)->write(0, bytes));
    return *std::move(file);
  }
  Place place_;
  std::unique_ptr<Store> store_;
};

using Places = testing::Types<MemoryPlace, DiskPlace<Engine::kPosix>, DiskPlace<Engine::kUring>>;
TYPED_TEST_SUITE(StoreContract, Places);

TYPED_TEST(StoreContract, ReadsBackWhatWasWrittenAtOffsets) {
  auto file = this->make_file("f", pattern(10'000));
  ASSERT_TRUE(file->write(5'001, pattern(9'000, 2)));
  std::vector<std::byte> bytes(14'001);
  ASSERT_TRUE(file->read(0, bytes));
  const auto first = pattern(10'000);
  const auto second = pattern(9'000, 2);
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.begin() + 5'001, first.begin()));
  EXPECT_TRUE(std::equal(bytes.begin() + 5'001, bytes.end(), second.begin()));
  EXPECT_EQ(*file->size(), 14'001U);
}

TYPED_TEST(StoreContract, ReadPastTheEndIsConcurrentModification) {
  auto file = this->make_file("f", pattern(100));
  std::vector<std::byte> bytes(101);
  const Status status = file->read(0, bytes);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kConcurrentModification);
  EXPECT_EQ(*file->read_up_to(0, bytes), 100U);
  EXPECT_EQ(*file->read_up_to(200, bytes), 0U);
}

TYPED_TEST(StoreContract, CreateRefusesAnExistingName) {
  this->make_file("f", pattern(10));
  const auto again = this->store_->create("f");
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, ErrorCode::kDenied);
  EXPECT_TRUE(is_existing(again.error()));
}

TYPED_TEST(StoreContract, OpenOfAMissingNameSaysSo) {
  const auto file = this->store_->open("nothing", Access::kRead);
  ASSERT_FALSE(file);
  EXPECT_TRUE(is_missing(file.error()));
}

// B-087
TYPED_TEST(StoreContract, RefusesEveryNameThatCouldLeadElsewhere) {
  const std::string with_nul("a\0b", 3);
  for (const std::string& name :
       {std::string("../f"), std::string("/tmp/f"), std::string("a/../../f"), std::string("./f"),
        std::string(""), std::string("a//b"), std::string("a/"), with_nul, std::string(300, 'x')}) {
    const auto opened = this->store_->open(name, Access::kRead);
    ASSERT_FALSE(opened) << name;
    EXPECT_EQ(opened.error().code, ErrorCode::kDenied) << name;
    const auto created = this->store_->create(name);
    ASSERT_FALSE(created) << name;
    EXPECT_EQ(created.error().code, ErrorCode::kDenied) << name;
    EXPECT_FALSE(this->store_->remove(name)) << name;
    EXPECT_FALSE(this->store_->remove_tree(name)) << name;
    EXPECT_FALSE(this->store_->open_directory(name, true)) << name;
  }
}

TYPED_TEST(StoreContract, RenameReplacesAndListShowsIt) {
  this->make_file("old", pattern(10));
  this->make_file("new", pattern(20, 2));
  ASSERT_TRUE(this->store_->rename("new", "old"));
  ASSERT_TRUE(this->store_->sync_directory());
  const auto entries = *this->store_->list();
  ASSERT_EQ(entries.size(), 1U);
  EXPECT_EQ(entries[0].name, "old");
  EXPECT_TRUE(entries[0].is_file);
  EXPECT_EQ(*(*this->store_->open("old", Access::kRead))->size(), 20U);
}

TYPED_TEST(StoreContract, RemoveTreeTakesAllThatIsBelowAndIsContentWithNothing) {
  auto below = *this->store_->open_directory("a", true);
  auto deeper = *below->open_directory("b", true);
  ASSERT_TRUE(deeper->create("f"));
  ASSERT_TRUE(below->create("g"));
  ASSERT_TRUE(this->store_->open("a/b/f", Access::kRead));
  ASSERT_TRUE(this->store_->remove_tree("a"));
  EXPECT_TRUE(this->store_->list()->empty());
  EXPECT_TRUE(this->store_->remove_tree("a"));
  EXPECT_TRUE(this->store_->remove_tree("a/b/c"));
}

TYPED_TEST(StoreContract, AllocateGrowsOrKeepsTheSizeAndReadsAsZeros) {
  auto file = this->make_file("f", pattern(10));
  ASSERT_TRUE(file->allocate(0, 5'000, false));
  EXPECT_EQ(*file->size(), 10U);
  ASSERT_TRUE(file->allocate(0, 8'000, true));
  EXPECT_EQ(*file->size(), 8'000U);
  std::vector<std::byte> bytes(8'000);
  ASSERT_TRUE(file->read(0, bytes));
  EXPECT_EQ(bytes[9], pattern(10)[9]);
  EXPECT_EQ(bytes[10], std::byte{0});
  EXPECT_EQ(bytes[7'999], std::byte{0});
  ASSERT_TRUE(file->truncate(3));
  EXPECT_EQ(*file->size(), 3U);
}

TYPED_TEST(StoreContract, IdentityChangesWithContentAndDiffersBetweenFiles) {
  auto file = this->make_file("f", pattern(10));
  auto other = this->make_file("g", pattern(10));
  const FileIdentity before = *file->identity();
  EXPECT_EQ(before, *file->identity());
  EXPECT_EQ(before, *this->store_->identity("f"));
  EXPECT_NE(before.inode, other->identity()->inode);
  ASSERT_TRUE(file->truncate(9));
  EXPECT_NE(before, *file->identity());
}

TYPED_TEST(StoreContract, ExclusiveLockKeepsOthersOutUntilItIsDropped) {
  auto other = this->place_.open();
  {
    const auto held = this->store_->try_lock("l", LockMode::kExclusive);
    ASSERT_TRUE(held);
    for (const LockMode mode : {LockMode::kExclusive, LockMode::kShared}) {
      const auto refused = other->try_lock("l", mode);
      ASSERT_FALSE(refused);
      EXPECT_EQ(refused.error().code, ErrorCode::kBusy);
    }
  }
  const auto first = this->store_->try_lock("l", LockMode::kShared);
  const auto second = other->try_lock("l", LockMode::kShared);
  EXPECT_TRUE(first);
  EXPECT_TRUE(second);
  EXPECT_FALSE(other->try_lock("l", LockMode::kExclusive));
}

TYPED_TEST(StoreContract, QueueCompletesEveryRequestOnceWithItsToken) {
  const auto bytes = pattern(300'000);
  auto file = this->make_file("f", bytes);
  auto queue = *this->store_->open_queue({.depth = 4, .buffer_count = 4, .buffer_bytes = 8192});
  ASSERT_EQ(queue->depth(), 4U);
  std::map<std::uint64_t, int> seen;
  std::uint64_t next = 0;
  constexpr std::uint64_t kCount = 36;
  std::array<IoCompletion, 8> done;
  while (seen.size() < kCount) {
    while (next < kCount && queue->in_flight() < 4) {
      // A token holds its buffer until its completion: 4 in flight, 4 buffers, in any order.
      static std::array<std::uint64_t, 4> holder;
      const auto free = static_cast<std::uint32_t>(next % 4);
      if (next >= 4 && !seen.contains(holder[free])) break;
      holder[free] = next;
      queue->post({IoRequest::Kind::kRead, file.get(), next * 8192, queue->buffer(free), next});
      ++next;
    }
    const auto count = queue->wait(done);
    ASSERT_TRUE(count);
    for (std::size_t i = 0; i < *count; ++i) {
      ASSERT_TRUE(done[i].status) << done[i].status.error().message();
      const std::uint64_t token = done[i].token;
      EXPECT_EQ(++seen[token], 1);
      const auto buffer = queue->buffer(static_cast<std::uint32_t>(token % 4));
      EXPECT_TRUE(std::equal(buffer.begin(), buffer.end(),
                             bytes.begin() + static_cast<std::ptrdiff_t>(token * 8192)));
    }
  }
  EXPECT_EQ(queue->in_flight(), 0U);
}

TYPED_TEST(StoreContract, QueueWritesPartsOfItsBuffersAndForeignMemory) {
  auto file = this->make_file("f", pattern(20'000));
  auto queue = *this->store_->open_queue({.depth = 2, .buffer_count = 1, .buffer_bytes = 4096});
  auto own = queue->buffer(0).subspan(100, 3'001);
  const auto own_bytes = pattern(3'001, 7);
  std::copy(own_bytes.begin(), own_bytes.end(), own.begin());
  auto foreign = pattern(5'003, 9);
  queue->post({IoRequest::Kind::kWrite, file.get(), 7, own, 1});
  queue->post({IoRequest::Kind::kWrite, file.get(), 9'001, foreign, 2});
  std::array<IoCompletion, 2> done;
  while (queue->in_flight() > 0) {
    const auto count = queue->wait(done);
    ASSERT_TRUE(count);
    for (std::size_t i = 0; i < *count; ++i) EXPECT_TRUE(done[i].status);
  }
  auto expected = pattern(20'000);
  std::copy(own_bytes.begin(), own_bytes.end(), expected.begin() + 7);
  std::copy(foreign.begin(), foreign.end(), expected.begin() + 9'001);
  std::vector<std::byte> found(20'000);
  ASSERT_TRUE(file->read(0, found));
  EXPECT_EQ(found, expected);
}

TYPED_TEST(StoreContract, QueueReportsAReadBehindTheEndInItsCompletion) {
  auto file = this->make_file("f", pattern(100));
  auto queue = *this->store_->open_queue({.depth = 1, .buffer_count = 1, .buffer_bytes = 4096});
  queue->post({IoRequest::Kind::kRead, file.get(), 50, queue->buffer(0), 5});
  std::array<IoCompletion, 1> done;
  ASSERT_EQ(*queue->wait(done), 1U);
  ASSERT_FALSE(done[0].status);
  EXPECT_EQ(done[0].status.error().code, ErrorCode::kConcurrentModification);
}

TYPED_TEST(StoreContract, DroppedQueueWaitsForWhatIsInFlight) {
  auto file = this->make_file("f", pattern(1'000'000));
  auto queue = *this->store_->open_queue({.depth = 8, .buffer_count = 8, .buffer_bytes = 65536});
  for (std::uint32_t i = 0; i < 8; ++i) {
    queue->post({IoRequest::Kind::kRead, file.get(), i * 65536, queue->buffer(i), i});
  }
  queue.reset();  // a sanitizer would see the kernel write into freed memory
}

}  // namespace
}  // namespace weft::apply
