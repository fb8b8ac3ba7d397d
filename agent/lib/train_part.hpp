// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "agent/lib/residual_marks.hpp"
#include "agent/lib/shard_baseline.hpp"
#include "apply/store/checkpoint_dir.hpp"
#include "codec/project/box.hpp"
#include "codec/project/gather.hpp"
#include "codec/project/lattice.hpp"
#include "weft/publisher.hpp"

namespace weft::agent {

// What one shard tensor feeds.
// Threads: a value; one at a time.
struct SourceUse {
  std::uint64_t elements = 0;
  std::vector<ChunkIndex> chunks;  // ascending
  std::optional<codec::DType> type;
  bool one_type = true;
};

// One producer's part of the model, read once.
// Threads: immutable after open, but for the baseline.
struct TrainPart {
  std::optional<apply::CheckpointDir> base;
  codec::Lattice lattice;
  codec::Projection projection;
  codec::Gather gather;
  ProducerIndex producer;
  std::uint32_t producer_count = 1;
  std::uint32_t threads = 1;
  std::unique_ptr<ShardBaseline> baseline;
  std::optional<ResidualMarks> marks;        // of what is in the baseline
  std::vector<SourceUse> uses;               // by source
  std::vector<std::uint32_t> source_counts;  // by chunk of the producer
  std::unordered_map<std::string, std::uint32_t> places;
  Content content;
  std::uint64_t model_bytes = 0;
  std::uint64_t own_elements = 0;
  const codec::Schema& schema() const { return base->schema(); }
};

// The base is open. Errors: kConfig (boxes: names gap or overlap), kUnsupported.
Status read_boxes(const PublisherOptions& options, TrainPart& part);
// Which chunks need which shard tensors.
void index_sources(TrainPart& part);

}  // namespace weft::agent
