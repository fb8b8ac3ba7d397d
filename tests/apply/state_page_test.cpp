// SPDX-License-Identifier: Apache-2.0
#include "apply/read/state_page.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "apply/read/writer_turn.hpp"
#include "apply/store/owner_lock.hpp"
#include "support/temp_directory.hpp"

namespace weft::apply {
namespace {

using test_support::TempDirectory;
using namespace std::chrono_literals;

NullEventSink no_events;
const Content kContent{Version{7}, Digest{{1, 2}}, Digest{{3, 4}}};

// Threads: one at a time.
class StatePageTest : public testing::Test {
 protected:
  TempDirectory directory_;
  std::unique_ptr<Store> store_ = *open_store(directory_.path(), {}, no_events);
};

TEST_F(StatePageTest, ReadersSeeWhatWasWritten) {
  const auto writer = StatePage::open_for_writing(*store_);
  ASSERT_TRUE(writer) << writer.error().message();
  const auto reader = StatePage::open(*store_);
  ASSERT_TRUE(reader);
  EXPECT_EQ((*reader)->read()->phase, ReadPhase::kNotReady);
  ASSERT_TRUE((*writer)->write(ReadPhase::kReady, kContent));
  const auto state = (*reader)->read();
  ASSERT_TRUE(state);
  EXPECT_EQ(state->phase, ReadPhase::kReady);
  EXPECT_EQ(state->content, kContent);
  EXPECT_EQ(state->boot_id, *kernel_boot_id());
}

TEST_F(StatePageTest, IsMissingBeforeAnyWriterCame) {
  const auto reader = StatePage::open(*store_);
  ASSERT_FALSE(reader);
  EXPECT_TRUE(is_missing(reader.error()));
}

// The page is never replaced: whoever holds it open sees later writers too.
TEST_F(StatePageTest, SecondWriterGoesOnInTheSamePage) {
  {
    const auto writer = StatePage::open_for_writing(*store_);
    ASSERT_TRUE((*writer)->write(ReadPhase::kReady, kContent));
  }
  const auto reader = StatePage::open(*store_);
  const auto before = *(*reader)->read();
  const auto writer = StatePage::open_for_writing(*store_);
  EXPECT_EQ((*reader)->read()->content, kContent);
  ASSERT_TRUE((*writer)->write(ReadPhase::kApplying, kContent));
  EXPECT_GT((*reader)->read()->sequence, before.sequence);
  EXPECT_EQ((*reader)->read()->phase, ReadPhase::kApplying);
}

TEST_F(StatePageTest, WaitReturnsAtAChangeAndTimesOutWithoutOne) {
  const auto writer = StatePage::open_for_writing(*store_);
  const auto reader = StatePage::open(*store_);
  const std::uint64_t seen = (*reader)->read()->sequence;
  const auto nothing = (*reader)->wait(seen, 5ms);
  ASSERT_FALSE(nothing);
  EXPECT_EQ(nothing.error().code, ErrorCode::kTimeout);
  std::thread later([&] { EXPECT_TRUE((*writer)->write(ReadPhase::kReady, kContent)); });
  const auto state = (*reader)->wait(seen, 30s);
  later.join();
  ASSERT_TRUE(state);
  EXPECT_EQ(state->phase, ReadPhase::kReady);
}

TEST_F(StatePageTest, ReaderNeverSeesHalfAWrite) {
  const auto writer = StatePage::open_for_writing(*store_);
  const auto reader = StatePage::open(*store_);
  std::atomic<bool> stop{false};
  std::thread writing([&] {
    for (std::uint64_t i = 1; !stop; ++i) {
      ASSERT_TRUE(
          (*writer)->write(ReadPhase::kReady, {Version{i}, Digest{{i, i}}, Digest{{i, i}}}));
    }
  });
  for (int i = 0; i < 2'000; ++i) {
    const auto state = (*reader)->read();
    ASSERT_TRUE(state);
    ASSERT_EQ(state->content.version.value, state->content.root.high);
    ASSERT_EQ(state->content.version.value, state->content.lattice.low);
  }
  stop = true;
  writing.join();
}

// B-013: a page that someone cuts off is an error, not a signal.
TEST_F(StatePageTest, TruncatedPageIsAFormatError) {
  const auto writer = StatePage::open_for_writing(*store_);
  const auto reader = StatePage::open(*store_);
  std::filesystem::resize_file(directory_ / "weft.state", 10);
  EXPECT_EQ((*reader)->read().error().code, ErrorCode::kFormat);
  EXPECT_EQ((*reader)->wait(0, 5ms).error().code, ErrorCode::kFormat);
}

TEST_F(StatePageTest, OthersMayReadThePageAndLockButNotWrite) {
  ASSERT_TRUE(StatePage::open_for_writing(*store_));
  struct stat status {};
  ASSERT_EQ(::stat((directory_ / "weft.state").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777U, 0644U);
}

TEST_F(StatePageTest, WriterTurnWaitsForReadersAndSaysSoInThePage) {
  const auto page = StatePage::open_for_writing(*store_);
  ASSERT_TRUE((*page)->write(ReadPhase::kReady, kContent));
  const Content next{Version{8}, Digest{{1, 2}}, Digest{{5, 6}}};
  {
    const auto reader = store_->try_lock(kReaderLockName, LockMode::kShared);
    ASSERT_TRUE(reader);
    const auto refused = WriterTurn::acquire(*store_, **page, 10ms);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::kBusy);
    EXPECT_EQ((*page)->read()->phase, ReadPhase::kReady);  // taken back
  }
  const auto turn = WriterTurn::acquire(*store_, **page, 10s);
  ASSERT_TRUE(turn);
  EXPECT_EQ((*page)->read()->phase, ReadPhase::kApplyPending);
  ASSERT_TRUE((*turn)->begin());
  EXPECT_EQ((*page)->read()->phase, ReadPhase::kApplying);
  EXPECT_FALSE(store_->try_lock(kReaderLockName, LockMode::kShared));
  ASSERT_TRUE((*turn)->finish(next));
  EXPECT_EQ((*page)->read()->content, next);
  EXPECT_EQ((*page)->read()->phase, ReadPhase::kReady);
  EXPECT_TRUE(store_->try_lock(kReaderLockName, LockMode::kShared));
}

// A lock that is dropped proves nothing: the phase does.
TEST_F(StatePageTest, TurnThatEndsHalfWayLeavesTheDirectoryUnreadable) {
  const auto page = StatePage::open_for_writing(*store_);
  ASSERT_TRUE((*page)->write(ReadPhase::kReady, kContent));
  {
    const auto turn = WriterTurn::acquire(*store_, **page, 10s);
    ASSERT_TRUE((*turn)->begin());
  }
  EXPECT_EQ((*page)->read()->phase, ReadPhase::kApplying);
  const auto again = WriterTurn::acquire(*store_, **page, 10s);
  ASSERT_TRUE(again);
  EXPECT_EQ((*page)->read()->phase, ReadPhase::kApplying);
}

// B-082
TEST_F(StatePageTest, SecondOwnerIsToldWhoTheFirstIs) {
  {
    const auto owner = OwnerLock::acquire(*store_, FleetId{{1, 2}}, "agent-17");
    ASSERT_TRUE(owner);
    const auto refused = OwnerLock::acquire(*store_, FleetId{}, "weft apply");
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::kBusy);
    EXPECT_NE(refused.error().detail.find("agent-17"), std::string::npos);
  }
  EXPECT_TRUE(OwnerLock::acquire(*store_, FleetId{}, "weft apply"));
}

}  // namespace
}  // namespace weft::apply
