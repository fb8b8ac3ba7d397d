// SPDX-License-Identifier: Apache-2.0
#include "apply/store/record_log.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <string>

#include "support/fault_store.hpp"
#include "support/memory_store.hpp"

namespace weft::apply {
namespace {

using test_support::Call;
using test_support::FaultPlan;
using test_support::MemoryDisk;
using test_support::Unsynced;
using test_support::wrap_with_faults;

constexpr RecordLogOptions kOptions{.log_kind = 7, .capacity_bytes = 4096};

std::vector<std::byte> text(std::string_view letters) {
  const auto bytes = std::as_bytes(std::span(letters));
  return {bytes.begin(), bytes.end()};
}

Status append_numbers(RecordLog& log, int first, int count) {
  for (int i = first; i < first + count; ++i) {
    WEFT_TRY_STATUS(log.append(static_cast<std::uint16_t>(i), text("record " + std::to_string(i))));
  }
  return ok();
}

void expect_numbers(const std::vector<LogRecord>& records, int count) {
  ASSERT_EQ(records.size(), static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) {
    EXPECT_EQ(records[static_cast<std::size_t>(i)].kind, i);
    EXPECT_EQ(records[static_cast<std::size_t>(i)].payload, text("record " + std::to_string(i)));
  }
}

// A disk whose log "log" holds `count` numbered records.
std::shared_ptr<MemoryDisk> disk_with_records(int count) {
  auto disk = MemoryDisk::make();
  auto store = disk->open();
  auto log = RecordLog::open(*store, "log", kOptions);
  EXPECT_TRUE(log);
  EXPECT_TRUE(append_numbers(*log, 0, count));
  return disk;
}

void change_byte(MemoryDisk& disk, std::uint64_t offset) {
  auto store = disk.open();
  auto file = *store->open("log", Access::kReadWrite);
  std::byte byte{};
  ASSERT_TRUE(file->read(offset, {&byte, 1}));
  byte ^= std::byte{0x40};
  ASSERT_TRUE(file->write(offset, {&byte, 1}));
}

TEST(RecordLog, GivesBackRecordsInOrderAfterReopening) {
  auto disk = disk_with_records(5);
  auto store = disk->open();
  auto log = RecordLog::open(*store, "log", kOptions);
  ASSERT_TRUE(log) << log.error().message();
  EXPECT_FALSE(log->created());
  EXPECT_EQ(log->cut_bytes(), 0U);
  expect_numbers(log->recovered(), 5);
}

TEST(RecordLog, EveryAcknowledgedRecordSurvivesAPowerCutAtAnyStep) {
  for (std::uint64_t step = 0;; ++step) {
    for (const Unsynced unsynced : {Unsynced::kDropped, Unsynced::kKept, Unsynced::kRandom}) {
      auto disk = MemoryDisk::make();
      auto plan = std::make_shared<FaultPlan>();
      plan->die_at(step);
      int acknowledged = 0;
      {
        auto store = wrap_with_faults(disk->open(), plan);
        auto log = RecordLog::open(*store, "log", kOptions);
        while (log && acknowledged < 3 && append_numbers(*log, acknowledged, 1)) ++acknowledged;
      }
      auto after = disk->power_cut(unsynced, step);
      auto store = after->open();
      auto log = RecordLog::open(*store, "log", kOptions);
      ASSERT_TRUE(log) << "step " << step << ": " << log.error().message();
      const int found = static_cast<int>(log->recovered().size());
      ASSERT_TRUE(found == acknowledged || found == acknowledged + 1) << "step " << step;
      expect_numbers(log->recovered(), found);
      ASSERT_TRUE(append_numbers(*log, found, 1));
      if (acknowledged == 3) return;
    }
  }
}

TEST(RecordLog, RewriteIsSeenWholeOrNotAtAllAfterAPowerCutAtAnyStep) {
  const std::vector<LogRecord> kept = {{0, text("record 0")}, {1, text("record 1")}};
  bool completed = false;
  for (std::uint64_t step = 0; !completed; ++step) {
    for (std::uint64_t seed = 0; seed < 8; ++seed) {
      auto disk = disk_with_records(6);
      auto plan = std::make_shared<FaultPlan>();
      plan->die_at(step);
      {
        auto store = wrap_with_faults(disk->open(), plan);
        auto log = RecordLog::open(*store, "log", kOptions);
        if (!log) continue;
        completed = static_cast<bool>(log->rewrite(kept));
      }
      auto after = disk->power_cut(Unsynced::kRandom, seed);
      auto store = after->open();
      auto log = RecordLog::open(*store, "log", kOptions);
      ASSERT_TRUE(log) << "step " << step << " seed " << seed << ": " << log.error().message();
      const auto found = log->recovered().size();
      ASSERT_TRUE(found == 2 || (found == 6 && !completed)) << found << " at step " << step;
      EXPECT_FALSE(after->exists("log.new"));
    }
  }
}

TEST(RecordLog, CutsOffATornLastRecordAndAppendsInItsPlace) {
  auto disk = disk_with_records(3);
  const std::uint64_t last = 64 + 2 * RecordLog::record_bytes(8);
  for (std::uint64_t at = last; at < last + 24 + 8; ++at) {
    auto torn = disk->power_cut(Unsynced::kKept);
    change_byte(*torn, at);
    auto store = torn->open();
    auto log = RecordLog::open(*store, "log", kOptions);
    ASSERT_TRUE(log) << log.error().message();
    expect_numbers(log->recovered(), 2);
    EXPECT_GT(log->cut_bytes(), 0U);
    ASSERT_TRUE(append_numbers(*log, 2, 1));
    auto again = RecordLog::open(*store, "log", kOptions);
    ASSERT_TRUE(again);
    expect_numbers(again->recovered(), 3);
    EXPECT_EQ(again->cut_bytes(), 0U);
  }
}

TEST(RecordLog, CutIsDurableBeforeTheNextAppend) {
  auto disk = disk_with_records(3);
  change_byte(*disk, 64 + 2 * RecordLog::record_bytes(8) + 25);
  auto plan = std::make_shared<FaultPlan>();
  auto store = wrap_with_faults(disk->open(), plan);
  ASSERT_TRUE(RecordLog::open(*store, "log", kOptions));
  auto after = disk->power_cut(Unsynced::kDropped);
  auto fresh = after->open();
  auto log = RecordLog::open(*fresh, "log", kOptions);
  ASSERT_TRUE(log);
  EXPECT_EQ(log->cut_bytes(), 0U);
  expect_numbers(log->recovered(), 2);
}

TEST(RecordLog, BadRecordBeforeAGoodOneIsUnreadable) {
  for (const std::uint64_t inside : {0U, 4U, 8U, 12U, 14U, 16U, 24U, 31U}) {
    auto disk = disk_with_records(3);
    change_byte(*disk, 64 + RecordLog::record_bytes(8) + inside);
    auto store = disk->open();
    const auto log = RecordLog::open(*store, "log", kOptions);
    ASSERT_FALSE(log) << inside;
    EXPECT_EQ(log.error().code, ErrorCode::kNeedsReseed);
  }
}

TEST(RecordLog, DamagedHeaderOrOtherKindIsUnreadable) {
  for (const std::uint64_t at : {0U, 8U, 12U, 16U, 40U, 56U}) {
    auto disk = disk_with_records(1);
    change_byte(*disk, at);
    auto store = disk->open();
    const auto log = RecordLog::open(*store, "log", kOptions);
    ASSERT_FALSE(log) << at;
    EXPECT_EQ(log.error().code, ErrorCode::kNeedsReseed);
  }
  auto disk = disk_with_records(1);
  auto store = disk->open();
  const auto other = RecordLog::open(*store, "log", {.log_kind = 8});
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, ErrorCode::kNeedsReseed);
}

TEST(RecordLog, TruncatedFileIsUnreadable) {
  auto disk = disk_with_records(1);
  auto store = disk->open();
  ASSERT_TRUE((*store->open("log", Access::kReadWrite))->truncate(1000));
  const auto log = RecordLog::open(*store, "log", kOptions);
  ASSERT_FALSE(log);
  EXPECT_EQ(log.error().code, ErrorCode::kNeedsReseed);
}

TEST(RecordLog, FullLogSaysSoAndGoesOnAfterARewrite) {
  auto disk = MemoryDisk::make();
  auto store = disk->open();
  auto log = RecordLog::open(*store, "log", kOptions);
  ASSERT_TRUE(log);
  Status status = ok();
  int count = 0;
  while (status = append_numbers(*log, count, 1), status) ++count;
  EXPECT_EQ(status.error().code, ErrorCode::kNoSpace);
  EXPECT_TRUE(log->half_full());
  ASSERT_TRUE(log->rewrite({}));
  EXPECT_FALSE(log->half_full());
  ASSERT_TRUE(append_numbers(*log, 0, 2));
  auto again = RecordLog::open(*store, "log", kOptions);
  ASSERT_TRUE(again);
  expect_numbers(again->recovered(), 2);
}

TEST(RecordLog, RewriteDoublesTheCapacityUntilItsMaximum) {
  auto disk = MemoryDisk::make();
  auto store = disk->open();
  auto log = RecordLog::open(*store, "log",
                             {.log_kind = 7, .capacity_bytes = 4096, .capacity_bytes_max = 16384});
  ASSERT_TRUE(log);
  ASSERT_TRUE(log->rewrite({{{1, std::vector<std::byte>(5000)}}}));
  EXPECT_EQ(log->capacity_bytes(), 16384U);
  const Status refused = log->rewrite({{{1, std::vector<std::byte>(9000)}}});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kResourceLimit);
  EXPECT_TRUE(log->append(2, text("still open")));
}

