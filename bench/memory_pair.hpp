// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "apply/store/checkpoint_dir.hpp"
#include "bench/peers/peer_tensor.hpp"
#include "codec/encode/encode_chunk.hpp"
#include "codec/flow/encode_flow.hpp"
#include "codec/project/lattice.hpp"
#include "weft/base/event_sink.hpp"
#include "weft/base/result.hpp"

namespace weft::bench {

// MemoryPair is two checkpoints of 16-bit elements in memory, by tensor for the peers and by chunk
// of the default lattice for weft.
// Threads: immutable once loaded; read() from any.
class MemoryPair final : public codec::ChunkSource {
 public:
  MemoryPair(MemoryPair&&) = default;
  MemoryPair& operator=(MemoryPair&&) = default;

  // Errors: as CheckpointDir::open_path and its reads; kUnsupported (another element size).
  static Result<MemoryPair> load(const std::string& old_dir, const std::string& new_dir) {
    NullEventSink events;
    WEFT_TRY(const auto base,
             apply::CheckpointDir::open_path(old_dir, apply::Access::kRead, {}, events));
    WEFT_TRY(const auto target,
             apply::CheckpointDir::open_path(new_dir, apply::Access::kRead, {}, events));
    WEFT_TRY_STATUS(codec::schema_difference(base.schema(), target.schema()));
    MemoryPair pair;
    WEFT_TRY(pair.lattice_, codec::Lattice::default_for(base.schema()));
    const std::size_t tensor_count = base.schema().tensors().size();
    pair.old_bytes_.resize(tensor_count);
    pair.new_bytes_.resize(tensor_count);
    for (std::size_t t = 0; t < tensor_count; ++t) {
      const codec::Tensor& tensor = base.schema().tensors()[t];
      pair.old_bytes_[t].reserve(tensor.element_count * tensor.element_bytes);
      pair.new_bytes_[t].reserve(tensor.element_count * tensor.element_bytes);
    }
    for (std::uint32_t i = 0; i < pair.lattice_.chunk_count(); ++i) {
      const codec::ChunkPlace place = pair.lattice_.place({i});
      if (place.element_bytes() != 2) {
        return failure(ErrorCode::kUnsupported, Stage::kScan,
                       "the peers' methods are for 16-bit elements");
      }
      WEFT_TRY_STATUS(append(base, place, pair.old_bytes_[place.tensor.value]));
      WEFT_TRY_STATUS(append(target, place, pair.new_bytes_[place.tensor.value]));
      pair.bytes_ += place.bytes();
    }
    for (std::size_t t = 0; t < tensor_count; ++t) {
      pair.tensors_.push_back({pair.old_bytes_[t], pair.new_bytes_[t]});
    }
    for (std::uint32_t i = 0; i < pair.lattice_.chunk_count(); ++i) {
      const codec::ChunkPlace place = pair.lattice_.place({i});
      const std::size_t offset = place.first_element * 2;
      const PeerTensor& tensor = pair.tensors_[place.tensor.value];
      pair.chunks_.push_back({tensor.old_bytes.subspan(offset, place.bytes()),
                              tensor.new_bytes.subspan(offset, place.bytes()), place.format});
    }
    return pair;
  }

  const codec::Lattice& lattice() const { return lattice_; }
  std::span<const PeerTensor> tensors() const { return tensors_; }
  std::span<const codec::ChunkInput> chunks() const { return chunks_; }
  std::uint64_t bytes() const { return bytes_; }  // of one checkpoint

  // A copy of the old values, by tensor.
  std::vector<std::vector<std::byte>> copy_of_old() const { return old_bytes_; }

  Status read(ChunkIndex chunk, std::span<std::byte> old_bytes,
              std::span<std::byte> new_bytes) override {
    const codec::ChunkInput& input = chunks_[chunk.value];
    std::memcpy(old_bytes.data(), input.old_bytes.data(), old_bytes.size());
    std::memcpy(new_bytes.data(), input.new_bytes.data(), new_bytes.size());
    return ok();
  }

 private:
  MemoryPair() = default;
  static Status append(const apply::CheckpointDir& checkpoint, const codec::ChunkPlace& place,
                       std::vector<std::byte>& bytes) {
    const std::size_t start = bytes.size();
    bytes.resize(start + place.bytes());
    return checkpoint.read(place, std::span(bytes).subspan(start));
  }

  codec::Lattice lattice_;
  std::vector<std::vector<std::byte>> old_bytes_;  // by tensor
  std::vector<std::vector<std::byte>> new_bytes_;
  std::vector<PeerTensor> tensors_;
  std::vector<codec::ChunkInput> chunks_;
  std::uint64_t bytes_ = 0;
};

}  // namespace weft::bench
