// SPDX-License-Identifier: Apache-2.0
// Two producers own the left and the right half of every matrix: from files to files.
#include <gtest/gtest.h>

#include <filesystem>
#include <random>

#include "apply/journal/chunk_records.hpp"
#include "apply/journal/journal_reader.hpp"
#include "apply/journal/resolver.hpp"
#include "apply/patch/apply_delta.hpp"
#include "apply/patch/digest_directory.hpp"
#include "apply/patch/patcher.hpp"
#include "apply/spool/delta_file.hpp"
#include "support/refit_builder.hpp"
#include "support/temp_directory.hpp"

namespace weft::apply {
namespace {

using namespace test_support;  // NOLINT(google-build-using-namespace)

NullEventSink no_events;

// Matrices of long, short and very short rows, and what is not cut.
TestCheckpoint matrices(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  TestCheckpoint checkpoint;
  const auto add = [&](const char* file, const char* name, const char* dtype,
                       std::vector<std::uint64_t> shape, std::size_t width) {
    TestTensor tensor{name, dtype, std::move(shape), {}};
    std::uint64_t elements = 1;
    for (const std::uint64_t size : tensor.shape) elements *= size;
    tensor.bytes.resize(static_cast<std::size_t>(elements) * width);
    for (std::byte& byte : tensor.bytes) byte = static_cast<std::byte>(random());
    checkpoint[file].push_back(std::move(tensor));
  };
  add("model-00001-of-00002.safetensors", "down", "BF16", {150, 3001}, 2);
  add("model-00001-of-00002.safetensors", "flags", "BOOL", {13}, 1);
  add("model-00001-of-00002.safetensors", "odd", "F8_E4M3", {701, 97}, 1);
  add("model-00002-of-00002.safetensors", "wide", "BF16", {3, 100'000}, 2);
  add("model-00002-of-00002.safetensors", "tall", "F32", {40'000, 2}, 4);
  add("model-00002-of-00002.safetensors", "norm", "F64", {5}, 8);
  return checkpoint;
}

class ColumnCut : public testing::TestWithParam<double> {
 protected:
  ColumnCut() : base_(matrices(1)), target_(change_elements(base_, GetParam(), 2)) {}
  TestCheckpoint base_;
  TestCheckpoint target_;
};

TEST_P(ColumnCut, ProvedRefitAppliesToTheTargetBitForBit) {
  for (const std::uint32_t producer_count : {2U, 3U}) {
    if (producer_count == 3)
      base_.at("model-00002-of-00002.safetensors")
          .erase(base_.at("model-00002-of-00002.safetensors").begin() + 1);
    if (producer_count == 3)
      target_.at("model-00002-of-00002.safetensors")
          .erase(target_.at("model-00002-of-00002.safetensors").begin() + 1);
    const TestRefit refit =
        make_refit(base_, target_, producer_count, codec::Profile::kCompact, column_cut_of);
    auto root = refit.disk->open();
    auto journals = *root->open_directory("state/journal", true);
    DiskBudget budget{std::uint64_t{1} << 40};
    auto checkpoint = *CheckpointDir::open(*root->open_directory("weights", false), Access::kRead);
    const ResolverBase base{refit.manifest.fleet,
                            refit.manifest.refit,
                            refit.manifest.base,
                            &refit.lattice,
                            &checkpoint,
                            &refit.table,
                            {}};
    auto resolver = *Resolver::open(base, {nullptr, journals.get(), &budget}, false);
    ResolveScratch scratch;
    for (const auto& frame : refit.frames) ASSERT_TRUE(resolver->accept(frame, scratch));
    const Status proved = resolver->prove(refit.manifest);
    ASSERT_TRUE(proved) << proved.error().message();
    const auto journal = JournalReader::open(*journals, refit.manifest.refit, checkpoint.schema());
    ASSERT_TRUE(journal) << journal.error().message();
    const auto applied = apply_journal(**journal, checkpoint, {});
    ASSERT_TRUE(applied) << applied.error().message();
    for (const auto& [name, tensors] : target_) {
      EXPECT_EQ(refit.disk->content("weights/" + name), safetensors_bytes(tensors)) << name;
    }
  }
}

TEST_P(ColumnCut, DeltaFileOfTwoProducersMakesTheDirectoryTheTarget) {
  const TempDirectory directory;
  const auto write = [&](const char* name, const TestCheckpoint& content) {
    std::filesystem::create_directories(directory / name);
    write_checkpoint(**open_store(directory / name, {}, no_events), content, true);
    return *CheckpointDir::open_path(directory / name, Access::kRead, {}, no_events);
  };
  const auto old_dir = write("base", base_);
  const auto new_dir = write("target", target_);
  const auto lattice = column_cut_of(old_dir.schema(), 2);
  auto store = *open_store(directory.path(), {}, no_events);
  auto writer = *DeltaFileWriter::open(*store, "d.weft", old_dir.schema(), lattice);
  CheckpointSource source(lattice, old_dir, new_dir);
  MemorySlots slots(4);
  codec::EncodeFlowOptions options;
  options.threads = 1;
  wire::Manifest manifest;
  for (std::uint32_t i = 0; i < 2; ++i) {
    const auto summary =
        codec::encode_flow(lattice, ProducerIndex{i}, source, slots, *writer, options);
    ASSERT_TRUE(summary) << summary.error().message();
    manifest.producers.push_back(summary->seal);
  }
  manifest.schema = old_dir.schema().digest();
  manifest.base = {Version{}, lattice.digest(),
                   digest_directory(old_dir, lattice, 1)->root(lattice)};
  manifest.target = {Version{}, lattice.digest(),
                     digest_directory(new_dir, lattice, 1)->root(lattice)};
  ASSERT_TRUE(writer->finish(manifest));
  const auto summary = apply_delta_file(directory / "base", directory / "d.weft", {}, no_events);
  ASSERT_TRUE(summary) << summary.error().message();
  EXPECT_TRUE(summary->applied);
  for (const auto& [name, tensors] : target_) {
    EXPECT_EQ(read_file((directory / "base") + "/" + name), safetensors_bytes(tensors)) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Densities, ColumnCut, testing::Values(0.001, 0.03, 0.4, 1.0));

// Bytes per BF16 change of the records of one column half, index included.
double bytes_per_change(std::uint64_t rows, std::uint64_t width, double density) {
  codec::ChunkPlace place;
  place.format = codec::element_format(codec::DType::kBF16);
  place.tile = {{0}, {0}, 0, rows * width / 2, {{{rows, width}}}};
  place.element_count = static_cast<std::uint32_t>(rows * width / 2);
  std::mt19937 random(7);
  std::bernoulli_distribution changes(density);
  std::vector<std::uint32_t> changed;
  for (std::uint32_t i = 0; i < place.element_count; ++i) {
    if (changes(random)) changed.push_back(i);
  }
  const std::vector<std::byte> bytes(place.bytes(), std::byte{1});
  ChunkRecords records;
  records.open(place, changed, bytes);
  std::vector<std::byte> record;
  std::uint64_t total = 0;
  std::uint64_t named = 0;
  while (records.next(record)) {
    EXPECT_TRUE(check_record(record));
    total += record.size() + kJournalIndexEntryBytes;
    const auto header = load_record_header(record);
    named += header->coding == RecordCoding::kWhole ? 0 : header->changed_count;
  }
  EXPECT_TRUE(density > 0.2 || named == changed.size());
  return static_cast<double>(total) / static_cast<double>(changed.size());
}

TEST(ChunkRecords, OfAColumnCutCostLittleMoreThanOfARun) {
  EXPECT_LT(bytes_per_change(64, 8192, 0.03), 3.2);
  EXPECT_LT(bytes_per_change(512, 1024, 0.03), 3.3);
  EXPECT_LT(bytes_per_change(8192, 64, 0.03), 3.6);
  // Nearly all changed: at most 1.07 of the values.
  EXPECT_LT(bytes_per_change(128, 4096, 0.95), 2.0 / 0.95 * 1.07);
}

}  // namespace
}  // namespace weft::apply
