// SPDX-License-Identifier: Apache-2.0
#include "weft/weight_view.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <thread>

#include "apply/journal/change_fold.hpp"
#include "apply/patch/weight_sets.hpp"
#include "apply/read/state_page.hpp"
#include "apply/read/writer_turn.hpp"
#include "apply/store/owner_lock.hpp"
#include "support/checkpoint_files.hpp"
#include "support/journal_builder.hpp"
#include "support/temp_directory.hpp"
#include "weft/weight_files.hpp"
#include "weft/wire/byte_io.hpp"
#include "weft/wire/digest.hpp"

namespace weft::apply {
namespace {

using namespace test_support;  // NOLINT(google-build-using-namespace)
using namespace std::chrono_literals;

NullEventSink no_events;

// A node's directories with a line of versions and the journals between them.
// Threads: one at a time.
class WeightViewTest : public testing::Test {
 protected:
  void make_line(std::size_t count, std::uint64_t bytes = 60'000) {
    versions_.push_back(make_checkpoint(bytes, 1));
    for (std::size_t i = 1; i < count; ++i) {
      versions_.push_back(change_elements(versions_.back(), 0.02, i + 1));
    }
    write_checkpoint(*weights_, versions_.front(), true);
    const auto checkpoint = open_checkpoint();
    for (std::uint32_t i = 0; i + 1 < count; ++i) {
      ASSERT_TRUE(write_journal(*journals_, checkpoint.schema(), versions_[i], versions_[i + 1], 0,
                                test_refit(i + 1), Version{i + 1}));
      contents_.push_back(journal(i, checkpoint.schema())->manifest().base);
    }
    contents_.push_back(
        journal(static_cast<std::uint32_t>(count) - 2, checkpoint.schema())->manifest().target);
  }
  CheckpointDir open_checkpoint() {
    return *CheckpointDir::open(*root_->open_directory("weights", false), Access::kReadWrite);
  }
  std::unique_ptr<JournalReader> journal(std::uint32_t place, const codec::Schema& schema) {
    return *JournalReader::open(*journals_, test_refit(place + 1), schema);
  }
  void own() {
    ASSERT_TRUE(OwnerLock::acquire(*weights_, FleetId{}, "agent-1", directory_ / "state"));
  }
  void publish(const Content& content) { ASSERT_TRUE(page_->write(ReadPhase::kReady, content)); }
  Result<WeightView> view() { return WeightView::open(directory_ / "weights"); }

  TempDirectory directory_;
  std::unique_ptr<Store> root_ =
      *open_store(directory_.path(), {Engine::kPosix, Durability::kProcess}, no_events);
  std::unique_ptr<Store> weights_ = *root_->open_directory("weights", true);
  std::unique_ptr<Store> state_ = *root_->open_directory("state", true);
  std::unique_ptr<Store> journals_ = *state_->open_directory("journal", true);
  std::unique_ptr<StatePage> page_ = *StatePage::open_for_writing(*weights_);
  std::vector<TestCheckpoint> versions_;
  std::vector<Content> contents_;
};

TEST_F(WeightViewTest, GivesPathAndContentUnderTheLock) {
  make_line(2);
  publish(contents_[0]);
  auto reader = view();
  ASSERT_TRUE(reader) << reader.error().message();
  const auto lock = reader->acquire(1s);
  ASSERT_TRUE(lock) << lock.error().message();
  EXPECT_EQ(lock->content(), contents_[0]);
  EXPECT_EQ(lock->path(), directory_ / "weights");
  EXPECT_EQ(weights_->try_lock(kReaderLockName, LockMode::kExclusive).error().code,
            ErrorCode::kBusy);
}

TEST_F(WeightViewTest, DirectoryThatNoAgentHasOpenedIsBusy) {
  const TempDirectory empty;
  const auto refused = WeightView::open(empty.path());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kBusy);
}

TEST_F(WeightViewTest, AgentKilledHalfWayIsNeverHandedOut) {
  make_line(2);
  publish(contents_[0]);
  auto reader = view();
  {
    const auto turn = WriterTurn::acquire(*weights_, *page_, 1s);
    ASSERT_TRUE((*turn)->begin());
  }  // as the kernel does it for a killed process: the lock is gone, the phase stays
  const auto refused = reader->acquire(20ms);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kTimeout);
  EXPECT_NE(refused.error().detail.find("killed"), std::string::npos);
  publish(contents_[1]);
  EXPECT_TRUE(reader->acquire(1s));
}

