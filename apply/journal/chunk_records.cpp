// SPDX-License-Identifier: Apache-2.0
#include "apply/journal/chunk_records.hpp"

#include <algorithm>

#include "apply/journal/journal_layout.hpp"
#include "weft/base/assert.hpp"
#include "weft/base/limits.hpp"

namespace weft::apply {

namespace {

// A gap costs a byte per 255 elements; beyond this a new record is cheaper.
constexpr std::uint64_t kReachGapMax = 255 * (kRecordHeaderBytes + kJournalIndexEntryBytes);
// Positions of a record that reaches over others' elements cost at most an eighth of what it
// covers, so values of this much leave room in the largest record.
constexpr std::size_t kReachValueBytesMax = limits::kChunkBytesMax / 2;
// Runs from this length on have records of their own when most of the chunk changes.
constexpr std::uint64_t kDenseRunBytesMin = 1024;

}  // namespace

void ChunkRecords::open(const codec::ChunkPlace& place, std::span<const std::uint32_t> changed,
                        std::span<const std::byte> new_bytes) {
  WEFT_ASSERT(!changed.empty() && new_bytes.size() == place.bytes());
  place_ = &place;
  changed_ = changed;
  new_bytes_ = new_bytes;
  const bool dense = changed.size() > place.element_count / 4;
  const std::uint64_t run_bytes = place.tile.run_elements() * place.element_bytes();
  run_by_run_ = place.is_one_run() || (dense && run_bytes >= kDenseRunBytesMin);
}

bool ChunkRecords::next(std::vector<std::byte>& record) {
  if (changed_.empty()) return false;
  record.clear();
  run_by_run_ ? next_run(record) : next_reach(record);
  return true;
}

void ChunkRecords::next_run(std::vector<std::byte>& record) {
  const auto width = static_cast<std::uint8_t>(place_->element_bytes());
  if (place_->is_one_run()) {
    encode_record(place_->tensor, place_->first_element, width, changed_, new_bytes_, record);
    changed_ = {};
    return;
  }
  const std::uint64_t run = place_->tile.run_elements();
  const std::uint64_t number = (place_->tile_offset + changed_[0]) / run;
  const std::uint64_t begin = std::max(number * run, place_->tile_offset) - place_->tile_offset;
  const std::uint64_t end =
      std::min<std::uint64_t>((number + 1) * run - place_->tile_offset, place_->element_count);
  offsets_.clear();
  std::size_t count = 0;
  for (; count < changed_.size() && changed_[count] < end; ++count) {
    offsets_.push_back(static_cast<std::uint32_t>(changed_[count] - begin));
  }
  changed_ = changed_.subspan(count);
  encode_record(place_->tensor, place_->element_at(static_cast<std::uint32_t>(begin)), width,
                offsets_,
                new_bytes_.subspan(static_cast<std::size_t>(begin) * width,
                                   static_cast<std::size_t>(end - begin) * width),
                record);
}

void ChunkRecords::next_reach(std::vector<std::byte>& record) {
  const std::uint32_t width = place_->element_bytes();
  const std::uint64_t run = place_->tile.run_elements();
  const std::uint64_t first = place_->element_at(changed_[0]);
  offsets_.clear();
  values_.clear();
  std::uint64_t last = first;
  std::uint64_t run_begin = 0;  // of the run that was looked up last, in the chunk
  std::uint64_t run_end = 0;
  std::uint64_t run_element = 0;
  std::size_t count = 0;
  for (; count < changed_.size(); ++count) {
    const std::uint32_t offset = changed_[count];
    if (offset >= run_end) {
      run_begin = offset;
      run_element = place_->element_at(offset);
      run_end = ((place_->tile_offset + offset) / run + 1) * run - place_->tile_offset;
    }
    const std::uint64_t element = run_element + (offset - run_begin);
    if (element - last > kReachGapMax || (element - first + 1) * width > limits::kChunkBytesMax ||
        values_.size() >= kReachValueBytesMax) {
      break;
    }
    offsets_.push_back(static_cast<std::uint32_t>(element - first));
    const auto value = new_bytes_.subspan(std::size_t{offset} * width, width);
    values_.insert(values_.end(), value.begin(), value.end());
    last = element;
  }
  changed_ = changed_.subspan(count);
  encode_reaching_record(place_->tensor, first, static_cast<std::uint8_t>(width), offsets_, values_,
                         record);
}

}  // namespace weft::apply
