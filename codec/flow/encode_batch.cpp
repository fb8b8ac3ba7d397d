// SPDX-License-Identifier: Apache-2.0
#include "codec/flow/encode_batch.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "weft/base/assert.hpp"

namespace weft::codec {

namespace {

constexpr std::uint32_t kBatchChunksMax = 256;
constexpr std::size_t kBatchPayloadBytes =
    payload_bytes_max(limits::kChunkBytesMax) + 64 * kBatchChunksMax;

std::span<std::byte> part(const std::unique_ptr<std::byte[]>& bytes, std::uint32_t size) {
  return {bytes.get(), size};
}

}  // namespace

BatchWorker::BatchWorker()
    : old_bytes(std::make_unique_for_overwrite<std::byte[]>(limits::kChunkBytesMax)),
      new_bytes(std::make_unique_for_overwrite<std::byte[]>(limits::kChunkBytesMax)) {}

EncodedBatch::EncodedBatch()
    : payload(std::make_unique_for_overwrite<std::byte[]>(kBatchPayloadBytes)) {
  items.reserve(kBatchChunksMax);
}

BatchRange next_batch(const Lattice& lattice, std::size_t number, ChunkIndex first,
                      ChunkIndex end) {
  BatchRange range{number, first, 0};
  std::uint64_t bytes = 0;
  while (first.value + range.count < end.value && range.count < kBatchChunksMax) {
    bytes += lattice.place({first.value + range.count}).bytes();
    if (range.count != 0 && bytes > limits::kChunkBytesMax) break;
    ++range.count;
  }
  return range;
}

namespace {

Result<ChunkValues> values_of(ChunkSource& source, ChunkIndex chunk, const ChunkPlace& place,
                              const EncodeChoice& choice, BatchWorker& worker) {
  if (!choice.full) {
    if (const auto values = source.in_place(chunk)) return *values;
  }
  const std::span<std::byte> new_bytes = part(worker.new_bytes, place.bytes());
  const std::span<std::byte> old_bytes =
      choice.full ? std::span<std::byte>() : part(worker.old_bytes, place.bytes());
  WEFT_TRY_STATUS(source.read(chunk, old_bytes, new_bytes));
  return ChunkValues{old_bytes, new_bytes};
}

}  // namespace

Status encode_batch(const Lattice& lattice, ChunkSource& source, const EncodeChoice& choice,
                    const BatchRange& range, BatchWorker& worker, EncodedBatch& batch) {
  batch.number = range.number;
  batch.items.clear();
  std::size_t offset = 0;
  for (std::uint32_t i = 0; i < range.count; ++i) {
    const ChunkIndex chunk{range.first.value + i};
    const ChunkPlace place = lattice.place(chunk);
    WEFT_TRY(const ChunkValues values, values_of(source, chunk, place, choice, worker));
    WEFT_TRY(
        const EncodedChunk encoded,
        encode_chunk({values.old_bytes, values.new_bytes, place.format}, choice, worker.workspace));
    source.encoded(chunk, values, encoded.changed_count);
    BatchItem item;
    item.entry = {chunk, encoded.type, static_cast<std::uint32_t>(encoded.payload.size()),
                  encoded.changed_count, encoded.new_digest};
    item.tensor = place.tensor;
    item.chunk_bytes = place.bytes();
    item.element_count = place.element_count;
    item.ideal_bits = encoded.ideal_bits;
    WEFT_ASSERT(offset + encoded.payload.size() <= kBatchPayloadBytes);
    if (!encoded.payload.empty()) {
      std::memcpy(batch.payload.get() + offset, encoded.payload.data(), encoded.payload.size());
    }
    offset += encoded.payload.size();
    batch.items.push_back(item);
  }
  return ok();
}

Status digest_batch(const Lattice& lattice, ChunkSource& source, const BatchRange& range,
                    BatchWorker& worker, DigestTable& table) {
  for (std::uint32_t i = 0; i < range.count; ++i) {
    const ChunkIndex chunk{range.first.value + i};
    const std::span<std::byte> bytes = part(worker.new_bytes, lattice.place(chunk).bytes());
    WEFT_TRY_STATUS(source.read(chunk, {}, bytes));
    table.set(chunk, wire::digest64(bytes));
  }
  return ok();
}

FramePacker::FramePacker(const Lattice& lattice, ProducerIndex producer, SlotSource& slots,
                         FrameSink& sink, const EncodeFlowOptions& options)
    : lattice_(lattice),
      producer_(producer),
      slots_(slots),
      sink_(sink),
      options_(options),
      ids_(options.ids) {
  ids_.lattice = lattice.digest();
  ids_.producer = producer;
  std::uint32_t tensor_count = 0;
  for (const Tile& tile : lattice.tiles()) {
    tensor_count = std::max(tensor_count, tile.tensor.value + 1);
  }
  const ChunkRange range = lattice.chunks_of(producer);
  for (std::uint32_t i = 0; i < range.count; ++i) {
    total_bytes_ += lattice.place({range.first.value + i}).bytes();
  }
  summary_.table = DigestTable(lattice.chunk_count());
  summary_.tensors.resize(tensor_count);
}

Status FramePacker::pack(const EncodedBatch& batch) {
  std::size_t offset = 0;
  for (const BatchItem& item : batch.items) {
    const wire::IndexEntry& entry = item.entry;
    summary_.table.set(entry.chunk, entry.new_digest);
    summary_.element_count += item.element_count;
    const auto type = static_cast<std::size_t>(entry.type);
    ++summary_.chunks_by_type[type];
    summary_.payload_bytes_by_type[type] += entry.payload_bytes;
    packed_bytes_ += item.chunk_bytes;
    ++summary_.tensors[item.tensor.value].chunks_by_type[type];
    if (entry.type != wire::ChunkType::kSame) {
      summary_.seal.changed_elements += entry.changed_count;
      TensorEncodeStats& tensor = summary_.tensors[item.tensor.value];
      tensor.changed_elements += entry.changed_count;
      tensor.payload_bits += (std::uint64_t{entry.payload_bytes} + wire::kIndexEntryBytes) * 8;
      tensor.ideal_bits += item.ideal_bits;
      payload_bytes_ += entry.payload_bytes + wire::kIndexEntryBytes;
      WEFT_TRY_STATUS(send(item, {batch.payload.get() + offset, entry.payload_bytes}));
    }
    offset += entry.payload_bytes;
  }
  return ok();
}

// A frame is closed when it has a share of what the refit will come to at the rate so far, so that
// there are enough frames to fill a relay tree.
std::uint32_t FramePacker::target_bytes() const {
  const double rate = static_cast<double>(payload_bytes_) / static_cast<double>(packed_bytes_);
  const double share = rate * static_cast<double>(total_bytes_) / options_.frames_target;
  const std::uint32_t ceiling = options_.frame_bytes;
  const std::uint32_t floor = std::min(limits::kFrameBytesMin, ceiling);
  return share < floor ? floor : share > ceiling ? ceiling : static_cast<std::uint32_t>(share);
}

Status FramePacker::send(const BatchItem& item, std::span<const std::byte> payload) {
  // Chunks ascend within a frame; parts may come in any order.
  if (builder_ && item.entry.chunk < last_chunk_) WEFT_TRY_STATUS(close_frame());
  last_chunk_ = item.entry.chunk;
  if (!builder_) WEFT_TRY_STATUS(open_frame(payload.size()));
  if (!builder_->add(item.entry, payload)) {
    WEFT_TRY_STATUS(close_frame());
    WEFT_TRY_STATUS(open_frame(payload.size()));
    const bool added = builder_->add(item.entry, payload);
    WEFT_ASSERT(added);
  }
  if (builder_->frame_bytes() >= target_bytes() || sink_.is_idle()) {
    WEFT_TRY_STATUS(close_frame());
  }
  return ok();
}

Status FramePacker::open_frame(std::size_t payload_bytes) {
  WEFT_TRY(Lease lease, slots_.acquire(options_.slot_timeout));
  const std::size_t room = lease.frame_room().size();
  if (room < FrameBuilder::room_for(payload_bytes)) {
    return failure(ErrorCode::kConfig, Stage::kFrame,
                   "a slot with room for " + std::to_string(room) +
                       " bytes cannot hold a chunk of " + std::to_string(payload_bytes));
  }
  builder_.emplace(std::move(lease), ids_, options_.frame_bytes);
  return ok();
}

Status FramePacker::close_frame() {
  auto [slot, header] = std::move(*builder_).close(FrameSequence{summary_.seal.frame_count});
  builder_.reset();
  ++summary_.seal.frame_count;
  summary_.seal.wire_bytes += header.frame_bytes();
  const std::uint64_t checksum[2] = {header.checksum_low, header.checksum_high};
  checksums_.update(std::as_bytes(std::span(checksum)));
  return sink_.take(std::move(slot), header);
}

Result<EncodeSummary> FramePacker::finish() {
  if (builder_) WEFT_TRY_STATUS(close_frame());
  summary_.seal.frames = checksums_.digest();
  summary_.seal.part = summary_.table.part(lattice_, producer_);
  return std::move(summary_);
}

}  // namespace weft::codec