TEST_F(WeightViewTest, PageFromBeforeAPowerCutIsNotBelieved) {
  make_line(2);
  publish(contents_[0]);
  auto reader = view();
  {
    auto file = *weights_->open(kStatePageName, Access::kReadWrite);
    std::vector<std::byte> body(128);
    ASSERT_TRUE(file->read(64, body));
    body[64] ^= std::byte{1};  // the boot id
    wire::store_le(body.data() + 120, wire::digest64(std::span(body).first(120)));
    ASSERT_TRUE(file->write(64, body));
  }
  const auto refused = reader->acquire(20ms);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kTimeout);
  EXPECT_NE(refused.error().detail.find("last start"), std::string::npos);
  EXPECT_FALSE(reader->wait(20ms));
}

TEST_F(WeightViewTest, NodeThatIsNotReadyGivesTimeout) {
  make_line(2);
  ASSERT_TRUE(page_->write(ReadPhase::kNotReady, contents_[0]));
  auto reader = view();
  const auto refused = reader->acquire(20ms);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kTimeout);
}

TEST_F(WeightViewTest, WaitTellsWhichVersionsWereSkipped) {
  make_line(4);
  publish(contents_[0]);
  auto reader = view();
  EXPECT_EQ(reader->wait(5ms).error().code, ErrorCode::kTimeout);
  publish(contents_[1]);
  publish(contents_[3]);
  const auto step = reader->wait(1s);
  ASSERT_TRUE(step);
  EXPECT_EQ(step->from, Version{1});
  EXPECT_EQ(step->to, Version{4});
  EXPECT_EQ(reader->wait(5ms).error().code, ErrorCode::kTimeout);
}

// Values that are told, over the old ones, are the new tensors bit by bit.
TEST_F(WeightViewTest, ChangesOverTheOldBytesAreTheNewOnes) {
  make_line(4, 3'000'000);
  own();
  publish(contents_[3]);
  auto reader = view();
  for (const auto& [from, to] : {std::pair{1, 4}, {1, 2}, {2, 4}, {3, 4}}) {
    std::map<std::string, std::vector<std::byte>, std::less<>> tensors;
    for (const auto& [file, list] : versions_[static_cast<std::size_t>(from - 1)]) {
      for (const TestTensor& tensor : list) tensors[tensor.name] = tensor.bytes;
    }
    std::uint64_t told = 0;
    const auto summary = reader->changes(
        Version{static_cast<std::uint64_t>(from)}, Version{static_cast<std::uint64_t>(to)},
        [&](const TensorChange& change) {
          auto& bytes = tensors.find(change.name)->second;
          std::uint64_t last = 0;
          for (std::size_t i = 0; i < change.offsets.size(); ++i) {
            ASSERT_TRUE(i == 0 || change.offsets[i] > last);
            last = change.offsets[i];
            std::memcpy(bytes.data() + change.offsets[i] * change.element_bytes,
                        change.values.data() + i * change.element_bytes, change.element_bytes);
          }
          told += change.offsets.size();
        });
    ASSERT_TRUE(summary) << summary.error().message();
    ASSERT_FALSE(summary->needs_full) << *summary->needs_full;
    EXPECT_EQ(summary->changed_elements, told);
    EXPECT_EQ(summary->refits, static_cast<std::uint32_t>(to - from));
    for (const auto& [file, list] : versions_[static_cast<std::size_t>(to - 1)]) {
      for (const TestTensor& tensor : list) EXPECT_EQ(tensors[tensor.name], tensor.bytes);
    }
  }
}

TEST_F(WeightViewTest, TakenChangesAreTheToldOnesAndEndWhenToldTo) {
  make_line(3, 3'000'000);
  own();
  publish(contents_[2]);
  auto reader = view();
  std::vector<OwnedChange> taken;
  const auto all = reader->take_changes(Version{1}, Version{3}, [&](OwnedChange&& change) {
    taken.push_back(std::move(change));
    return true;
  });
  ASSERT_TRUE(all) << all.error().message();
  ASSERT_GT(taken.size(), 1U);
  std::size_t place = 0;
  ASSERT_TRUE(reader->changes(Version{1}, Version{3}, [&](const TensorChange& change) {
    const OwnedChange& mine = taken[place++];
    EXPECT_EQ(mine.name, change.name);
    EXPECT_EQ(mine.dtype, change.dtype);
    EXPECT_TRUE(std::ranges::equal(mine.offsets, change.offsets));
    EXPECT_TRUE(std::ranges::equal(mine.values, change.values));
  }));
  EXPECT_EQ(place, taken.size());
  std::uint64_t told = 0;
  const auto first = reader->take_changes(Version{1}, Version{3}, [&](OwnedChange&& change) {
    told += change.offsets.size();
    return false;
  });
  ASSERT_TRUE(first);
  EXPECT_EQ(told, taken.front().offsets.size());
  EXPECT_EQ(first->changed_elements, told);
}

