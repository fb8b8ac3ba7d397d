// SPDX-License-Identifier: Apache-2.0
#include "bench/make_checkpoint.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "bench/checkpoint_model.hpp"
#include "weft/wire/digest.hpp"

namespace weft::bench {
namespace {

namespace fs = std::filesystem;

class MakeCheckpoint : public ::testing::Test {
 protected:
  MakeCheckpoint() {
    std::string pattern = ::testing::TempDir() + "/weft_make_checkpoint_XXXXXX";
    directory_ = ::mkdtemp(pattern.data());
  }
  ~MakeCheckpoint() override { fs::remove_all(directory_); }

  MakeCheckpointOptions options(const std::string& name) const {
    MakeCheckpointOptions options;
    options.directory = (directory_ / name).string();
    options.bytes = 2 * kMiB;
    return options;
  }

  fs::path directory_;
};

std::string read_file(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

// The values of a file, behind its header.
std::vector<std::uint16_t> values_of(const fs::path& path) {
  const std::string file = read_file(path);
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file.data(), sizeof(header_bytes));
  std::vector<std::uint16_t> values((file.size() - 8 - header_bytes) / 2);
  std::memcpy(values.data(), file.data() + 8 + header_bytes, values.size() * 2);
  return values;
}

std::string all_files(const std::string& directory) {
  std::vector<fs::path> paths;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory))
    paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  std::string all;
  for (const fs::path& path : paths) all += path.filename().string() + "\n" + read_file(path);
  return all;
}

TEST_F(MakeCheckpoint, WritesTheSameBytesWithAnyNumberOfThreads) {
  MakeCheckpointOptions one = options("one");
  one.thread_count = 1;
  MakeCheckpointOptions three = options("three");
  three.thread_count = 3;
  const auto first = make_checkpoint(one);
  const auto second = make_checkpoint(three);
  ASSERT_TRUE(first) << first.error().message();
  ASSERT_TRUE(second) << second.error().message();
  EXPECT_EQ(all_files(first->directories[0]), all_files(second->directories[0]));
  EXPECT_EQ(all_files(first->directories[1]), all_files(second->directories[1]));
}

TEST_F(MakeCheckpoint, WritesOtherBytesForAnotherSeed) {
  MakeCheckpointOptions other = options("other");
  other.seed = 2;
  const auto first = make_checkpoint(options("first"));
  const auto second = make_checkpoint(other);
  ASSERT_TRUE(first && second);
  EXPECT_NE(all_files(first->directories[0]), all_files(second->directories[0]));
}

// Figures of different releases are comparable only while this holds: a change of the generator
// needs a line in the changelog.
TEST_F(MakeCheckpoint, MakesTheModelThatEarlierFiguresWereTakenOn) {
  MakeCheckpointOptions small = options("small");
  small.bytes = 256 * kKiB;
  const auto made = make_checkpoint(small);
  ASSERT_TRUE(made);
  const std::string all = all_files(made->directories[0]) + all_files(made->directories[1]);
  EXPECT_EQ(to_hex(wire::digest64(std::as_bytes(std::span(all)))), "f93213c4b22cded1");
}

TEST_F(MakeCheckpoint, CountsWhatDiffers) {
  for (const double wanted : {1.0, 3.0, 5.0, 40.0}) {
    MakeCheckpointOptions asked = options("percent-" + std::to_string(wanted));
    asked.changed_percents = {wanted};
    const auto made = make_checkpoint(asked);
    ASSERT_TRUE(made);
    const auto base = values_of(made->directories[0] + "/model.safetensors");
    const auto target = values_of(made->directories[1] + "/model.safetensors");
    ASSERT_EQ(base.size(), made->element_count);
    ASSERT_EQ(target.size(), made->element_count);
    std::uint64_t changed = 0;
    for (std::size_t i = 0; i < base.size(); ++i) changed += base[i] != target[i] ? 1U : 0U;
    EXPECT_EQ(changed, made->steps[0].changed_count);
    EXPECT_NEAR(made->steps[0].changed_percent, wanted, 0.03 * wanted);
  }
}

TEST_F(MakeCheckpoint, WritesOneCheckpointPerStepEachFromTheLast) {
  MakeCheckpointOptions asked = options("steps");
  asked.changed_percents = {5, 1};
  const auto made = make_checkpoint(asked);
  ASSERT_TRUE(made);
  ASSERT_EQ(made->directories.size(), 3U);
  EXPECT_EQ(made->directories[2], asked.directory + "/step-2");
  std::vector<std::uint16_t> before = values_of(made->directories[0] + "/model.safetensors");
  for (std::size_t step = 0; step < 2; ++step) {
    const auto after = values_of(made->directories[step + 1] + "/model.safetensors");
    std::uint64_t changed = 0;
    for (std::size_t i = 0; i < after.size(); ++i) changed += before[i] != after[i] ? 1U : 0U;
    EXPECT_EQ(changed, made->steps[step].changed_count);
    EXPECT_NEAR(made->steps[step].changed_percent, asked.changed_percents[step],
                0.03 * asked.changed_percents[step]);
    before = after;
  }
}

TEST_F(MakeCheckpoint, RemovesWhatItWroteWhenStopped) {
  MakeCheckpointOptions asked = options("stopped");
  asked.stop_requested = [] { return true; };
  const auto made = make_checkpoint(asked);
  ASSERT_FALSE(made);
  EXPECT_FALSE(fs::exists(asked.directory + "/base"));
  EXPECT_FALSE(fs::exists(asked.directory + "/target"));
}

