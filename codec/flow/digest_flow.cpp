// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "codec/flow/encode_flow.hpp"
#include "codec/flow/flow_node.hpp"

namespace weft::codec {

namespace {

// Threads: the flow's; members say for themselves.
struct DigestGraph {
  const Lattice& lattice;
  ChunkSource& source;
  DigestTable& table;
  FirstError error;
  std::vector<std::unique_ptr<FlowNode>> nodes;
  std::vector<RangeQueue> queues;  // one per node
};

// What one thread of node `own` does: the ranges of its node, then those that others have left.
void digest_body(DigestGraph& flow, std::size_t own) {
  flow.error.guard([&]() -> Status {
    auto worker = flow.nodes[own]->workers.take();
    auto done = drain_queues(flow.queues, own, [&](const BatchRange& range) -> Status {
      if (flow.error.is_set()) return ok();
      return digest_batch(flow.lattice, flow.source, range, *worker, flow.table);
    });
    flow.nodes[own]->workers.give_back(std::move(worker));
    return done;
  });
}

}  // namespace

Result<DigestTable> digest_flow(const Lattice& lattice, ChunkSource& source, std::uint32_t threads,
                                const NumaTopology& topology) {
  DigestTable table(lattice.chunk_count());
  DigestGraph flow{lattice, source, table, {}, {}, {}};
  flow.error.guard([&] {
    flow.nodes = open_nodes(topology, threads);
    flow.queues = std::vector<RangeQueue>(flow.nodes.size());
    std::size_t number = 0;
    for (ChunkIndex next; next.value < lattice.chunk_count();) {
      const BatchRange range = next_batch(lattice, number, next, {lattice.chunk_count()});
      next.value += range.count;
      const std::size_t one_by_one = number % flow.nodes.size();
      flow.queues[home_of(flow.nodes, source, range).value_or(one_by_one)].ranges.push_back(range);
      ++number;
    }
    run_on_nodes(flow.nodes, [&flow](std::size_t own) { digest_body(flow, own); });
    return ok();
  });
  WEFT_TRY_STATUS(flow.error.status());
  return table;
}

}  // namespace weft::codec