TEST_F(WeightViewTest, MappedTensorsAreTheFilesAndOutliveTheLock) {
  make_line(2);
  publish(contents_[0]);
  auto reader = view();
  std::optional<WeightFiles> kept;
  {
    const auto lock = reader->acquire(1s);
    ASSERT_TRUE(lock);
    auto files = WeightFiles::open(*lock);
    ASSERT_TRUE(files) << files.error().message();
    kept = *files;
  }
  std::size_t count = 0;
  for (const auto& [file, list] : versions_[0]) {
    for (const TestTensor& tensor : list) {
      const WeightTensor* const found = kept->find(tensor.name);
      ASSERT_NE(found, nullptr) << tensor.name;
      EXPECT_EQ(found->name, tensor.name);
      EXPECT_TRUE(std::ranges::equal(found->bytes, tensor.bytes));
      ++count;
    }
  }
  EXPECT_EQ(kept->tensors().size(), count);
  EXPECT_EQ(kept->find("no such tensor"), nullptr);
  // Whoever writes there writes to a page of its own.
  auto* const bytes = const_cast<std::byte*>(kept->tensors()[0].bytes.data());
  *bytes ^= std::byte{1};
  const auto lock = reader->acquire(1s);
  const auto again = WeightFiles::open(*lock);
  EXPECT_NE(again->tensors()[0].bytes[0], *bytes);
}