// The fact that the codec lives from: the step has one size, the spacing of values doubles.
TEST_F(MakeCheckpoint, ChangesSmallValuesMoreOftenAndMostlyByOneStep) {
  MakeCheckpointOptions asked = options("exponents");
  asked.bytes = 8 * kMiB;
  const auto made = make_checkpoint(asked);
  ASSERT_TRUE(made);
  const auto base = values_of(made->directories[0] + "/model.safetensors");
  const auto target = values_of(made->directories[1] + "/model.safetensors");
  std::array<double, 256> seen{};
  std::array<double, 256> changed{};
  double one_step = 0;
  for (std::size_t i = 0; i < base.size(); ++i) {
    const std::size_t exponent = (base[i] >> 7) & 0xFFU;
    ++seen[exponent];
    if (base[i] == target[i]) continue;
    ++changed[exponent];
    one_step += std::abs(int{base[i]} - int{target[i]}) == 1 ? 1 : 0;
  }
  for (const std::size_t exponent : {118U, 119U, 120U, 121U}) {  // 2^-9 to 2^-6
    const double larger = changed[exponent + 1] / seen[exponent + 1];
    const double smaller = changed[exponent] / seen[exponent];
    EXPECT_NEAR(smaller / larger, 2.0, 0.5) << exponent;
  }
  EXPECT_NEAR(one_step / static_cast<double>(made->steps[0].changed_count), 0.88, 0.05);
}

TEST_F(MakeCheckpoint, WritesShardsAndAnIndexThatNamesEveryTensor) {
  MakeCheckpointOptions sharded = options("sharded");
  sharded.file_count = 3;
  const auto made = make_checkpoint(sharded);
  ASSERT_TRUE(made);
  EXPECT_EQ(made->file_count, 3U);
  const std::string index = read_file(made->directories[0] + "/model.safetensors.index.json");
  const CheckpointModel model(sharded.bytes, sharded.seed);
  EXPECT_EQ(model.tensors().size(), made->tensor_count);
  std::array<std::string, 3> heads;
  std::uint64_t value_bytes = 0;
  for (int f = 1; f <= 3; ++f) {
    const std::string name = "model-0000" + std::to_string(f) + "-of-00003.safetensors";
    const std::string path = made->directories[0] + "/" + name;
    heads[static_cast<std::size_t>(f) - 1] = read_file(path);
    value_bytes += 2 * values_of(path).size();
  }
  EXPECT_EQ(value_bytes, made->tensor_bytes);
  EXPECT_LE(made->tensor_bytes, sharded.bytes);
  EXPECT_GT(made->tensor_bytes, sharded.bytes - 4096);
  for (const MadeTensor& tensor : model.tensors()) {
    const std::string key = "\"" + tensor.name + "\"";
    const std::size_t place = index.find(key + ": \"model-0000");
    ASSERT_NE(place, std::string::npos) << tensor.name;
    const auto file = static_cast<std::size_t>(index[place + key.size() + 13] - '1');
    ASSERT_LT(file, heads.size());
    EXPECT_NE(heads[file].find(key + ":{\"dtype\":\"BF16\""), std::string::npos) << tensor.name;
  }
}

TEST_F(MakeCheckpoint, ReportsProgressUntilAllBytesAreWritten) {
  MakeCheckpointOptions asked = options("progress");
  std::uint64_t last = 0;
  std::uint64_t total = 0;
  bool grew = true;
  asked.on_progress = [&](std::uint64_t done, std::uint64_t all) {
    grew = grew && done > last;
    last = done;
    total = all;
  };
  const auto made = make_checkpoint(asked);
  ASSERT_TRUE(made);
  EXPECT_TRUE(grew);
  EXPECT_EQ(last, 2 * made->tensor_bytes);
  EXPECT_EQ(total, 2 * made->tensor_bytes);
}

TEST_F(MakeCheckpoint, NeverTouchesWhatIsThere) {
  const MakeCheckpointOptions asked = options("there");
  ASSERT_TRUE(make_checkpoint(asked));
  const std::string before = all_files(asked.directory + "/base");
  const auto again = make_checkpoint(asked);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, ErrorCode::kConfig);
  EXPECT_EQ(all_files(asked.directory + "/base"), before);
}

TEST_F(MakeCheckpoint, RefusesOptionsOutsideTheirRange) {
  for (const double percent : {0.0, -1.0, 60.0, std::nan("")}) {
    MakeCheckpointOptions asked = options("refused");
    asked.changed_percents = {percent};
    const auto made = make_checkpoint(asked);
    ASSERT_FALSE(made) << percent;
    EXPECT_EQ(made.error().code, ErrorCode::kConfig);
  }
  MakeCheckpointOptions small = options("refused");
  small.bytes = 65'535;
  EXPECT_FALSE(make_checkpoint(small));
  EXPECT_FALSE(fs::exists(small.directory));
}

TEST(Bfloat16, RoundsHalfToEven) {
  EXPECT_EQ(to_bfloat16(std::bit_cast<float>(0x3F80'8000U)), 0x3F80);
  EXPECT_EQ(to_bfloat16(std::bit_cast<float>(0x3F81'8000U)), 0x3F82);
  EXPECT_EQ(to_bfloat16(std::bit_cast<float>(0x3F80'8001U)), 0x3F81);
  EXPECT_EQ(to_bfloat16(-0.0F), 0x8000);
}

}  // namespace
}  // namespace weft::bench
