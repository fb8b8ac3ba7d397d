// SPDX-License-Identifier: Apache-2.0
// The digest table: one XXH3-64 per chunk, and what it folds to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "codec/project/lattice.hpp"
#include "weft/base/ids.hpp"
#include "weft/base/result.hpp"

namespace weft::codec {

// XXH3-128 over schema digest, lattice digest and all parts (16 bytes each, low half first).
Digest fold_root(const Digest& schema, const Digest& lattice, std::span<const Digest> parts);

// Invariant: one entry per chunk of the lattice it was made for.
// Threads:   one at a time; set() of different chunks may run at once.
class DigestTable {
 public:
  DigestTable() = default;
  explicit DigestTable(std::uint32_t chunk_count) : entries_(chunk_count) {}

  std::uint32_t chunk_count() const { return static_cast<std::uint32_t>(entries_.size()); }
  std::uint64_t at(ChunkIndex chunk) const { return entries_[chunk.value]; }
  void set(ChunkIndex chunk, std::uint64_t digest) { entries_[chunk.value] = digest; }
  std::span<const std::uint64_t> entries() const { return entries_; }
  bool operator==(const DigestTable&) const = default;

  // XXH3-128 over the producer's entries in lattice order, little-endian.
  Digest part(const Lattice& lattice, ProducerIndex producer) const;
  Digest root(const Lattice& lattice) const;

  std::vector<std::byte> encode(const Lattice& lattice) const;
  // Errors: kFormat (damaged, or of another lattice).
  static Result<DigestTable> decode(const Lattice& lattice, std::span<const std::byte> bytes);

 private:
  std::vector<std::uint64_t> entries_;
};

}  // namespace weft::codec
