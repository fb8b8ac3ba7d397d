// SPDX-License-Identifier: Apache-2.0
// A producer's stream: chunk ranges to frames, in parallel, in bounded memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "codec/digest/digest_table.hpp"
#include "codec/encode/encode_chunk.hpp"
#include "codec/flow/numa_plan.hpp"
#include "codec/frame/frame_builder.hpp"
#include "codec/project/lattice.hpp"
#include "weft/base/clock.hpp"
#include "weft/base/lease.hpp"
#include "weft/base/limits.hpp"
#include "weft/base/result.hpp"
#include "weft/wire/frame.hpp"
#include "weft/wire/manifest.hpp"

namespace weft::codec {

// A chunk's values, of the same length.
// Threads: a value; one at a time.
struct ChunkValues {
  std::span<const std::byte> old_bytes;  // empty with EncodeChoice::full
  std::span<const std::byte> new_bytes;
};

// Where old and new values come from.
// Threads: any; every call comes from several workers at once.
class ChunkSource {
 public:
  virtual ~ChunkSource() = default;
  // Both values where they lie in memory already; they stay until encoded(). Nothing: read() is
  // asked. Not called with EncodeChoice::full.
  virtual std::optional<ChunkValues> in_place(ChunkIndex /*chunk*/) { return std::nullopt; }
  // The chunk has been encoded from these values, which are in cache still.
  virtual void encoded(ChunkIndex /*chunk*/, const ChunkValues& /*values*/,
                       std::uint32_t /*changed_count*/) {}
  // Fills both spans (the chunk's size each). With EncodeChoice::full, and in digest_flow,
  // old_bytes is empty and must be left alone.
  virtual Status read(ChunkIndex chunk, std::span<std::byte> old_bytes,
                      std::span<std::byte> new_bytes) = 0;
  // The system's number of the NUMA node where the chunk's bytes lie, if that is known: a thread of
  // that node reads it then.
  virtual std::optional<std::uint32_t> numa_node(ChunkIndex /*chunk*/) const {
    return std::nullopt;
  }
};

// Where frames go, in sequence order, one call at a time.
// Threads: any worker, never two at once. May block, with a deadline of its own.
class FrameSink {
 public:
  virtual ~FrameSink() = default;
  virtual Status take(SharedSlot slot, const wire::FrameHeader& header) = 0;
  // True: nothing is on its way, so a frame that is not full yet is better sent now.
  virtual bool is_idle() const { return false; }
};

// Threads: a value; one at a time.
struct EncodeFlowOptions {
  FrameIds ids;  // lattice and producer are set from the arguments
  EncodeChoice choice;
  std::uint32_t frame_bytes = limits::kFrameBytesMax;  // ceiling
  std::uint32_t frames_target = limits::kFramesPerRefitTarget;
  std::uint32_t threads = 2;
  const NumaTopology* topology = nullptr;  // for tests; null: this machine's
  Duration slot_timeout = std::chrono::seconds(30);
};

// Threads: a value; one at a time.
struct TensorEncodeStats {
  std::uint64_t changed_elements = 0;
  std::uint64_t payload_bits = 0;  // index included
  double ideal_bits = 0;
  std::array<std::uint32_t, wire::kChunkTypeCount> chunks_by_type{};
};

// Threads: a value; one at a time.
struct EncodeSummary {
  wire::ProducerSeal seal;
  DigestTable table;  // new digests of this producer's chunks; the other entries are 0
  std::vector<TensorEncodeStats> tensors;  // place = TensorIndex
  std::array<std::uint64_t, wire::kChunkTypeCount> chunks_by_type{};
  std::array<std::uint64_t, wire::kChunkTypeCount> payload_bytes_by_type{};
  std::uint64_t element_count = 0;
};

// Reads, encodes and packs all chunks of one producer. On a machine with several NUMA nodes each
// has its own threads, bound to it, and its own buffers; frames are packed on the first one.
// Memory: about 12 MiB per thread at most (less where few elements change), whatever the model's
// size; frames wait for free slots. Returns after the last frame was taken. Errors: the first of
// any source, slot, encoder or sink; then no further frame is taken.
Result<EncodeSummary> encode_flow(const Lattice& lattice, ProducerIndex producer,
                                  ChunkSource& source, SlotSource& slots, FrameSink& sink,
                                  const EncodeFlowOptions& options);

// The digest table of a checkpoint (the source's new bytes), in parallel.
Result<DigestTable> digest_flow(const Lattice& lattice, ChunkSource& source, std::uint32_t threads,
                                const NumaTopology& topology = NumaTopology::of_machine());

}  // namespace weft::codec
