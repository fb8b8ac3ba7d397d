// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "apply/store/checkpoint_dir.hpp"
#include "codec/decode/decode_chunk.hpp"
#include "codec/digest/digest_table.hpp"
#include "codec/project/lattice.hpp"
#include "weft/base/result.hpp"

namespace weft::agent {

// ShardBaseline is one producer's old bits in memory, chunk after chunk, and the new values of an
// open refit beside them until its decision.
// Invariant: the baseline changes in move() only; a refit's values are all moved or all dropped.
// Owns:      its chunks' bytes, and about 3 bytes per pending BF16 change.
// Threads:   old_bytes() and note(): any, each chunk by one at a time; the others: one at a time,
//            with nobody at work.
class ShardBaseline {
 public:
  // Reads the producer's chunks, and no others. Errors: those of CheckpointDir.
  static Result<std::unique_ptr<ShardBaseline>> open(const codec::Lattice& lattice,
                                                     ProducerIndex producer,
                                                     const apply::CheckpointDir& base,
                                                     std::uint32_t threads);

  std::span<const std::byte> old_bytes(ChunkIndex chunk) const;
  // Remembers what differs. A chunk that was noted before is noted anew.
  void note(ChunkIndex chunk, std::span<const std::byte> new_bytes,
            codec::DecodeWorkspace& workspace);
  // Digests of the pending values; they become the table's with move().
  void set_pending_table(codec::DigestTable table) { pending_table_ = std::move(table); }
  void move();
  void drop();

  // Digests of the baseline's chunks; the entries of other producers are 0.
  const codec::DigestTable& table() const { return table_; }
  std::uint64_t baseline_bytes() const { return bytes_.size(); }
  std::uint64_t pending_bytes() const;

 private:
  ShardBaseline(const codec::Lattice& lattice, ProducerIndex producer);
  std::span<std::byte> chunk_bytes(ChunkIndex chunk);

  const codec::Lattice& lattice_;
  const codec::ChunkRange chunks_;
  std::vector<std::uint64_t> offsets_;  // of every chunk, and one behind the last
  std::vector<std::byte> bytes_;
  std::vector<std::vector<std::byte>> pending_;  // a journal record per changed chunk
  codec::DigestTable table_;
  std::optional<codec::DigestTable> pending_table_;
};

}  // namespace weft::agent
