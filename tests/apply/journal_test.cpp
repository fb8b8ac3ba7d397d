// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cerrno>

#include "apply/journal/journal_layout.hpp"
#include "apply/journal/journal_reader.hpp"
#include "support/checkpoint_files.hpp"
#include "support/fault_store.hpp"
#include "support/journal_builder.hpp"
#include "support/memory_store.hpp"

namespace weft::apply {
namespace {

using namespace test_support;  // NOLINT(google-build-using-namespace)

// A schema with one big tensor, and records for parts of it in any order.
// Threads: one at a time.
class JournalFixture : public testing::Test {
 protected:
  JournalFixture() {
    base_ = make_checkpoint(1'200'000, 1);
    target_ = change_elements(base_, 0.02, 2);
    auto weights = disk_->open()->open_directory("weights", true);
    write_checkpoint(**weights, base_, false);
    auto checkpoint = CheckpointDir::open(*std::move(weights), Access::kRead);
    schema_ = checkpoint->schema();
    journals_ = *disk_->open()->open_directory("journal", true);
    EXPECT_TRUE(disk_->open()->sync_directory());
  }
  Status write(std::uint64_t seed = 0, Store* store = nullptr) {
    return write_journal(store == nullptr ? *journals_ : *store, schema_, base_, target_, seed);
  }
  Result<std::unique_ptr<JournalReader>> read() {
    return JournalReader::open(*journals_, test_refit(), schema_);
  }
  std::string path(std::string_view name) const {
    return to_string(test_refit()) + "/" + std::string(name);
  }
  void flip(std::string_view name, std::uint64_t offset) {
    auto file = *journals_->open(path(name), Access::kReadWrite);
    std::byte byte{};
    ASSERT_TRUE(file->read(offset, {&byte, 1}));
    byte ^= std::byte{16};
    ASSERT_TRUE(file->write(offset, {&byte, 1}));
  }

