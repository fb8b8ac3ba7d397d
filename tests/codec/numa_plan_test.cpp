// SPDX-License-Identifier: Apache-2.0
// How threads are shared out to NUMA nodes, on machines that do not exist.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "codec/flow/numa_plan.hpp"

namespace weft::codec {
namespace {

NumaTopology machine(std::vector<std::uint32_t> cpus_per_node) {
  NumaTopology made;
  std::uint32_t cpu = 0;
  for (std::uint32_t n = 0; n < cpus_per_node.size(); ++n) {
    NumaNode node{n, std::vector<std::uint32_t>(cpus_per_node[n])};
    std::iota(node.cpus.begin(), node.cpus.end(), cpu);
    cpu += cpus_per_node[n];
    made.nodes.push_back(node);
  }
  return made;
}

std::vector<std::uint32_t> threads_of(const NumaTopology& topology, std::uint32_t threads) {
  std::vector<std::uint32_t> counts(topology.nodes.size());
  for (const NumaShare& share : share_threads(topology, threads)) {
    counts[share.node.number] = share.threads;
  }
  return counts;
}

using Counts = std::vector<std::uint32_t>;

TEST(NumaPlan, ReadsNodesAndProcessorsFromHwloc) {
  const auto topology = NumaTopology::of_text("numa:2 core:4 pu:2");
  ASSERT_TRUE(topology);
  ASSERT_EQ(topology->nodes.size(), 2U);
  EXPECT_EQ(topology->nodes[0].cpus, (Counts{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(topology->nodes[1].cpus, (Counts{8, 9, 10, 11, 12, 13, 14, 15}));
  const auto nonsense = NumaTopology::of_text("numa:two");
  ASSERT_FALSE(nonsense);
  EXPECT_EQ(nonsense.error().code, ErrorCode::kConfig);
}

TEST(NumaPlan, FindsThisMachine) {
  const NumaTopology& here = NumaTopology::of_machine();
  ASSERT_FALSE(here.nodes.empty());
  EXPECT_FALSE(share_threads(here, 1).empty());
}

TEST(NumaPlan, KnowsWhereTouchedMemoryLiesOrThatItDoesNotKnow) {
  const std::vector<std::uint64_t> touched(10'000, 7);
  const auto node = node_of_memory(touched.data());
  const auto& nodes = NumaTopology::of_machine().nodes;
  EXPECT_TRUE(!node || std::any_of(nodes.begin(), nodes.end(),
                                   [&](const NumaNode& each) { return each.number == *node; }));
}

TEST(NumaPlan, SpreadsThreadsEvenly) {
  EXPECT_EQ(threads_of(machine({8, 8}), 1), (Counts{1, 0}));
  EXPECT_EQ(threads_of(machine({8, 8}), 2), (Counts{1, 1}));
  EXPECT_EQ(threads_of(machine({8, 8}), 5), (Counts{3, 2}));
  EXPECT_EQ(threads_of(machine({4, 4, 4, 4}), 8), (Counts{2, 2, 2, 2}));
}

TEST(NumaPlan, GivesMoreThreadsToNodesWithMoreProcessors) {
  EXPECT_EQ(threads_of(machine({6, 2}), 4), (Counts{3, 1}));
  EXPECT_EQ(threads_of(machine({2, 6}), 8), (Counts{2, 6}));
}

TEST(NumaPlan, NeverUsesMoreThreadsThanProcessorsAndAtLeastOne) {
  EXPECT_EQ(threads_of(machine({2, 3}), 100), (Counts{2, 3}));
  EXPECT_EQ(threads_of(machine({2, 3}), 0), (Counts{1, 0}));
}

TEST(NumaPlan, LeavesOutNodesWithoutThreads) {
  const std::vector<NumaShare> shares = share_threads(machine({1, 4, 1}), 1);
  ASSERT_EQ(shares.size(), 1U);
  EXPECT_EQ(shares[0].node.number, 0U);
}

}  // namespace
}  // namespace weft::codec
