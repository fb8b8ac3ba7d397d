// SPDX-License-Identifier: Apache-2.0
// The changes of one chunk as journal records, in canonical coordinates.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "apply/journal/journal_record.hpp"
#include "codec/project/lattice.hpp"
#include "weft/base/result.hpp"

namespace weft::apply {

// ChunkRecords turns a chunk's changes into one record where the chunk is one run of its tensor,
// and into as few as pay where it is many (a column cut): a record reaches over what belongs to
// others as long as that is cheaper than another record.
// Life:    open -> next until it gives false.
// Threads: one at a time.
class ChunkRecords {
 public:
  // `changed` ascends and is not empty; `new_bytes` is the whole chunk. All stay with the caller.
  void open(const codec::ChunkPlace& place, std::span<const std::uint32_t> changed,
            std::span<const std::byte> new_bytes);
  // Replaces `record` by the next one. False: there are no more.
  bool next(std::vector<std::byte>& record);

 private:
  void next_run(std::vector<std::byte>& record);
  void next_reach(std::vector<std::byte>& record);

  const codec::ChunkPlace* place_ = nullptr;
  std::span<const std::uint32_t> changed_;  // still to come
  std::span<const std::byte> new_bytes_;
  bool run_by_run_ = false;
  std::vector<std::uint32_t> offsets_;  // from the record's first element
  std::vector<std::byte> values_;
};

}  // namespace weft::apply
