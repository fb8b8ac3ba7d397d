// SPDX-License-Identifier: Apache-2.0
// A producer's stream in parts: chunks in the order in which a trainer hands its tensors over.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "codec/digest/digest_table.hpp"
#include "codec/flow/encode_flow.hpp"
#include "codec/project/lattice.hpp"
#include "weft/base/result.hpp"

namespace weft::codec {

struct BatchRange;

// PartEncoder does what encode_flow does, for some chunks at a time.
// Life:    encode, for every part -> finish, once, unless an encode failed.
// Threads: one at a time; the work itself is spread over `options.threads`, on a
//          machine with several NUMA nodes over those of the nodes that the source names.
class PartEncoder {
 public:
  // All of them must outlive this.
  PartEncoder(const Lattice& lattice, ProducerIndex producer, SlotSource& slots, FrameSink& sink,
              const EncodeFlowOptions& options);
  ~PartEncoder();
  PartEncoder(const PartEncoder&) = delete;
  PartEncoder& operator=(const PartEncoder&) = delete;

  // Chunks of this producer, ascending, each at most once in all parts. Returns when every one has
  // been read, encoded and put into a frame; full frames have been taken. Errors: as encode_flow.
  Status encode(std::span<const ChunkIndex> chunks, ChunkSource& source);
  // Chunks that were in no part count as unchanged since `base`.
  Result<EncodeSummary> finish(const DigestTable& base);

 private:
  struct Body;
  Status encode_window(std::span<const BatchRange> window, ChunkSource& source);
  std::unique_ptr<Body> body_;
};

}  // namespace weft::codec
