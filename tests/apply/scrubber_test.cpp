// SPDX-License-Identifier: Apache-2.0
#include "apply/patch/scrubber.hpp"

#include <gtest/gtest.h>

#include <atomic>

#include "apply/patch/digest_directory.hpp"
#include "support/checkpoint_files.hpp"
#include "support/memory_store.hpp"

namespace weft::apply {
namespace {

using namespace test_support;  // NOLINT(google-build-using-namespace)
using namespace std::chrono_literals;

// A checkpoint in memory with its table, and what a scrubber says of it.
// Threads: one at a time, but for the callbacks.
class ScrubberTest : public testing::Test {
 protected:
  ScrubberTest() {
    auto store = disk_->open();
    write_checkpoint(*store, make_checkpoint(3'000'000, 1), true);
    checkpoint_ =
        std::make_shared<CheckpointDir>(*CheckpointDir::open(std::move(store), Access::kReadWrite));
    lattice_ = *codec::Lattice::default_for(checkpoint_->schema());
    table_ =
        std::make_shared<const codec::DigestTable>(*digest_directory(*checkpoint_, lattice_, 1));
  }
  ScrubOptions options(Duration period = 1ms) {
    ScrubOptions made;
    made.period = period;
    made.bytes_per_second = std::uint64_t{1} << 40;
    made.subject = [this] { return subject(); };
    made.on_damage = [this](Error error) {
      told_.update([&](auto& told) { told.push_back(std::move(error)); });
    };
    return made;
  }
  std::optional<ScrubSubject> subject() {
    if (applying_) return std::nullopt;
    return ScrubSubject{checkpoint_, table_, &lattice_, generation_};
  }
  void flip_bit() {
    std::byte byte{};
    File& file = checkpoint_->file(1);
    const std::uint64_t place = *file.size() - 10;
    ASSERT_TRUE(file.read(place, {&byte, 1}));
    byte ^= std::byte{16};
    ASSERT_TRUE(file.write(place, {&byte, 1}));
  }
  bool told_within(Duration timeout) {
    return told_.wait_for(
        timeout, [](const auto& told) { return !told.empty(); },
        [](const auto&, bool found) { return found; });
  }
  static bool passes_reach(const Scrubber& scrubber, std::uint64_t passes) {
    Guarded<int> pause;
    for (int i = 0; i < 20'000 && scrubber.progress().passes < passes; ++i) {
      pause.wait_for(
          1ms, [](int) { return false; }, [](int, bool) {});
    }
    return scrubber.progress().passes >= passes;
  }

  std::shared_ptr<MemoryDisk> disk_ = MemoryDisk::make();
  std::shared_ptr<CheckpointDir> checkpoint_;
  codec::Lattice lattice_;
  std::shared_ptr<const codec::DigestTable> table_;
  std::atomic<bool> applying_{false};
  std::atomic<std::uint64_t> generation_{0};
  Guarded<std::vector<Error>> told_;
};

TEST_F(ScrubberTest, SoundFilesPassAfterPass) {
  const Scrubber scrubber(options());
  ASSERT_TRUE(passes_reach(scrubber, 3));
  EXPECT_TRUE(scrubber.progress().pass_ended);
  EXPECT_EQ(scrubber.progress().chunk_count, lattice_.chunk_count());
  EXPECT_EQ(scrubber.progress().damaged_chunks, 0U);
  EXPECT_FALSE(told_within(0ms));
}

TEST_F(ScrubberTest, FlippedBitIsFoundAndNamed) {
  const Scrubber scrubber(options());
  ASSERT_TRUE(passes_reach(scrubber, 1));
  flip_bit();
  ASSERT_TRUE(told_within(20s));
  const Error error = told_.with([](const auto& told) { return told.front(); });
  EXPECT_EQ(error.code, ErrorCode::kBaseMismatch);
  EXPECT_NE(error.detail.find("tensor "), std::string::npos);
  EXPECT_NE(error.detail.find(checkpoint_->schema().files()[1].name), std::string::npos);
}

TEST_F(ScrubberTest, ChunkThatAnApplyHasJustWrittenIsNotDamage) {
  // Between the two looks the generation moves on, as when an apply has begun.
  ScrubOptions made = options();
  made.subject = [this] {
    ++generation_;
    return subject();
  };
  flip_bit();
  const Scrubber scrubber(std::move(made));
  ASSERT_TRUE(passes_reach(scrubber, 2));
  EXPECT_FALSE(told_within(0ms));
}

TEST_F(ScrubberTest, RestsWhileFilesChange) {
  applying_ = true;
  flip_bit();
  const Scrubber scrubber(options());
  EXPECT_FALSE(told_within(50ms));
  EXPECT_EQ(scrubber.progress().chunks_checked, 0U);
  applying_ = false;
  EXPECT_TRUE(told_within(20s));
}

TEST_F(ScrubberTest, SpreadsAPassOverItsPeriod) {
  const Scrubber scrubber(options(1h));
  EXPECT_FALSE(told_within(100ms));
  EXPECT_LE(scrubber.progress().chunks_checked, 1U);
}

TEST_F(ScrubberTest, IsOffWithoutAPeriod) {
  flip_bit();
  const Scrubber scrubber(options(0ms));
  EXPECT_FALSE(told_within(50ms));
  EXPECT_EQ(scrubber.progress().chunks_checked, 0U);
}

}  // namespace
}  // namespace weft::apply
