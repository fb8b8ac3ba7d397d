// SPDX-License-Identifier: Apache-2.0
#include "apply/patch/block_reader.hpp"

#include <algorithm>

#include "weft/base/assert.hpp"

namespace weft::apply {

namespace {

// Neighbouring blocks stay with one reader, so that few records are read twice.
constexpr std::uint64_t kStripeBlocks = 16;

}  // namespace

BlockReader::BlockReader(const JournalReader& journal, std::uint32_t block_bytes, BlockShare share)
    : journal_(journal), block_bytes_(block_bytes), share_(share), cursor_(journal.cursor()) {}

std::uint32_t BlockReader::file_of(std::uint64_t address) const {
  const auto& bases = journal_.bases();
  const auto above = std::upper_bound(bases.begin(), bases.end(), address);
  return static_cast<std::uint32_t>(above - bases.begin() - 1);
}

bool BlockReader::wanted(std::uint32_t file_index, std::uint64_t begin) const {
  const std::uint64_t stripe = begin / block_bytes_ / kStripeBlocks + file_index;
  return stripe % share_.share_count == share_.share;
}

Status BlockReader::look_ahead() {
  WEFT_TRY(ahead_, cursor_.next());
  return ok();
}

Status BlockReader::load(BlockRecord& record) const {
  if (record.bytes != nullptr) return ok();
  auto bytes = std::make_shared<std::vector<std::byte>>();
  WEFT_TRY_STATUS(journal_.read_record(record.entry, *bytes));
  record.bytes = std::move(bytes);
  return ok();
}

Result<std::optional<PatchBlock>> BlockReader::next() {
  if (!started_) {
    started_ = true;
    WEFT_TRY_STATUS(look_ahead());
  }
  while (!carried_.empty() || ahead_) {
    WEFT_TRY(PatchBlock block, collect());
    if (!wanted(block.file_index, block.begin)) continue;
    for (BlockRecord& record : block.records) {
      WEFT_TRY_STATUS(load(record));
      // The block behind it finds the bytes loaded.
      for (BlockRecord& carried : carried_) {
        if (carried.entry == record.entry) carried.bytes = record.bytes;
      }
    }
    return std::optional(std::move(block));
  }
  return std::optional<PatchBlock>();
}

Result<PatchBlock> BlockReader::collect() {
  const auto& bases = journal_.bases();
  PatchBlock block;
  if (!carried_.empty()) {
    block.file_index = carried_file_;
    block.begin = carried_begin_;
    block.records = std::move(carried_);
    carried_.clear();
  } else {
    block.file_index = file_of(ahead_->address);
    const std::uint64_t offset = ahead_->address - bases[block.file_index];
    block.begin = offset / block_bytes_ * block_bytes_;
  }
  const std::uint64_t file_begin = bases[block.file_index];
  const std::uint64_t file_bytes = bases[block.file_index + 1] - file_begin;
  block.bytes =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(block_bytes_, file_bytes - block.begin));
  const std::uint64_t end = block.begin + block.bytes;
  while (ahead_ && ahead_->address < file_begin + end) {
    if (ahead_->address + ahead_->bytes > file_begin + file_bytes) {
      return failure(ErrorCode::kNeedsReseed, Stage::kApply,
                     "journal: a record reaches beyond its file");
    }
    block.records.push_back({*ahead_, ahead_->address - file_begin, nullptr});
    ++block.records_begun;
    WEFT_TRY_STATUS(look_ahead());
  }
  for (const BlockRecord& record : block.records) {
    if (record.file_begin + record.entry.bytes > end) carried_.push_back(record);
  }
  carried_file_ = block.file_index;
  carried_begin_ = end;
  return block;
}

}  // namespace weft::apply