  std::shared_ptr<MemoryDisk> disk_ = MemoryDisk::make();
  TestCheckpoint base_;
  TestCheckpoint target_;
  codec::Schema schema_;
  std::unique_ptr<Store> journals_;
};

TEST_F(JournalFixture, CursorGivesEveryRecordInTheOrderOfAddresses) {
  ASSERT_TRUE(write(7));
  const auto reader = read();
  ASSERT_TRUE(reader) << reader.error().message();
  auto cursor = (*reader)->cursor();
  std::uint64_t count = 0;
  std::uint64_t end = 0;
  std::vector<std::byte> record;
  while (true) {
    const auto entry = cursor.next();
    ASSERT_TRUE(entry) << entry.error().message();
    if (!*entry) break;
    EXPECT_GE((*entry)->address, end);
    end = (*entry)->address + (*entry)->bytes;
    ASSERT_TRUE((*reader)->read_record(**entry, record));
    ++count;
  }
  EXPECT_EQ(count, (*reader)->record_count());
  EXPECT_GT(count, 4U);
}

// Runs are merged: more records than one run holds, in the worst order.
TEST(JournalCursor, MergesManyRuns) {
  auto disk = MemoryDisk::make();
  auto weights = *disk->open()->open_directory("weights", true);
  constexpr std::uint32_t kRecords = kJournalRunEntries * 2 + 100;
  TestCheckpoint checkpoint;
  checkpoint["m.safetensors"] = {
      {"t", "U8", {kRecords * 8ULL}, std::vector<std::byte>(kRecords * 8ULL)}};
  write_checkpoint(*weights, checkpoint, false);
  const auto opened = CheckpointDir::open(std::move(weights), Access::kRead);
  ASSERT_TRUE(opened);
  auto journals = *disk->open()->open_directory("journal", true);
  DiskBudget budget(1ULL << 40);
  auto writer = JournalWriter::open(*journals, test_refit(), opened->schema(), budget);
  ASSERT_TRUE(writer);
  const std::vector<std::byte> bytes(8, std::byte{3});
  const std::vector<std::uint32_t> changed = {2};
  std::vector<std::byte> record;
  for (std::uint32_t i = 0; i < kRecords; ++i) {
    const std::uint32_t place = (i * 7919U) % kRecords;  // every place once, in no order
    record.clear();
    encode_record(TensorIndex{0}, place * 8ULL, 1, changed, bytes, record);
    ASSERT_TRUE((*writer)->append(record));
  }
  const auto lattice = codec::Lattice::default_for(opened->schema());
  wire::Manifest manifest;
  manifest.refit = test_refit();
  ASSERT_TRUE((*writer)->seal(manifest, *lattice, codec::DigestTable(lattice->chunk_count())));
  const auto reader = JournalReader::open(*journals, test_refit(), opened->schema());
  ASSERT_TRUE(reader);
  auto cursor = (*reader)->cursor();
  std::uint64_t expected =
      *(*opened->store().open("m.safetensors", Access::kRead))->size() - kRecords * 8ULL;
  for (std::uint32_t i = 0; i < kRecords; ++i, expected += 8) {
    const auto entry = cursor.next();
    ASSERT_TRUE(entry && *entry);
    ASSERT_EQ((*entry)->address, expected);
  }
  EXPECT_FALSE(*cursor.next());
}

TEST_F(JournalFixture, CarriesManifestAndTable) {
  ASSERT_TRUE(write());
  const auto reader = read();
  ASSERT_TRUE(reader);
  const auto lattice = codec::Lattice::default_for(schema_);
  const auto table = (*reader)->table(*lattice);
  ASSERT_TRUE(table) << table.error().message();
  EXPECT_EQ(table->root(*lattice), (*reader)->manifest().target.root);
}

TEST_F(JournalFixture, MissingUnsealedOrDamagedAsksForAReseed) {
  const auto missing = read();
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::kNeedsReseed);
  for (const std::string_view name : {kSealName, kIndexName}) {
    for (const std::uint64_t offset : {0U, 9U, 21U}) {
      ASSERT_TRUE(write());
      flip(name, offset);
      const auto damaged = read();
      ASSERT_FALSE(damaged) << name << offset;
      EXPECT_EQ(damaged.error().code, ErrorCode::kNeedsReseed);
    }
  }
  ASSERT_TRUE(write());
  ASSERT_TRUE(journals_->remove(path(kSealName)));
  EXPECT_EQ(read().error().code, ErrorCode::kNeedsReseed);
  ASSERT_TRUE(write());
  flip(kTableName, 30);
  const auto reader = read();
  ASSERT_TRUE(reader);
  EXPECT_EQ((*reader)->table(*codec::Lattice::default_for(schema_)).error().code,
            ErrorCode::kNeedsReseed);
}

TEST_F(JournalFixture, IsRefusedForAnotherSchema) {
  ASSERT_TRUE(write());
  auto weights = *disk_->open()->open_directory("other", true);
  write_checkpoint(*weights, make_checkpoint(900'000, 1), false);
  const auto other = CheckpointDir::open(std::move(weights), Access::kRead);
  const auto reader = JournalReader::open(*journals_, test_refit(), other->schema());
  ASSERT_FALSE(reader);
  EXPECT_EQ(reader.error().code, ErrorCode::kSchemaChanged);
}

// B-055, B-061: what seal() has answered survives; what it has not, does not count.
TEST_F(JournalFixture, PowerCutAtAnyStepLeavesASealedJournalOrNone) {
  bool completed = false;
  for (std::uint64_t step = 0; !completed; ++step) {
    for (const Unsynced unsynced : {Unsynced::kDropped, Unsynced::kRandom, Unsynced::kKept}) {
      auto plan = std::make_shared<FaultPlan>();
      ASSERT_TRUE(journals_->remove_tree(to_string(test_refit())));
      ASSERT_TRUE(journals_->sync_directory());
      auto faulty = wrap_with_faults(*disk_->open()->open_directory("journal", false), plan);
      plan->die_at(step);
      completed = static_cast<bool>(write(0, faulty.get()));
      auto after = disk_->power_cut(unsynced, step);
      auto journals = after->open()->open_directory("journal", false);
      ASSERT_TRUE(journals);
      const auto reader = JournalReader::open(**journals, test_refit(), schema_);
      if (completed) {
        ASSERT_TRUE(reader) << reader.error().message();
      }
      if (!reader) {
        EXPECT_EQ(reader.error().code, ErrorCode::kNeedsReseed);
        continue;
      }
      auto cursor = (*reader)->cursor();
      std::vector<std::byte> record;
      while (true) {
        const auto entry = cursor.next();
        ASSERT_TRUE(entry);
        if (!*entry) break;
        ASSERT_TRUE((*reader)->read_record(**entry, record)) << "step " << step;
      }
    }
  }
}

// The order that makes it so: data before the seal, each synced.
TEST_F(JournalFixture, SealIsWrittenAfterEverythingElseIsSynced) {
  auto plan = std::make_shared<FaultPlan>();
  auto traced = wrap_with_faults(*disk_->open()->open_directory("journal", false), plan);
  ASSERT_TRUE(write(0, traced.get()));
  const auto trace = plan->trace();
  const auto place = [&](const std::string& call) {
    const auto found = std::find(trace.begin(), trace.end(), call);
    EXPECT_NE(found, trace.end()) << call;
    return found - trace.begin();
  };
  for (const std::string name : {"records", "index", "table"}) {
    EXPECT_LT(place("sync " + path(name).substr(path(name).rfind('/') + 1)), place("create seal"));
  }
  EXPECT_LT(place("write seal"), place("sync seal"));
  EXPECT_EQ(trace.back(), "sync_directory ");
}

TEST_F(JournalFixture, FullDiskShowsWhileRecordsAreAppended) {
  disk_->set_capacity(disk_->used_bytes() + 4'000);
  const Status status = write();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kNoSpace);
  EXPECT_FALSE(read());
  ASSERT_TRUE(remove_journal(*journals_, test_refit()));
  EXPECT_TRUE(list_refits(*journals_)->empty());
}

TEST_F(JournalFixture, BudgetBoundsRecordsAndIsGivenBack) {
  DiskBudget budget(500);
  auto writer = JournalWriter::open(*journals_, test_refit(), schema_, budget);
  ASSERT_TRUE(writer);
  std::vector<std::byte> record;
  const std::vector<std::uint32_t> changed = {1};
  encode_record(TensorIndex{0}, 0, 2, changed, std::vector<std::byte>(64), record);
  Status status = ok();
  int count = 0;
  while (status = (*writer)->append(record), status) ++count;
  EXPECT_EQ(status.error().code, ErrorCode::kNoSpace);
  EXPECT_GT(count, 2);
  writer->reset();
  EXPECT_EQ(budget.used_bytes(), 0U);
}

TEST_F(JournalFixture, FailedSyncIsNeverTakenForALaterSuccess) {
  auto plan = std::make_shared<FaultPlan>();
  auto faulty = wrap_with_faults(*disk_->open()->open_directory("journal", false), plan);
  DiskBudget budget(1ULL << 40);
  const auto lattice = codec::Lattice::default_for(schema_);
  auto writer = JournalWriter::open(*faulty, test_refit(), schema_, budget);
  ASSERT_TRUE(writer);
  plan->add({.call = Call::kSync, .name_part = "records", .native = EIO, .once = true});
  wire::Manifest manifest;
  manifest.refit = test_refit();
  const codec::DigestTable table(lattice->chunk_count());
  for (int attempt = 0; attempt < 2; ++attempt) {
    const Status status = (*writer)->seal(manifest, *lattice, table);
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, ErrorCode::kIoFailed);
  }
}

TEST(RefitName, IsReadBackAndNothingElseIs) {
  const RefitId refit{{12, ProcessId{0xFEED}}, 7};
  EXPECT_EQ(parse_refit_name(to_string(refit)), refit);
  for (const char* name : {"", "e1", "e1-00000000000000ff", "e1-ff-a1", "e1-00000000000000ff-a",
                           "e1-00000000000000ff-a1x", "e01-00000000000000ff-a1",
                           "e1-00000000000000FF-a1", "../e1-00000000000000ff-a1"}) {
    EXPECT_FALSE(parse_refit_name(name)) << name;
  }
}

}  // namespace
}  // namespace weft::apply
