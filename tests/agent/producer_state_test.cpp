// SPDX-License-Identifier: Apache-2.0
#include "agent/lib/producer_state.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>

#include "agent/lib/shard_baseline.hpp"
#include "apply/store/checkpoint_dir.hpp"
#include "support/refit_builder.hpp"
#include "weft/wire/digest.hpp"

namespace weft::agent {
namespace {

using namespace test_support;  // NOLINT(google-build-using-namespace)

constexpr ProducerIndex kOwn{0};
constexpr RefitId kRefit{Epoch{3, ProcessId{7}}, 2};

// A checkpoint in memory and a directory on disk for the state of its one producer.
// Threads: one at a time.
struct Sample {
  std::filesystem::path folder;
  std::shared_ptr<MemoryDisk> disk = MemoryDisk::make();
  std::optional<apply::CheckpointDir> base;
  codec::Lattice lattice;
  codec::DecodeWorkspace workspace;
  NullEventSink events;

  Sample() {
    std::string name = (std::filesystem::temp_directory_path() / "weft-producer-XXXXXX").string();
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    folder = name;
    TestCheckpoint checkpoint;
    auto& tensors = checkpoint["m.safetensors"];
    tensors.push_back({"a", "BF16", {700, 1000}, std::vector<std::byte>(1'400'000)});
    for (std::size_t i = 0; i < tensors[0].bytes.size(); ++i) {
      tensors[0].bytes[i] = static_cast<std::byte>(i * 7 + i / 300);
    }
    auto root = disk->open();
    write_checkpoint(**root->open_directory("weights", true), checkpoint, false);
    base = open_checkpoint(*disk, "weights");
    lattice = *codec::Lattice::default_for(base->schema());
  }
  ~Sample() { std::filesystem::remove_all(folder); }
  Sample(const Sample&) = delete;
  Sample& operator=(const Sample&) = delete;

