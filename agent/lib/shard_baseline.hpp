// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "agent/lib/producer_state.hpp"
#include "apply/store/checkpoint_dir.hpp"
#include "codec/decode/decode_chunk.hpp"
#include "codec/digest/digest_table.hpp"
#include "codec/project/lattice.hpp"
#include "weft/base/result.hpp"

namespace weft::agent {

// ShardBaseline is one producer's old bits, chunk after chunk, in memory or in the mapped file of a
// ProducerState, and the new values of an open refit beside them until its decision.
// Invariant: the baseline changes in move() only; a refit's values are all moved or all dropped.
// Owns:      its chunks' bytes unless they are in a file, and about 3 bytes per pending BF16
// change. Threads:   old_bytes() and note(): any, each chunk by one at a time; the others: one at a
// time,
//            with nobody at work.
class ShardBaseline {
 public:
  // Where the bytes are, and what fills them.
  // Threads: a value; one at a time.
  struct Place {
    const apply::CheckpointDir* base = nullptr;  // read into memory, or into a new state's file
    ProducerState* state = nullptr;              // must outlive the baseline; none: memory
    std::uint32_t threads = 1;
  };
  // The producer's chunks, and no others. A state that has a baseline already is taken as it is,
  // with the values that were pending when its last owner ended. Errors: those of CheckpointDir and
  // ProducerState; kNeedsReseed (the file does not hold what the state's log says).
  static Result<std::unique_ptr<ShardBaseline>> open(const codec::Lattice& lattice,
                                                     ProducerIndex producer, const Place& place);

  std::span<const std::byte> old_bytes(ChunkIndex chunk) const;
  // Remembers what differs. A chunk that was noted before is noted anew.
  void note(ChunkIndex chunk, std::span<const std::byte> new_bytes,
            codec::DecodeWorkspace& workspace);
  // Digests of the pending values; they become the table's with move().
  void set_pending_table(codec::DigestTable table) { pending_table_ = std::move(table); }
  // With a state: durable before the seal is told, so that a restart can move them.
  Status keep_pending(const RefitId& refit);
  // May be repeated after an error, and after a crash. Errors: I/O; kNeedsReseed (what an earlier
  // process left does not give the part that it sealed).
  Status move();
  void drop();

  // Digests of the baseline's chunks; the entries of other producers are 0.
  const codec::DigestTable& table() const { return table_; }
  std::uint64_t baseline_bytes() const { return offsets_.back(); }
  std::uint64_t pending_bytes() const;

 private:
  ShardBaseline(const codec::Lattice& lattice, ProducerIndex producer, ProducerState* state);
  Status take_over(const apply::ProducerFold& known);
  // `work` for every chunk, on so many threads.
  Status for_each_chunk(std::uint32_t threads, const std::function<Status(ChunkIndex)>& work);
  std::span<std::byte> chunk_bytes(ChunkIndex chunk);

  const codec::Lattice& lattice_;
  const ProducerIndex producer_;
  const codec::ChunkRange chunks_;
  std::vector<std::uint64_t> offsets_;  // of every chunk, and one behind the last
  ProducerState* const state_;
  // Unless the state's file has them. Touched first by the threads that load it, so that it lies on
  // all of their NUMA nodes.
  std::unique_ptr<std::byte[]> memory_;
  std::span<std::byte> bytes_;
  std::vector<std::vector<std::byte>> pending_;  // a journal record per changed chunk
  codec::DigestTable table_;
  std::optional<codec::DigestTable> pending_table_;
  std::optional<Digest> expected_part_;  // of the table, once what an earlier process left is moved
};

}  // namespace weft::agent
