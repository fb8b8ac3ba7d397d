// SPDX-License-Identifier: Apache-2.0
#include "apply/patch/block_patcher.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace weft::apply {

namespace {

constexpr std::uint32_t kPageBytes = 4096;
// Touched pages with at most so many untouched ones between them are one run: one request costs
// about as much as copying eight pages.
constexpr std::uint32_t kGapPagesMax = 8;
constexpr std::uint32_t kRequestsPerBlock = 4;

}  // namespace

BlockPatcher::BlockPatcher(const JournalReader& journal, CheckpointDir& checkpoint,
                           BlockShare share, PatchShared& shared)
    : checkpoint_(checkpoint),
      shared_(shared),
      reader_(journal, shared.options.block_bytes, share),
      slots_(shared.options.depth) {
  for (std::uint32_t i = shared.options.depth; i-- > 0;) free_slots_.push_back(i);
}

Result<std::unique_ptr<BlockPatcher>> BlockPatcher::open(const JournalReader& journal,
                                                         CheckpointDir& checkpoint,
                                                         BlockShare share, PatchShared& shared) {
  std::unique_ptr<BlockPatcher> patcher(new BlockPatcher(journal, checkpoint, share, shared));
  IoQueueOptions options;
  options.depth = shared.options.depth * kRequestsPerBlock;
  options.buffer_count = shared.options.depth;
  options.buffer_bytes = shared.options.block_bytes;
  WEFT_TRY(patcher->queue_, checkpoint.store().open_queue(options));
  return patcher;
}

Status BlockPatcher::run() {
  Status status = ok();
  while (status) {
    status = start_blocks();
    if (!status || (queue_->in_flight() == 0 && waiting_.empty())) break;
    pump();
    status = take_completions();
  }
  if (!status) {
    shared_.stop = true;
    waiting_.clear();
    // The first error counts; the rest is only waited for.
    static_cast<void>(drain());
    return status;
  }
  flush_window();
  return ok();
}

Status BlockPatcher::start_blocks() {
  while (!at_end_ && !free_slots_.empty()) {
    if (shared_.stop) {
      at_end_ = true;
      return ok();
    }
    WEFT_TRY(auto block, reader_.next());
    if (!block) {
      at_end_ = true;
      return ok();
    }
    const std::uint32_t slot_index = free_slots_.back();
    free_slots_.pop_back();
    Slot& slot = slots_[slot_index];
    slot.block = *std::move(block);
    find_runs(slot);
    if (slot.runs.empty()) {
      // A record reaches into this block, but none of its changes lies here.
      release(slot_index);
    } else {
      send(slot_index, IoRequest::Kind::kRead);
    }
  }
  return ok();
}

void BlockPatcher::find_runs(Slot& slot) const {
  const PatchBlock& block = slot.block;
  const std::uint32_t page_count = (block.bytes + kPageBytes - 1) / kPageBytes;
  std::vector<std::uint8_t> touched(page_count);
  for (const BlockRecord& record : block.records) {
    mark_record_pages({*record.bytes, record.file_begin, block.begin}, kPageBytes, touched);
  }
  slot.runs.clear();
  std::uint32_t run_end = 0;  // page behind the last run
  for (std::uint32_t page = 0; page < page_count; ++page) {
    if (touched[page] == 0) continue;
    if (slot.runs.empty() || page > run_end + kGapPagesMax) {
      slot.runs.push_back({page * kPageBytes, 0});
    }
    run_end = page + 1;
    Run& run = slot.runs.back();
    run.bytes = std::min(run_end * kPageBytes, block.bytes) - run.begin;
  }
}

void BlockPatcher::send(std::uint32_t slot_index, IoRequest::Kind kind) {
  Slot& slot = slots_[slot_index];
  slot.writing = kind == IoRequest::Kind::kWrite;
  slot.open_requests = slot.runs.size();
  File& file = checkpoint_.file(slot.block.file_index);
  for (const Run& run : slot.runs) {
    waiting_.push_back({kind, &file, slot.block.begin + run.begin,
                        queue_->buffer(slot_index).subspan(run.begin, run.bytes), slot_index});
    (slot.writing ? stats_.written_bytes : stats_.read_bytes) += run.bytes;
  }
}

void BlockPatcher::pump() {
  while (!waiting_.empty() && queue_->in_flight() < queue_->depth()) {
    queue_->post(waiting_.front());
    waiting_.pop_front();
  }
}

Status BlockPatcher::take_completions() {
  std::array<IoCompletion, 32> taken;
  WEFT_TRY(const std::size_t count, queue_->wait(taken));
  Status first = ok();
  for (std::size_t i = 0; i < count; ++i) {
    if (!taken[i].status) {
      if (first) first = std::move(taken[i].status);
      continue;
    }
    if (first) complete(static_cast<std::uint32_t>(taken[i].token));
  }
  return first;
}

void BlockPatcher::complete(std::uint32_t slot_index) {
  Slot& slot = slots_[slot_index];
  if (--slot.open_requests > 0) return;
  if (!slot.writing) {
    patch(slot_index);
    send(slot_index, IoRequest::Kind::kWrite);
    return;
  }
  note_written(slot.block);
  release(slot_index);
}

void BlockPatcher::release(std::uint32_t slot_index) {
  PatchBlock& block = slots_[slot_index].block;
  ++stats_.blocks;
  stats_.records += block.records_begun;
  const std::uint64_t done = shared_.records_done += block.records_begun;
  if (shared_.options.on_progress) {
    shared_.reporting.with([&](int) { shared_.options.on_progress(done, shared_.record_total); });
  }
  block.records.clear();
  free_slots_.push_back(slot_index);
}

void BlockPatcher::patch(std::uint32_t slot_index) {
  const Slot& slot = slots_[slot_index];
  // Between the runs the buffer holds what an older block left; it is never written.
  const auto buffer = queue_->buffer(slot_index).first(slot.block.bytes);
  for (const BlockRecord& record : slot.block.records) {
    apply_record({*record.bytes, record.file_begin, slot.block.begin}, buffer);
  }
}

void BlockPatcher::note_written(const PatchBlock& block) {
  if (shared_.options.writeback_bytes == 0) return;
  const std::uint64_t end = block.begin + block.bytes;
  if (window_.file_index != block.file_index || window_.end == 0) {
    flush_window();
    window_ = {block.file_index, block.begin, end};
  }
  window_.begin = std::min(window_.begin, block.begin);
  window_.end = std::max(window_.end, end);
  if (window_.end - window_.begin >= shared_.options.writeback_bytes) flush_window();
}

void BlockPatcher::flush_window() {
  if (window_.end == 0) return;
  checkpoint_.file(window_.file_index).start_writeback(window_.begin, window_.end - window_.begin);
  if (shared_.options.drop_cache && former_window_.end != 0) {
    checkpoint_.file(former_window_.file_index)
        .drop_cache(former_window_.begin, former_window_.end - former_window_.begin);
  }
  former_window_ = std::exchange(window_, {});
}

Status BlockPatcher::drain() {
  std::array<IoCompletion, 32> taken;
  while (queue_->in_flight() > 0) {
    WEFT_TRY(const std::size_t count, queue_->wait(taken));
    static_cast<void>(count);
  }
  return ok();
}

}  // namespace weft::apply
