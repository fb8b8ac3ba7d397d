// SPDX-License-Identifier: Apache-2.0
#include "codec/flow/flow_node.hpp"

namespace weft::codec {

std::vector<std::unique_ptr<FlowNode>> open_nodes(const NumaTopology& topology,
                                                  std::uint32_t threads) {
  const std::vector<NumaShare> shares = share_threads(topology, threads);
  std::vector<std::unique_ptr<FlowNode>> nodes;
  for (const NumaShare& share : shares) {
    nodes.push_back(std::make_unique<FlowNode>(share, shares.size() == 1));
  }
  return nodes;
}

std::optional<std::size_t> home_of(const std::vector<std::unique_ptr<FlowNode>>& nodes,
                                   const ChunkSource& source, const BatchRange& range) {
  const std::optional<std::uint32_t> home = source.numa_node(range.first);
  for (std::size_t n = 0; home && n < nodes.size(); ++n) {
    if (nodes[n]->threads.share().node.number == *home) return n;
  }
  return std::nullopt;
}

}  // namespace weft::codec
