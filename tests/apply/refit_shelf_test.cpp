// SPDX-License-Identifier: Apache-2.0
#include "apply/journal/refit_shelf.hpp"

#include <gtest/gtest.h>

#include "support/checkpoint_files.hpp"
#include "support/memory_store.hpp"

namespace weft::apply {
namespace {

using test_support::MemoryDisk;
using test_support::write_whole;

RefitId refit(std::uint64_t epoch, std::uint32_t attempt = 1) {
  return {{epoch, ProcessId{1}}, attempt};
}

// Threads: one at a time.
class RefitShelfTest : public testing::Test {
 protected:
  void open(std::uint64_t budget_bytes, std::uint32_t retain_count) {
    budget_ = std::make_unique<DiskBudget>(budget_bytes);
    shelf_ = *RefitShelf::open(*store_, *budget_, retain_count);
  }
  // 100 bytes of spool and 200 of journal.
  void add(const RefitId& id) {
    auto spool = *shelf_->spools().open_directory(to_string(id), true);
    write_whole(*spool, "p0", std::vector<std::byte>(100));
    auto journal = *shelf_->journals().open_directory(to_string(id), true);
    write_whole(*journal, "records", std::vector<std::byte>(200));
    ASSERT_TRUE(shelf_->retain(id));
  }
  std::shared_ptr<MemoryDisk> disk_ = MemoryDisk::make();
  std::unique_ptr<Store> store_ = disk_->open();
  std::unique_ptr<DiskBudget> budget_;
  std::unique_ptr<RefitShelf> shelf_;
};

TEST_F(RefitShelfTest, KeepsTheLastOnesAndDropsTheOldest) {
  open(1 << 20, 2);
  for (std::uint64_t i = 1; i <= 4; ++i) add(refit(i));
  EXPECT_EQ(shelf_->retained(), (std::vector<RefitId>{refit(3), refit(4)}));
  EXPECT_EQ(*shelf_->list(), (std::vector<RefitId>{refit(3), refit(4)}));
  EXPECT_EQ(budget_->used_bytes(), 600U);
}

TEST_F(RefitShelfTest, OldestMakesRoomForWhatIsNew) {
  open(1000, 4);
  for (std::uint64_t i = 1; i <= 3; ++i) add(refit(i));
  ASSERT_TRUE(budget_->charge(150));
  EXPECT_EQ(shelf_->retained().size(), 2U);
  const Status refused = budget_->charge(900);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kNoSpace);
  EXPECT_TRUE(shelf_->retained().empty());
  EXPECT_TRUE(shelf_->list()->empty());
  EXPECT_EQ(budget_->used_bytes(), 150U);
}

TEST_F(RefitShelfTest, MoreThanTheWholeBudgetDropsNothing) {
  open(1000, 4);
  add(refit(1));
  EXPECT_FALSE(budget_->charge(1001));
  EXPECT_EQ(shelf_->retained().size(), 1U);
}

TEST_F(RefitShelfTest, DropRemovesWhatWasNeverRetainedToo) {
  open(1 << 20, 4);
  add(refit(1));
  ASSERT_TRUE(shelf_->spools().open_directory(to_string(refit(2)), true));
  EXPECT_EQ(shelf_->list()->size(), 2U);
  ASSERT_TRUE(shelf_->drop(refit(2)));
  ASSERT_TRUE(shelf_->drop(refit(1)));
  ASSERT_TRUE(shelf_->drop(refit(9)));
  EXPECT_TRUE(shelf_->list()->empty());
  EXPECT_EQ(budget_->used_bytes(), 0U);
}

}  // namespace
}  // namespace weft::apply
