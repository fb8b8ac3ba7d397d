// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "codec/project/lattice.hpp"
#include "codec/scan/conditional_bound.hpp"
#include "weft/base/guarded.hpp"

namespace weft::codec {

// BoundTable is the conditional bound of every tensor of a pair, from chunks in any order. The
// counts of a tensor are let go when its last chunk is in: memory follows the tensors at work, not
// the checkpoint.
// Life:    add(), once per chunk of the lattice -> bits().
// Threads: any.
class BoundTable {
 public:
  // The lattice must outlive the table.
  explicit BoundTable(const Lattice& lattice);

  // Errors: none; both spans are the chunk's size.
  void add(ChunkIndex chunk, std::span<const std::byte> old_bytes,
           std::span<const std::byte> new_bytes);

  // Nothing where there is no bound (ConditionalBound's limits), or chunks are still to come.
  std::optional<double> bits(TensorIndex tensor) const;

 private:
  static constexpr std::size_t kStripes = 64;
  struct Work {
    std::unique_ptr<ConditionalBound> bound;
    std::uint32_t chunks_left = 0;
  };
  struct Stripe {
    std::unordered_map<std::uint32_t, Work> at_work;  // by tensor
  };

  std::unique_ptr<ConditionalBound> take_scratch(const ElementFormat& format);
  void give_back(std::unique_ptr<ConditionalBound> scratch);

  const Lattice& lattice_;
  std::vector<std::uint32_t> chunk_counts_;  // by tensor
  std::vector<double> bits_;                 // by tensor; negative: not known (yet)
  std::array<Guarded<Stripe>, kStripes> stripes_;
  Guarded<std::vector<std::unique_ptr<ConditionalBound>>> scratch_;
};

}  // namespace weft::codec
