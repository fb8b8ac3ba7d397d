// SPDX-License-Identifier: Apache-2.0
#include "apply/patch/patcher.hpp"

#include <algorithm>
#include <bit>
#include <string>
#include <vector>

#include "apply/patch/block_patcher.hpp"
#include "apply/store/native_error.hpp"
#include "apply/store/thread_crew.hpp"

namespace weft::apply {

namespace {

constexpr std::uint32_t kBlockBytesMin = 64 * 1024;
constexpr std::uint32_t kBlockBytesMax = 64 * 1024 * 1024;
constexpr std::uint32_t kDepthMax = 256;

Status check_options(const PatchOptions& options) {
  const auto refuse = [](const std::string& what) {
    return failure(ErrorCode::kConfig, Stage::kApply, "apply." + what);
  };
  if (!std::has_single_bit(options.block_bytes) || options.block_bytes < kBlockBytesMin ||
      options.block_bytes > kBlockBytesMax) {
    return refuse("block_bytes: " + std::to_string(options.block_bytes) +
                  "; a power of two from 65536 to 67108864");
  }
  if (options.depth == 0 || options.depth > kDepthMax) {
    return refuse("depth: " + std::to_string(options.depth) + "; from 1 to 256");
  }
  if (options.threads == 0) return refuse("threads: 0; at least 1");
  return ok();
}

}  // namespace

Result<PatchStats> apply_journal(const JournalReader& journal, CheckpointDir& checkpoint,
                                 const PatchOptions& options) {
  WEFT_TRY_STATUS(check_options(options));
  if (!checkpoint.writable()) {
    return failure(ErrorCode::kDenied, Stage::kApply, "the checkpoint is not open for writing");
  }
  if (journal.bases() != file_bases(checkpoint.schema())) {
    return failure(ErrorCode::kSchemaChanged, Stage::kApply,
                   "the journal is of files of other sizes than the checkpoint's");
  }
  PatchShared shared(options);
  shared.record_total = journal.record_count();
  const std::uint32_t threads = std::min(options.threads, kPatchThreadsMax);
  std::vector<std::unique_ptr<BlockPatcher>> patchers;
  for (std::uint32_t i = 0; i < threads; ++i) {
    WEFT_TRY(auto patcher, BlockPatcher::open(journal, checkpoint, {i, threads}, shared));
    patchers.push_back(std::move(patcher));
  }
  std::vector<Status> outcomes(threads);
  WEFT_TRY_STATUS(run_on_threads(threads, Stage::kApply,
                                 [&](std::uint32_t i) { outcomes[i] = patchers[i]->run(); }));
  PatchStats stats;
  for (std::uint32_t i = 0; i < threads; ++i) {
    if (!outcomes[i]) return at_stage(outcomes[i].error(), Stage::kApply);
    stats.records += patchers[i]->stats().records;
    stats.blocks += patchers[i]->stats().blocks;
    stats.read_bytes += patchers[i]->stats().read_bytes;
    stats.written_bytes += patchers[i]->stats().written_bytes;
  }
  return stats;
}

}  // namespace weft::apply
