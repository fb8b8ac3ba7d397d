// SPDX-License-Identifier: Apache-2.0
#include "codec/flow/flow_node.hpp"

#include <oneapi/tbb/task_group.h>

namespace weft::codec {

std::vector<std::unique_ptr<FlowNode>> open_nodes(const NumaTopology& topology,
                                                  std::uint32_t threads) {
  const std::vector<NumaShare> shares = share_threads(topology, threads);
  std::vector<std::unique_ptr<FlowNode>> nodes;
  nodes.reserve(shares.size());
  for (const NumaShare& share : shares) {
    nodes.push_back(std::make_unique<FlowNode>(share, shares.size() == 1));
  }
  return nodes;
}

namespace {

void start_on(FlowNode& node, oneapi::tbb::task_group& group, const std::function<void()>& body) {
  node.threads.arena().execute([&] {
    for (std::uint32_t i = 0; i < node.threads.share().threads; ++i) group.run(body);
  });
}

}  // namespace

void run_on_nodes(const std::vector<std::unique_ptr<FlowNode>>& nodes,
                  const std::function<void(std::size_t)>& body) {
  std::vector<oneapi::tbb::task_group> groups(nodes.size());
  for (std::size_t n = 0; n < nodes.size(); ++n) {
    start_on(*nodes[n], groups[n], [&body, n] { body(n); });
  }
  for (std::size_t n = 0; n < nodes.size(); ++n) {
    nodes[n]->threads.arena().execute([&groups, n] { groups[n].wait(); });
  }
}

Status drain_queues(std::vector<RangeQueue>& queues, std::size_t own,
                    const std::function<Status(const BatchRange&)>& work) {
  for (std::size_t i = 0; i < queues.size(); ++i) {
    RangeQueue& queue = queues[(own + i) % queues.size()];
    while (const BatchRange* range = queue.take()) WEFT_TRY_STATUS(work(*range));
  }
  return ok();
}

std::optional<std::size_t> home_of(const std::vector<std::unique_ptr<FlowNode>>& nodes,
                                   const ChunkSource& source, const BatchRange& range) {
  if (nodes.size() < 2) return std::nullopt;
  const std::optional<std::uint32_t> home = source.numa_node(range.first);
  for (std::size_t n = 0; home && n < nodes.size(); ++n) {
    if (nodes[n]->threads.share().node.number == *home) return n;
  }
  return std::nullopt;
}

}  // namespace weft::codec
