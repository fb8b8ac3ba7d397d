// SPDX-License-Identifier: Apache-2.0
#include "agent/lib/shard_baseline.hpp"

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>

#include "agent/lib/fault_point.hpp"
#include "apply/journal/journal_record.hpp"
#include "weft/base/guarded.hpp"
#include "weft/wire/digest.hpp"

namespace weft::agent {

ShardBaseline::ShardBaseline(const codec::Lattice& lattice, ProducerIndex producer,
                             ProducerState* state)
    : lattice_(lattice),
      producer_(producer),
      chunks_(lattice.chunks_of(producer)),
      state_(state),
      pending_(chunks_.count),
      table_(lattice.chunk_count()) {
  std::uint64_t end = 0;
  offsets_.push_back(0);
  for (std::uint32_t i = 0; i < chunks_.count; ++i) {
    end += lattice.place({chunks_.first.value + i}).bytes();
    offsets_.push_back(end);
  }
}

Result<std::unique_ptr<ShardBaseline>> ShardBaseline::open(const codec::Lattice& lattice,
                                                           ProducerIndex producer,
                                                           const Place& place) {
  std::unique_ptr<ShardBaseline> baseline(new ShardBaseline(lattice, producer, place.state));
  if (place.state != nullptr) {
    WEFT_TRY(baseline->bytes_, place.state->map_baseline(baseline->offsets_.back()));
  } else {
    const auto bytes = static_cast<std::size_t>(baseline->offsets_.back());
    baseline->memory_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
    baseline->bytes_ = {baseline->memory_.get(), bytes};
  }
  const apply::ProducerFold known =
      place.state != nullptr ? place.state->fold() : apply::ProducerFold{};
  const auto load = [&](ChunkIndex chunk) -> Status {
    const auto bytes = baseline->chunk_bytes(chunk);
    if (!known.baseline) WEFT_TRY_STATUS(place.base->read(lattice.place(chunk), bytes));
    baseline->table_.set(chunk, wire::digest64(bytes));
    return ok();
  };
  WEFT_TRY_STATUS(baseline->for_each_chunk(place.threads, load));
  if (known.baseline) {
    WEFT_TRY_STATUS(baseline->take_over(known));
    return baseline;
  }
  WEFT_TRY_STATUS(place.base->check_identity());
  if (place.state != nullptr) WEFT_TRY_STATUS(place.state->sync_baseline());
  return baseline;
}

Status ShardBaseline::for_each_chunk(std::uint32_t threads,
                                     const std::function<Status(ChunkIndex)>& work) {
  std::atomic<std::uint32_t> next{0};
  Guarded<Status> failed;
  const auto run = [&] {
    for (std::uint32_t i = next++; i < chunks_.count; i = next++) {
      Status done = work({chunks_.first.value + i});
      if (done) continue;
      failed.with([&](Status& status) { status = std::move(done); });
      return;
    }
  };
  std::vector<std::thread> others;
  for (std::uint32_t t = 1; t < threads; ++t) others.emplace_back(run);
  run();
  for (std::thread& other : others) other.join();
  return failed.with([](const Status& status) { return status; });
}

// With values pending, the file may be half moved: what it holds is checked when they are.
Status ShardBaseline::take_over(const apply::ProducerFold& known) {
  if (known.pending) {
    expected_part_ = known.pending->part;
    WEFT_TRY(auto chunks, state_->read_pending(known.pending->prepared.refit));
    for (PendingChunk& each : chunks) {
      if (!chunks_.contains(each.chunk)) {
        return failure(ErrorCode::kNeedsReseed, Stage::kOpen,
                       "pending values of chunk " + std::to_string(each.chunk.value) +
                           ", which is another producer's");
      }
      pending_[each.chunk.value - chunks_.first.value] = std::move(each.record);
    }
    return ok();
  }
  if (table_.part(lattice_, producer_) == known.baseline->part) return ok();
  return failure(ErrorCode::kNeedsReseed, Stage::kOpen,
                 "the baseline file is not version " +
                     std::to_string(known.baseline->content.version.value) +
                     " that the producer's log says it is: remove producer.baseline_dir and start "
                     "from a checkpoint of the fleet's version");
}

std::span<std::byte> ShardBaseline::chunk_bytes(ChunkIndex chunk) {
  const std::uint32_t number = chunk.value - chunks_.first.value;
  return bytes_.subspan(static_cast<std::size_t>(offsets_[number]),
                        static_cast<std::size_t>(offsets_[number + 1] - offsets_[number]));
}

std::span<const std::byte> ShardBaseline::old_bytes(ChunkIndex chunk) const {
  return const_cast<ShardBaseline*>(this)->chunk_bytes(chunk);
}

// The same coding as the agents' journals, counted within the chunk.
void ShardBaseline::note(ChunkIndex chunk, std::span<const std::byte> new_bytes,
                         codec::DecodeWorkspace& workspace) {
  const std::uint32_t width = lattice_.place(chunk).element_bytes();
  const auto changed = codec::changed_offsets(old_bytes(chunk), new_bytes, width, workspace);
  std::vector<std::byte> record;
  if (!changed.empty()) {
    apply::encode_record(TensorIndex{0}, 0, static_cast<std::uint8_t>(width), changed, new_bytes,
                         record);
  }
  pending_[chunk.value - chunks_.first.value] = std::move(record);
}

Status ShardBaseline::keep_pending(const RefitId& refit) {
  if (state_ == nullptr) return ok();
  std::vector<PendingChunk> chunks;
  for (std::uint32_t i = 0; i < chunks_.count; ++i) {
    if (!pending_[i].empty()) chunks.push_back({{chunks_.first.value + i}, pending_[i]});
  }
  return state_->write_pending(refit, chunks);
}

Status ShardBaseline::move() {
  for (std::uint32_t i = 0; i < chunks_.count; ++i) {
    if (i == chunks_.count / 2) kill_point("publisher.half_moved");
    if (pending_[i].empty()) continue;
    const ChunkIndex chunk{chunks_.first.value + i};
    apply::apply_record({pending_[i], 0, 0}, chunk_bytes(chunk));
    if (!pending_table_) table_.set(chunk, wire::digest64(chunk_bytes(chunk)));
  }
  if (state_ != nullptr) WEFT_TRY_STATUS(state_->sync_baseline());
  if (pending_table_) table_ = *std::move(pending_table_);
  if (expected_part_ && table_.part(lattice_, producer_) != *expected_part_) {
    return failure(
        ErrorCode::kNeedsReseed, Stage::kApply,
        "the baseline file with what was pending beside it is not what was sealed: "
        "remove producer.baseline_dir and start from a checkpoint of the fleet's version");
  }
  drop();
  return ok();
}

void ShardBaseline::drop() {
  expected_part_.reset();
  pending_table_.reset();
  for (auto& record : pending_) record = {};
}

std::uint64_t ShardBaseline::pending_bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& record : pending_) bytes += record.size();
  return bytes;
}

}  // namespace weft::agent
