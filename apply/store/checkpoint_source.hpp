// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apply/store/checkpoint_dir.hpp"
#include "codec/flow/encode_flow.hpp"

namespace weft::apply {

// Chunks of one checkpoint, or of two with the same schema, for codec's flows. The identities must
// be checked by the caller behind the flow. It names no NUMA node: the system does not say where a
// file's cached pages lie unless they are mapped, and what is read lands in the reader's own
// memory. Threads: any.
class CheckpointSource final : public codec::ChunkSource {
 public:
  // Only new bytes (digest_flow, full refits).
  CheckpointSource(const codec::Lattice& lattice, const CheckpointDir& target)
      : lattice_(lattice), base_(nullptr), target_(target) {}
  CheckpointSource(const codec::Lattice& lattice, const CheckpointDir& base,
                   const CheckpointDir& target)
      : lattice_(lattice), base_(&base), target_(target) {}

  Status read(ChunkIndex chunk, std::span<std::byte> old_bytes,
              std::span<std::byte> new_bytes) override {
    codec::ChunkPlace place = lattice_.place(chunk);
    if (!old_bytes.empty()) {
      WEFT_ASSERT(base_ != nullptr);
      codec::ChunkPlace base_place = place;
      WEFT_TRY_STATUS(base_->read(base_place, old_bytes));
    }
    return target_.read(place, new_bytes);
  }

 private:
  const codec::Lattice& lattice_;
  const CheckpointDir* base_;
  const CheckpointDir& target_;
};

}  // namespace weft::apply