TEST_F(WeightViewTest, PrunedOrDamagedJournalsNeedTheFullFiles) {
  make_line(4, 400'000);
  own();
  publish(contents_[3]);
  auto reader = view();
  const auto none = [](const TensorChange&) { FAIL() << "part of a list was told"; };
  {
    auto file = *journals_->open(to_string(test_refit(2)) + "/records", Access::kReadWrite);
    std::byte byte{};
    ASSERT_TRUE(file->read(*file->size() - 1, {&byte, 1}));
    byte ^= std::byte{4};
    ASSERT_TRUE(file->write(*file->size() - 1, {&byte, 1}));
  }
  const auto damaged = reader->changes(Version{1}, Version{4}, none);
  ASSERT_TRUE(damaged);
  EXPECT_TRUE(damaged->needs_full);
  ASSERT_TRUE(remove_journal(*journals_, test_refit(1)));
  const auto pruned = reader->changes(Version{1}, Version{4}, none);
  ASSERT_TRUE(pruned);
  EXPECT_TRUE(pruned->needs_full);
  EXPECT_TRUE(reader->changes(Version{1}, Version{9}, none)->needs_full);
  EXPECT_EQ(reader->changes(Version{4}, Version{4}, none).error().code, ErrorCode::kConfig);
  EXPECT_FALSE(reader->changes(Version{3}, Version{4}, [](const auto&) {})->needs_full);
}

// An attempt that was aborted and left its journal is no way to a version.
TEST_F(WeightViewTest, JournalOfAnAbortedAttemptIsNotUsed) {
  make_line(2);
  own();
  const auto other = change_elements(versions_[0], 0.1, 99);
  ASSERT_TRUE(write_journal(*journals_, open_checkpoint().schema(), versions_[0], other, 0,
                            test_refit(77), Version{1}));
  publish(contents_[1]);
  auto reader = view();
  std::uint64_t told = 0;
  const auto summary = reader->changes(
      Version{1}, Version{2}, [&](const TensorChange& change) { told += change.offsets.size(); });
  ASSERT_TRUE(summary && !summary->needs_full);
  const auto checkpoint = open_checkpoint();
  const auto line = journal(0, checkpoint.schema());
  ChangeFold right(checkpoint.schema(), {line.get()});
  EXPECT_EQ(told, *right.fold([](const auto&, const auto&, const auto&) { return true; }));
}

// Plain flock would starve the writer.
TEST_F(WeightViewTest, EightHammeringReadersLetTheWriterHaveItsTurn) {
  make_line(2);
  publish(contents_[0]);
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> reads{0};
  std::vector<std::thread> readers;
  for (int i = 0; i < 8; ++i) {
    readers.emplace_back([&] {
      auto own_view = view();
      while (!stop) {
        if (own_view->acquire(100ms)) ++reads;
      }
    });
  }
  const auto deadline = std::chrono::steady_clock::now() + 20s;
  while (reads == 0 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  for (int i = 0; i < 20; ++i) {
    const auto turn = WriterTurn::acquire(*weights_, *page_, 20s);
    ASSERT_TRUE(turn) << turn.error().message();
    ASSERT_TRUE((*turn)->begin() && (*turn)->finish(contents_[0]));
  }
  stop = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT_GT(reads, 0U);
}

// Hammers while versions change; every whole read must be the version it was told.
void expect_no_mixture(const std::string& weights, const std::vector<TestCheckpoint>& versions,
                       const std::atomic<bool>& stop, std::atomic<std::uint64_t>& reads) {
  auto reader = WeightView::open(weights);
  ASSERT_TRUE(reader);
  while (!stop) {
    const auto lock = reader->acquire(30s);
    ASSERT_TRUE(lock) << lock.error().message();
    const TestCheckpoint& expected = versions[(lock->version().value - 1) % versions.size()];
    for (const auto& [name, tensors] : expected) {
      ASSERT_EQ(read_file(lock->path() + "/" + name), safetensors_bytes(tensors))
          << "version " << lock->version().value;
    }
    ++reads;
  }
}

constexpr std::size_t kHammeredVersions = 20;

TEST_F(WeightViewTest, ReaderNeverSeesAMixtureWhileFilesChangeInPlace) {
  make_line(kHammeredVersions);
  publish(contents_[0]);
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> reads{0};
  std::thread reader([&] { expect_no_mixture(directory_ / "weights", versions_, stop, reads); });
  auto checkpoint = open_checkpoint();
  for (std::uint32_t i = 0; i + 1 < versions_.size(); ++i) {
    const auto line = journal(i, checkpoint.schema());
    const auto turn = WriterTurn::acquire(*weights_, *page_, 30s);
    ASSERT_TRUE(turn);
    ASSERT_TRUE((*turn)->begin());
    ASSERT_TRUE(apply_journal(*line, checkpoint, {}));
    ASSERT_TRUE((*turn)->finish(contents_[i + 1]));
  }
  stop = true;
  reader.join();
  EXPECT_GT(reads, 0U);
}

TEST_F(WeightViewTest, ReaderNeverSeesAMixtureWhileSetsAreSwitched) {
  make_line(kHammeredVersions);
  auto a = *weights_->open_directory("a", true);
  write_checkpoint(*a, versions_[0], true);
  auto sets = WeightSets::open(*weights_, {1, 2}, Durability::kProcess);
  ASSERT_TRUE(sets);
  page_->name_set(sets->current());
  publish(contents_[0]);
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> reads{0};
  std::thread reader([&] { expect_no_mixture(directory_ / "weights", versions_, stop, reads); });
  for (std::uint32_t i = 0; i + 1 < versions_.size(); ++i) {
    const auto line = journal(i, sets->checkpoint()->schema());
    ASSERT_TRUE(sets->prepare());
    StandbyGoal goal;
    goal.journal = line.get();
    goal.journals = journals_.get();
    if (i > 0) goal.retained = {test_refit(i)};
    goal.lock_timeout = 30s;
    const auto built = sets->build(goal);
    ASSERT_TRUE(built) << built.error().message();
    ASSERT_EQ(built->copied, i == 0);
    ASSERT_TRUE(sets->flip());
    page_->name_set(sets->current());
    publish(contents_[i + 1]);
  }
  stop = true;
  reader.join();
  EXPECT_GT(reads, 0U);
}

// A set that a reader keeps mapped is not written: the writer is held up until it lets go.
TEST_F(WeightViewTest, ReaderThatKeepsASetHoldsTheNextButOneVersionUp) {
  make_line(3);
  auto a = *weights_->open_directory("a", true);
  write_checkpoint(*a, versions_[0], true);
  auto sets = WeightSets::open(*weights_, {1, 2}, Durability::kProcess);
  page_->name_set(sets->current());
  publish(contents_[0]);
  auto reader = view();
  auto lock = reader->acquire(1s);
  ASSERT_TRUE(lock);
  EXPECT_EQ(lock->path(), directory_ / "weights/a");
  const auto bring = [&](std::uint32_t place, Duration timeout) {
    const auto line = journal(place, sets->checkpoint()->schema());
    StandbyGoal goal;
    goal.journal = line.get();
    goal.journals = journals_.get();
    if (place > 0) goal.retained = {test_refit(place)};
    goal.lock_timeout = timeout;
    return sets->build(goal);
  };
  ASSERT_TRUE(bring(0, 1s));
  ASSERT_TRUE(sets->flip());
  const auto held_up = bring(1, 10ms);
  ASSERT_FALSE(held_up);
  EXPECT_EQ(held_up.error().code, ErrorCode::kBusy);
  EXPECT_NE(held_up.error().detail.find("process " + std::to_string(::getpid())), std::string::npos)
      << held_up.error().detail;
  for (const auto& [name, tensors] : versions_[0]) {
    EXPECT_EQ(read_file(lock->path() + "/" + name), safetensors_bytes(tensors));
  }
  { const WeightLock gone = *std::move(lock); }
  EXPECT_TRUE(bring(1, 1s));
}

}  // namespace
}  // namespace weft::apply
