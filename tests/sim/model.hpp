// SPDX-License-Identifier: Apache-2.0
// What stands for a checkpoint in the simulation: a handful of chunks of one word each.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "codec/digest/digest_table.hpp"
#include "weft/base/ids.hpp"
#include "weft/wire/byte_io.hpp"
#include "weft/wire/digest.hpp"

namespace weft::sim {

inline constexpr std::uint32_t kChunkCount = 6;

// `torn`: a power cut hit the block while it was written; bytes that no journal names are lost.
struct Chunk {
  std::uint64_t value = 0;
  bool torn = false;
  auto operator<=>(const Chunk&) const = default;
};
using Weights = std::vector<Chunk>;

inline Digest schema_digest() { return Digest{{0x5C, 1}}; }
inline Digest lattice_digest(std::uint32_t producer_count) {
  return Digest{{0x1A, producer_count}};
}

// Chunks are dealt out to producers in turn.
inline bool owns(std::uint32_t producer, std::uint32_t producer_count, std::uint32_t chunk) {
  return chunk % producer_count == producer;
}

inline Digest part_of(const Weights& weights, std::uint32_t producer,
                      std::uint32_t producer_count) {
  wire::ByteWriter out;
  for (std::uint32_t chunk = 0; chunk < weights.size(); ++chunk) {
    if (!owns(producer, producer_count, chunk)) continue;
    out.write(weights[chunk].value);
    out.write(static_cast<std::uint8_t>(weights[chunk].torn));
  }
  return wire::digest128(out.bytes());
}

inline Digest root_of(const Weights& weights, std::uint32_t producer_count) {
  std::vector<Digest> parts;
  for (std::uint32_t p = 0; p < producer_count; ++p) {
    parts.push_back(part_of(weights, p, producer_count));
  }
  return codec::fold_root(schema_digest(), lattice_digest(producer_count), parts);
}

}  // namespace weft::sim
