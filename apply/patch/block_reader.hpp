// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "apply/journal/journal_reader.hpp"
#include "weft/base/result.hpp"

namespace weft::apply {

// A record that touches a block, and where it begins in the block's file.
// Threads: a value; one at a time.
struct BlockRecord {
  JournalIndexEntry entry;
  std::uint64_t file_begin = 0;
  std::shared_ptr<const std::vector<std::byte>> bytes;  // shared by the blocks it lies across
};

// One aligned block of one file with every record that touches it.
// Threads: a value; one at a time.
struct PatchBlock {
  std::uint32_t file_index = 0;
  std::uint64_t begin = 0;
  std::uint32_t bytes = 0;  // less than a whole block only at the file's end
  std::vector<BlockRecord> records;
  std::uint32_t records_begun = 0;  // records whose first byte lies here: each counts once
};

// Which of the blocks are wanted: stripes of `stripe_blocks` blocks go round `share_count` readers.
// Threads: a value; one at a time.
struct BlockShare {
  std::uint32_t share = 0;
  std::uint32_t share_count = 1;
};

// BlockReader walks a journal in the order of addresses and hands out the blocks that it touches,
// each exactly once among all shares.
// Owns:    its cursor; the journal must outlive it.
// Threads: one at a time.
class BlockReader {
 public:
  BlockReader(const JournalReader& journal, std::uint32_t block_bytes, BlockShare share);

  // The next wanted block, or nullopt behind the last one. Errors: kNeedsReseed, I/O.
  Result<std::optional<PatchBlock>> next();

 private:
  bool wanted(std::uint32_t file_index, std::uint64_t begin) const;
  Result<PatchBlock> collect();
  Status load(BlockRecord& record) const;
  Status look_ahead();
  std::uint32_t file_of(std::uint64_t address) const;

  const JournalReader& journal_;
  std::uint32_t block_bytes_;
  BlockShare share_;
  JournalCursor cursor_;
  std::optional<JournalIndexEntry> ahead_;
  bool started_ = false;
  // Records that reach into the block behind the last one.
  std::vector<BlockRecord> carried_;
  std::uint32_t carried_file_ = 0;
  std::uint64_t carried_begin_ = 0;
};

}  // namespace weft::apply
