// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "apply/patch/block_reader.hpp"
#include "apply/patch/patcher.hpp"
#include "apply/store/io_queue.hpp"
#include "weft/base/guarded.hpp"

namespace weft::apply {

// What the patching threads of one apply share.
// Threads: any.
struct PatchShared {
  explicit PatchShared(const PatchOptions& patch_options) : options(patch_options) {}
  const PatchOptions& options;
  std::uint64_t record_total = 0;
  std::atomic<std::uint64_t> records_done{0};
  std::atomic<bool> stop{false};  // one thread has failed
  Guarded<int> reporting;         // one on_progress at a time
};

// BlockPatcher works off one share of the blocks: read what is touched, patch in a queue buffer,
// write it back, several blocks in flight.
// Invariant: a block is in one slot of one patcher from its first read to its last write.
// Owns:    its queue and reader.
// Threads: one at a time.
class BlockPatcher {
 public:
  static Result<std::unique_ptr<BlockPatcher>> open(const JournalReader& journal,
                                                    CheckpointDir& checkpoint, BlockShare share,
                                                    PatchShared& shared);
  Status run();
  const PatchStats& stats() const { return stats_; }

 private:
  // A run of touched pages of a block.
  struct Run {
    std::uint32_t begin = 0;
    std::uint32_t bytes = 0;
  };
  struct Slot {
    PatchBlock block;
    std::vector<Run> runs;
    std::size_t open_requests = 0;
    bool writing = false;
  };
  // Written since write-back was last started, of one file.
  struct Window {
    std::uint32_t file_index = 0;
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
  };

  BlockPatcher(const JournalReader& journal, CheckpointDir& checkpoint, BlockShare share,
               PatchShared& shared);
  Status start_blocks();
  void find_runs(Slot& slot) const;
  void send(std::uint32_t slot_index, IoRequest::Kind kind);
  void pump();
  Status take_completions();
  void complete(std::uint32_t slot_index);
  void patch(std::uint32_t slot_index);
  void release(std::uint32_t slot_index);
  void note_written(const PatchBlock& block);
  void flush_window();
  Status drain();

  CheckpointDir& checkpoint_;
  PatchShared& shared_;
  BlockReader reader_;
  std::unique_ptr<IoQueue> queue_;
  std::vector<Slot> slots_;
  std::vector<std::uint32_t> free_slots_;
  std::deque<IoRequest> waiting_;  // for a place in the queue
  bool at_end_ = false;
  Window window_;
  Window former_window_;
  PatchStats stats_;
};

}  // namespace weft::apply
