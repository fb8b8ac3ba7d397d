// SPDX-License-Identifier: Apache-2.0
#include <oneapi/tbb/task_group.h>

#include <atomic>
#include <cstddef>
#include <memory>
#include <vector>

#include "codec/flow/encode_flow.hpp"
#include "codec/flow/flow_node.hpp"

namespace weft::codec {

namespace {

// The ranges of one node, handed out one at a time to whoever asks.
// Threads: any.
struct RangeQueue {
  std::vector<BatchRange> ranges;
  std::atomic<std::size_t> next{0};
  const BatchRange* take() {
    const std::size_t at = next.fetch_add(1);
    return at < ranges.size() ? &ranges[at] : nullptr;
  }
};

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
    for (std::size_t i = 0; i < flow.queues.size(); ++i) {
      RangeQueue& queue = flow.queues[(own + i) % flow.queues.size()];
      while (const BatchRange* range = queue.take()) {
        if (flow.error.is_set()) return ok();
        WEFT_TRY_STATUS(digest_batch(flow.lattice, flow.source, *range, *worker, flow.table));
      }
    }
    flow.nodes[own]->workers.give_back(std::move(worker));
    return ok();
  });
}

void run_digest(DigestGraph& flow) {
  std::vector<oneapi::tbb::task_group> groups(flow.nodes.size());
  for (std::size_t n = 0; n < flow.nodes.size(); ++n) {
    flow.nodes[n]->threads.arena().execute([&flow, &groups, n] {
      for (std::uint32_t i = 0; i < flow.nodes[n]->threads.share().threads; ++i) {
        groups[n].run([&flow, n] { digest_body(flow, n); });
      }
    });
  }
  for (std::size_t n = 0; n < flow.nodes.size(); ++n) {
    flow.nodes[n]->threads.arena().execute([&groups, n] { groups[n].wait(); });
  }
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
    run_digest(flow);
    return ok();
  });
  WEFT_TRY_STATUS(flow.error.status());
  return table;
}

}  // namespace weft::codec
