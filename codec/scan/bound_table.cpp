// SPDX-License-Identifier: Apache-2.0
#include "codec/scan/bound_table.hpp"

#include <algorithm>
#include <utility>

namespace weft::codec {

BoundTable::BoundTable(const Lattice& lattice) : lattice_(lattice) {
  std::uint32_t tensor_count = 0;
  for (const Tile& tile : lattice.tiles()) {
    tensor_count = std::max(tensor_count, tile.tensor.value + 1);
  }
  chunk_counts_.resize(tensor_count);
  bits_.resize(tensor_count, -1);
  for (std::uint32_t i = 0; i < lattice.chunk_count(); ++i) {
    ++chunk_counts_[lattice.place(ChunkIndex{i}).tensor.value];
  }
}

std::unique_ptr<ConditionalBound> BoundTable::take_scratch(const ElementFormat& format) {
  auto taken = scratch_.with([](auto& shelf) -> std::unique_ptr<ConditionalBound> {
    if (shelf.empty()) return nullptr;
    auto last = std::move(shelf.back());
    shelf.pop_back();
    return last;
  });
  if (!taken) return std::make_unique<ConditionalBound>(format);
  taken->reset(format);
  return taken;
}

void BoundTable::add(ChunkIndex chunk, std::span<const std::byte> old_bytes,
                     std::span<const std::byte> new_bytes) {
  const ChunkPlace place = lattice_.place(chunk);
  const std::uint32_t tensor = place.tensor.value;
  if (place.format.exponent_bits == 0) return;
  // Counting goes on without the lock; only the sums are exchanged under it.
  auto counted = take_scratch(place.format);
  counted->add(old_bytes, new_bytes);
  std::unique_ptr<ConditionalBound> finished;
  stripes_[tensor % kStripes].with([&](Stripe& stripe) {
    Work& work = stripe.at_work[tensor];
    if (!work.bound) {
      std::swap(work.bound, counted);
      work.chunks_left = chunk_counts_[tensor];
    } else {
      work.bound->merge(*counted);
    }
    if (--work.chunks_left > 0) return;
    if (work.bound->known()) bits_[tensor] = work.bound->bits();
    finished = std::move(work.bound);
    stripe.at_work.erase(tensor);
  });
  give_back(std::move(counted));
  give_back(std::move(finished));
}

void BoundTable::give_back(std::unique_ptr<ConditionalBound> scratch) {
  if (!scratch) return;
  scratch_.with([&](auto& shelf) { shelf.push_back(std::move(scratch)); });
}

std::optional<double> BoundTable::bits(TensorIndex tensor) const {
  if (tensor.value >= bits_.size() || bits_[tensor.value] < 0) return std::nullopt;
  return bits_[tensor.value];
}

}  // namespace weft::codec
