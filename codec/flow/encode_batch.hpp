// SPDX-License-Identifier: Apache-2.0
// The bodies of the encode flow, as plain functions and values: what runs on any worker (batches)
// and what runs in order (FramePacker). encode_flow.cpp only wires them up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "codec/encode/encode_chunk.hpp"
#include "codec/flow/encode_flow.hpp"
#include "codec/frame/frame_builder.hpp"
#include "codec/project/lattice.hpp"
#include "weft/wire/digest.hpp"

namespace weft::codec {

// Consecutive chunks that one worker takes at once: one large chunk, or many small ones.
// Threads: a value; one at a time.
struct BatchRange {
  std::size_t number = 0;  // 0-based, dense
  ChunkIndex first;
  std::uint32_t count = 0;
};

// The batch that begins at `first`; ends at `end` at the latest.
BatchRange next_batch(const Lattice& lattice, std::size_t number, ChunkIndex first, ChunkIndex end);

// One worker's buffers.
// Threads: one at a time.
struct BatchWorker {
  EncodeWorkspace workspace;
  std::unique_ptr<std::byte[]> old_bytes;
  std::unique_ptr<std::byte[]> new_bytes;
  BatchWorker();
};

// Threads: a value; one at a time.
struct BatchItem {
  wire::IndexEntry entry;  // kSame: not sent
  TensorIndex tensor;
  std::uint32_t chunk_bytes = 0;
  std::uint32_t element_count = 0;
  double ideal_bits = 0;
};

// A batch on its way from a worker to the packer. Reused: bounded by the number in flight.
// Threads: one at a time.
struct EncodedBatch {
  std::size_t number = 0;
  std::vector<BatchItem> items;
  std::unique_ptr<std::byte[]> payload;  // of all items, one behind the other
  EncodedBatch();
};

Status encode_batch(const Lattice& lattice, ChunkSource& source, const EncodeChoice& choice,
                    const BatchRange& range, BatchWorker& worker, EncodedBatch& batch);

// Digests of the new bytes only.
Status digest_batch(const Lattice& lattice, ChunkSource& source, const BatchRange& range,
                    BatchWorker& worker, DigestTable& table);

// FramePacker puts batches into frames, in the order of the calls.
// Life:    pack, for every batch -> finish, once, unless pack failed.
// Threads: one at a time.
class FramePacker {
 public:
  FramePacker(const Lattice& lattice, ProducerIndex producer, SlotSource& slots, FrameSink& sink,
              const EncodeFlowOptions& options);

  Status pack(const EncodedBatch& batch);
  Result<EncodeSummary> finish();

 private:
  Status send(const BatchItem& item, std::span<const std::byte> payload);
  Status open_frame(std::size_t payload_bytes);
  Status close_frame();
  std::uint32_t target_bytes() const;

  const Lattice& lattice_;
  ProducerIndex producer_;
  SlotSource& slots_;
  FrameSink& sink_;
  const EncodeFlowOptions& options_;
  FrameIds ids_;
  std::uint64_t total_bytes_ = 0;    // of the producer's chunks
  std::uint64_t packed_bytes_ = 0;   // of the chunks so far
  std::uint64_t payload_bytes_ = 0;  // that they have become, index included
  std::optional<FrameBuilder> builder_;
  ChunkIndex last_chunk_;  // the newest one in builder_
  wire::Digester checksums_;
  EncodeSummary summary_;
};

}  // namespace weft::codec