// A sync that failed once is never taken for one that succeeded.
TEST(RecordLog, FailedSyncClosesTheLogForWriting) {
  auto disk = MemoryDisk::make();
  auto plan = std::make_shared<FaultPlan>();
  auto store = wrap_with_faults(disk->open(), plan);
  auto log = RecordLog::open(*store, "log", kOptions);
  ASSERT_TRUE(log);
  plan->add({.call = Call::kSync, .name_part = "log", .native = EIO, .once = true});
  ASSERT_FALSE(append_numbers(*log, 0, 1));
  const Status later = append_numbers(*log, 0, 1);
  ASSERT_FALSE(later);
  EXPECT_EQ(later.error().code, ErrorCode::kIoFailed);
  EXPECT_FALSE(log->rewrite({}));
}

TEST(RecordLog, FullDiskWhileMakingOrRewritingLeavesTheOldLog) {
  auto disk = disk_with_records(2);
  disk->set_capacity(disk->used_bytes() + 1000);
  auto store = disk->open();
  auto log = RecordLog::open(*store, "log", kOptions);
  ASSERT_TRUE(log);
  const Status refused = log->rewrite({});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kNoSpace);
  EXPECT_TRUE(append_numbers(*log, 2, 1));  // allocated long before: no space is needed
  auto again = RecordLog::open(*store, "log", kOptions);
  ASSERT_TRUE(again);
  expect_numbers(again->recovered(), 3);
}

}  // namespace
}  // namespace weft::apply
