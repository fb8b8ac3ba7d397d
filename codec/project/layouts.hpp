// SPDX-License-Identifier: Apache-2.0
// The usual ways of sharding a model, as boxes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "codec/project/box.hpp"
#include "codec/safetensors/schema.hpp"
#include "weft/base/result.hpp"

namespace weft::codec {

// Threads: a value; one at a time.
struct ParallelRank {
  std::uint32_t rank = 0;
  std::uint32_t size = 1;
};

// Where a process stands.
// Threads: a value; one at a time.
struct Placement {
  ParallelRank tensor;   // tensor-parallel
  ParallelRank expert;   // expert-parallel
  ParallelRank replica;  // among processes that hold the same shards (data-parallel)
};

// Query heads Hq, key/value groups G and head width of a fused projection.
// Threads: a value; one at a time.
struct AttentionShape {
  std::uint64_t query_heads = 0;
  std::uint64_t groups = 0;
  std::uint64_t head_width = 0;
};

// How a stack of experts lies in its shard.
// Threads: a value; one at a time.
struct StackShape {
  bool transposed = false;   // [experts, columns, rows]
  bool interleaved = false;  // gate and up alternate, row by row of the checkpoint
};

// The holder that emits a tensor that `holder_count` processes hold: by a hash of its name, so that
// the load spreads and all agree.
std::uint32_t owner_of(std::string_view tensor_name, std::uint32_t holder_count);

// `pattern` with its first "{}" replaced by the global number of a local expert.
std::string expert_name(std::string_view pattern, std::uint64_t local, std::uint64_t local_count,
                        const ParallelRank& expert);

// ProjectionBuilder makes the boxes of one process. Every call names a tensor of the shard and the
// checkpoint tensors that it holds a part of; where another replica is the owner, nothing is added.
// Errors of all: kConfig (no such checkpoint tensor, or sizes that do not divide; names both),
// kUnsupported (a layout that boxes cannot express); what was added so far is then of no use.
// Threads: one at a time.
class ProjectionBuilder {
 public:
  ProjectionBuilder(const Schema& schema, const Placement& placement)
      : schema_(schema), placement_(placement) {}

  // Whole on every tensor-parallel rank: norms, routers, the bias of a row-parallel layer.
  Status replicated(const std::string& source, std::string_view target);
  // Cut on dimension 0.
  Status column_parallel(const std::string& source, std::string_view target);
  // Cut on dimension 1.
  Status row_parallel(const std::string& source, std::string_view target);
  // [gate; up] on dimension 0, each of them cut.
  Status gate_up(const std::string& source, std::string_view gate, std::string_view up);
  // The checkpoint has [E, 2F, H]; the shard has [E, 2F/T, H], gate before up for each expert.
  Status grouped_gate_up(const std::string& source, std::string_view target);
  // Per group R query blocks, a key block, a value block. With fewer groups than ranks the key and
  // value rows are replicated.
  Status attention(const std::string& source, std::string_view query, std::string_view key,
                   std::string_view value, const AttentionShape& shape);
  // A stack [E/EP, rows, columns] of experts; the checkpoint has one tensor each ("{}" in the name)
  // or the whole stack [E, ...].
  Status expert_stack(const std::string& source, std::string_view target, const StackShape& shape);
  // The same of fused gate and up, [E/EP, 2F, H].
  Status expert_gate_up_stack(const std::string& source, std::string_view gate, std::string_view up,
                              const StackShape& shape);
  // Components one behind the other on dimension 0, each of them cut (Mamba's in-projection and
  // convolution). `component_rows` are those of the checkpoint; their sum is its dimension 0.
  Status concatenated(const std::string& source, std::string_view target,
                      const std::vector<std::uint64_t>& component_rows);
  // Cut on dimension 0 after padding to `padded_rows`; the padding is not emitted.
  Status vocabulary(const std::string& source, std::string_view target, std::uint64_t padded_rows);
  // Elements [target_offset, + count) of a tensor, from `source_offset` on in a flat shard. Several
  // calls with one source name share it.
  Status flat(const std::string& source, std::uint64_t source_offset, std::string_view target,
              std::uint64_t target_offset, std::uint64_t count);

  const Projection& projection() const { return projection_; }
  Projection take() && { return std::move(projection_); }

 private:
  struct Matrix;  // a target as rows of equal length
  Result<Matrix> find(std::string_view target) const;
  // Of `holder_count` holders this one is number `holder`, times the replicas of each.
  bool owns(std::string_view target, std::uint32_t holder, std::uint32_t holder_count) const;
  std::uint32_t source_of(const std::string& name, std::uint64_t element_count);
  void add(std::uint32_t source, std::uint64_t source_offset, TensorIndex target,
           std::uint64_t target_offset, const std::vector<BoxAxis>& axes);
  // One target of one expert in a stack.
  struct StackPart {
    std::uint64_t local;  // expert, counted here
    std::uint64_t local_count;
    std::uint64_t part;  // target
    std::uint64_t parts;
  };
  Result<std::uint64_t> local_experts(std::string_view pattern) const;
  Status expert_part(const std::string& source, std::string_view target, const StackPart& at,
                     const StackShape& shape);
  Status stack_part(const std::string& source, const std::vector<std::string_view>& targets,
                    const StackShape& shape);

  const Schema& schema_;
  const Placement placement_;
  Projection projection_;
};

}  // namespace weft::codec
