// SPDX-License-Identifier: Apache-2.0
#include "agent/lib/shard_baseline.hpp"

#include <algorithm>
#include <atomic>
#include <thread>

#include "apply/journal/journal_record.hpp"
#include "weft/base/guarded.hpp"
#include "weft/wire/digest.hpp"

namespace weft::agent {

ShardBaseline::ShardBaseline(const codec::Lattice& lattice, ProducerIndex producer)
    : lattice_(lattice),
      chunks_(lattice.chunks_of(producer)),
      pending_(chunks_.count),
      table_(lattice.chunk_count()) {
  std::uint64_t end = 0;
  offsets_.push_back(0);
  for (std::uint32_t i = 0; i < chunks_.count; ++i) {
    end += lattice.place({chunks_.first.value + i}).bytes();
    offsets_.push_back(end);
  }
  bytes_.resize(static_cast<std::size_t>(end));
}

Result<std::unique_ptr<ShardBaseline>> ShardBaseline::open(const codec::Lattice& lattice,
                                                           ProducerIndex producer,
                                                           const apply::CheckpointDir& base,
                                                           std::uint32_t threads) {
  std::unique_ptr<ShardBaseline> baseline(new ShardBaseline(lattice, producer));
  std::atomic<std::uint32_t> next{0};
  Guarded<Status> failed;
  const auto work = [&] {
    for (std::uint32_t i = next++; i < baseline->chunks_.count; i = next++) {
      const ChunkIndex chunk{baseline->chunks_.first.value + i};
      const auto bytes = baseline->chunk_bytes(chunk);
      if (Status read = base.read(lattice.place(chunk), bytes); !read) {
        failed.with([&](Status& status) { status = std::move(read); });
        return;
      }
      baseline->table_.set(chunk, wire::digest64(bytes));
    }
  };
  std::vector<std::thread> readers;
  for (std::uint32_t t = 1; t < threads; ++t) readers.emplace_back(work);
  work();
  for (std::thread& reader : readers) reader.join();
  WEFT_TRY_STATUS(failed.with([](const Status& status) { return status; }));
  WEFT_TRY_STATUS(base.check_identity());
  return baseline;
}

std::span<std::byte> ShardBaseline::chunk_bytes(ChunkIndex chunk) {
  const std::uint32_t number = chunk.value - chunks_.first.value;
  return std::span(bytes_).subspan(
      static_cast<std::size_t>(offsets_[number]),
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

void ShardBaseline::move() {
  for (std::uint32_t i = 0; i < chunks_.count; ++i) {
    if (pending_[i].empty()) continue;
    apply::apply_record({pending_[i], 0, 0}, chunk_bytes({chunks_.first.value + i}));
  }
  if (pending_table_) table_ = *std::move(pending_table_);
  drop();
}

void ShardBaseline::drop() {
  pending_table_.reset();
  for (auto& record : pending_) record = {};
}

std::uint64_t ShardBaseline::pending_bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& record : pending_) bytes += record.size();
  return bytes;
}

}  // namespace weft::agent
