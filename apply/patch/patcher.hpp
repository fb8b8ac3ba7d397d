// SPDX-License-Identifier: Apache-2.0
// Writes a journal into the weight files: the only code that changes weights.
#pragma once

#include <cstdint>
#include <functional>

#include "apply/journal/journal_reader.hpp"
#include "apply/store/checkpoint_dir.hpp"
#include "weft/base/limits.hpp"
#include "weft/base/result.hpp"

namespace weft::apply {

// More threads than this gain nothing, and each pins a set of buffers.
inline constexpr std::uint32_t kPatchThreadsMax = 8;

// Threads: a value; one at a time.
struct PatchOptions {
  std::uint32_t block_bytes = limits::kApplyBlockBytes;  // a power of two, at least 64 KiB
  std::uint32_t depth = 8;                               // blocks in flight per thread
  std::uint32_t threads = 1;  // kPatchThreadsMax are used; each has depth blocks
  // Written behind the cursor while the apply goes on; 0: only the final sync writes back.
  std::uint64_t writeback_bytes = 64 * 1024 * 1024;
  // Forget the page cache behind the cursor: for machines whose cache is counted against a limit
  // and whose readers do not map these files.
  bool drop_cache = false;
  // Called from the patching threads, one at a time, with records done and in all.
  std::function<void(std::uint64_t done, std::uint64_t total)> on_progress;
};

// Threads: a value; one at a time.
struct PatchStats {
  std::uint64_t records = 0;
  std::uint64_t blocks = 0;
  std::uint64_t read_bytes = 0;
  std::uint64_t written_bytes = 0;
};

// Writes every record of the journal into the checkpoint, which must be open for writing. May be
// cut off at any point and done again: the result is the same. Bytes that no record names, file
// sizes, headers and modes stay. Does not sync: call CheckpointDir::sync() behind it.
// Errors: kNoSpace, kIoFailed, kResourceLimit, kDenied (the journal is intact: again, or reseed),
//   kNeedsReseed (the journal is damaged), kSchemaChanged, kConcurrentModification (a file became
//   shorter).
Result<PatchStats> apply_journal(const JournalReader& journal, CheckpointDir& checkpoint,
                                 const PatchOptions& options);

}  // namespace weft::apply
