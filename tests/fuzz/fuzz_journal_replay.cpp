// SPDX-License-Identifier: Apache-2.0
// A journal of any bytes against a small checkpoint: it is refused or applied, writes only inside
// the weight files, and a second time changes nothing.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "apply/journal/journal_layout.hpp"
#include "apply/journal/journal_reader.hpp"
#include "apply/patch/patcher.hpp"
#include "support/checkpoint_files.hpp"
#include "support/journal_builder.hpp"
#include "support/memory_store.hpp"
#include "weft/base/assert.hpp"

namespace {

using namespace weft;                // NOLINT(google-build-using-namespace)
using namespace weft::apply;         // NOLINT(google-build-using-namespace)
using namespace weft::test_support;  // NOLINT(google-build-using-namespace)

// With the checks made good, so that the fuzzer reaches what lies behind them.
void mend_record(std::vector<std::byte>& record) {
  if (record.size() < kRecordHeaderBytes) return;
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  XXH3_64bits_update(&state, record.data(), 32);
  XXH3_64bits_update(&state, record.data() + kRecordHeaderBytes,
                     record.size() - kRecordHeaderBytes);
  wire::store_le(record.data() + 32, std::uint64_t{XXH3_64bits_digest(&state)});
}

void replay_record(std::span<const std::byte> input) {
  std::vector<std::byte> record(input.begin(), input.end());
  mend_record(record);
  if (!check_record(record)) return;
  std::vector<std::byte> block(70'000);
  const auto guard = block;
  const std::uint64_t begin = input.size() % 5'000;
  apply_record({record, begin, 1'000}, block);
  auto again = block;
  apply_record({record, begin, 1'000}, again);
  WEFT_ASSERT(again == block);
  std::vector<std::uint8_t> touched(block.size() / 4096 + 1);
  mark_record_pages({record, begin, 1'000}, 4096, touched);
  for (std::size_t i = 0; i < block.size(); ++i) {
    WEFT_ASSERT(block[i] == guard[i] || touched[i / 4096] == 1);
  }
}

void replay_journal(std::span<const std::byte> input) {
  static const TestCheckpoint base = make_checkpoint(3'000, 1);
  static const TestCheckpoint target = change_elements(base, 0.1, 2);
  auto disk = MemoryDisk::make();
  auto root = disk->open();
  auto weights = *root->open_directory("weights", true);
  write_checkpoint(*weights, base, false);
  auto checkpoint = *CheckpointDir::open(std::move(weights), Access::kReadWrite);
  auto journals = *root->open_directory("journal", true);
  WEFT_ASSERT(write_journal(*journals, checkpoint.schema(), base, target));
  const std::string_view names[] = {kRecordsName, kIndexName, kTableName, kSealName};
  const std::string name =
      to_string(test_refit()) + "/" + std::string(names[static_cast<std::size_t>(input[0]) % 4]);
  auto file = *journals->open(name, Access::kReadWrite);
  const std::uint64_t bytes = *file->size();
  const std::uint64_t at = wire::load_le<std::uint16_t>(input.data() + 1) % (bytes + 1);
  WEFT_ASSERT(file->write(at, input.subspan(3)));
  const auto reader = JournalReader::open(*journals, test_refit(), checkpoint.schema());
  if (!reader) return;
  static_cast<void>((*reader)->table(*codec::Lattice::default_for(checkpoint.schema())));
  PatchOptions options;
  options.block_bytes = 64 * 1024;
  options.depth = 2;
  const auto applied = apply_journal(**reader, checkpoint, options);
  if (!applied) return;
  for (const auto& [file_name, tensors] : target) {
    WEFT_ASSERT(disk->content("weights/" + file_name) == safetensors_bytes(tensors));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t count) {
  if (count < 4) return 0;
  const auto input = std::as_bytes(std::span(bytes + 1, count - 1));
  if (bytes[0] % 2 == 0) {
    replay_record(input);
  } else {
    replay_journal(input);
  }
  return 0;
}