  std::unique_ptr<ProducerState> open() {
    auto state = ProducerState::open((folder / "state").string(), events);
    EXPECT_TRUE(state) << state.error().message();
    return *std::move(state);
  }
  Result<std::unique_ptr<ShardBaseline>> baseline(ProducerState& state) {
    return ShardBaseline::open(lattice, kOwn, {&*base, &state, 2});
  }
  std::vector<std::byte> on_disk(ChunkIndex chunk) const {
    std::vector<std::byte> bytes(lattice.place(chunk).bytes());
    EXPECT_TRUE(base->read(lattice.place(chunk), bytes));
    return bytes;
  }
  // The next version's values of a chunk.
  std::vector<std::byte> next(ChunkIndex chunk) const {
    auto bytes = on_disk(chunk);
    for (std::size_t i = chunk.value; i < bytes.size(); i += 130) bytes[i] ^= std::byte{1};
    return bytes;
  }
  // Logs the baseline, notes the next version and leaves it pending, as a rank before its decision.
  void leave_pending() {
    const auto state = open();
    const auto made = baseline(*state);
    ASSERT_TRUE(made);
    const Digest part = (*made)->table().part(lattice, kOwn);
    ASSERT_TRUE(state->append(
        apply::BaselineRecord{std::nullopt, {Version{1}, lattice.digest(), {}}, part}));
    codec::DigestTable table(lattice.chunk_count());
    for (std::uint32_t c = 0; c < lattice.chunk_count(); ++c) {
      const auto bytes = next({c});
      (*made)->note({c}, bytes, workspace);
      table.set({c}, wire::digest64(bytes));
    }
    ASSERT_TRUE((*made)->keep_pending(kRefit));
    apply::PendingRecord record;
    record.prepared.refit = kRefit;
    record.part = table.part(lattice, kOwn);
    ASSERT_TRUE(state->append(record));
  }
  void damage(const char* name, std::streamoff offset) const {
    std::fstream file(folder / "state" / name, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(offset);
    const char before = static_cast<char>(file.get());
    file.seekp(offset);
    file.put(static_cast<char>(before ^ 1));
  }
};

TEST(ProducerState, ABaselineOnDiskIsTakenAsItIs) {
  Sample sample;
  {
    const auto state = sample.open();
    EXPECT_FALSE(state->fold().baseline);
    const auto made = sample.baseline(*state);
    ASSERT_TRUE(made) << made.error().message();
    for (std::uint32_t c = 0; c < sample.lattice.chunk_count(); ++c) {
      const auto bytes = (*made)->old_bytes({c});
      EXPECT_EQ(std::vector<std::byte>(bytes.begin(), bytes.end()), sample.on_disk({c}));
    }
  }
  ASSERT_NO_FATAL_FAILURE(sample.leave_pending());
  const auto state = sample.open();
  ASSERT_TRUE(state->fold().baseline);
  EXPECT_EQ(state->fold().baseline->content.version, Version{1});
  ASSERT_TRUE(state->fold().pending);
}

TEST(ProducerState, OneProducerADirectory) {
  Sample sample;
  const auto state = sample.open();
  const auto second = ProducerState::open((sample.folder / "state").string(), sample.events);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::kBusy);
  EXPECT_NE(second.error().message().find("producer.baseline_dir"), std::string::npos);
}

TEST(ProducerState, PendingValuesAreMovedByTheNextProcess) {
  Sample sample;
  ASSERT_NO_FATAL_FAILURE(sample.leave_pending());
  // Killed in the middle of a move: the first chunk is new already.
  {
    const auto state = sample.open();
    const auto mapped = state->map_baseline(1'400'000);
    ASSERT_TRUE(mapped);
    const auto bytes = sample.next({0});
    std::copy(bytes.begin(), bytes.end(), mapped->begin());
  }
  const auto state = sample.open();
  const auto found = sample.baseline(*state);
  ASSERT_TRUE(found) << found.error().message();
  EXPECT_GT((*found)->pending_bytes(), 0U);
  const Status moved = (*found)->move();
  ASSERT_TRUE(moved) << moved.error().message();
  for (std::uint32_t c = 0; c < sample.lattice.chunk_count(); ++c) {
    const auto bytes = (*found)->old_bytes({c});
    EXPECT_EQ(std::vector<std::byte>(bytes.begin(), bytes.end()), sample.next({c}));
    EXPECT_EQ((*found)->table().at({c}), wire::digest64(bytes));
  }
  const Digest part = (*found)->table().part(sample.lattice, kOwn);
  EXPECT_EQ(part, state->fold().pending->part);
  ASSERT_TRUE(state->append(
      apply::BaselineRecord{kRefit, {Version{2}, sample.lattice.digest(), {}}, part}));
  EXPECT_FALSE(state->fold().pending);
  EXPECT_FALSE(std::filesystem::exists(sample.folder / "state" / "pending"));
}

TEST(ProducerState, DroppedValuesLeaveTheBaseline) {
  Sample sample;
  ASSERT_NO_FATAL_FAILURE(sample.leave_pending());
  const auto state = sample.open();
  const auto found = sample.baseline(*state);
  ASSERT_TRUE(found);
  (*found)->drop();
  ASSERT_TRUE(state->append(apply::DroppedRecord{kRefit}));
  EXPECT_FALSE(std::filesystem::exists(sample.folder / "state" / "pending"));
  const auto bytes = (*found)->old_bytes({1});
  EXPECT_EQ(std::vector<std::byte>(bytes.begin(), bytes.end()), sample.on_disk({1}));
  EXPECT_EQ((*found)->table().part(sample.lattice, kOwn), state->fold().baseline->part);
}

TEST(ProducerState, DamageIsFoundAndNamed) {
  for (const std::streamoff offset : {0, 20, 60, 3000}) {
    Sample sample;
    ASSERT_NO_FATAL_FAILURE(sample.leave_pending());
    sample.damage("pending", offset);
    const auto state = sample.open();
    const auto found = sample.baseline(*state);
    ASSERT_FALSE(found) << offset;
    EXPECT_EQ(found.error().code, ErrorCode::kNeedsReseed);
    EXPECT_NE(found.error().message().find("pending"), std::string::npos);
  }
  Sample sample;
  ASSERT_NO_FATAL_FAILURE(sample.leave_pending());
  sample.damage("baseline", 1'399'999);  // with values pending, it shows when they are moved
  auto state = sample.open();
  auto found = sample.baseline(*state);
  ASSERT_TRUE(found);
  const Status moved = (*found)->move();
  ASSERT_FALSE(moved);
  EXPECT_EQ(moved.error().code, ErrorCode::kNeedsReseed);
  found->reset();
  ASSERT_TRUE(state->append(apply::DroppedRecord{kRefit}));
  state.reset();
  state = sample.open();
  found = sample.baseline(*state);  // without, at the start
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, ErrorCode::kNeedsReseed);
}

TEST(ProducerState, AFileOfAnotherSizeIsRefused) {
  Sample sample;
  ASSERT_NO_FATAL_FAILURE(sample.leave_pending());
  std::filesystem::resize_file(sample.folder / "state" / "baseline", 1'000);
  const auto state = sample.open();
  const auto found = sample.baseline(*state);
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, ErrorCode::kNeedsReseed);
}

}  // namespace
}  // namespace weft::agent
