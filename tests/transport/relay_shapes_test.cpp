// SPDX-License-Identifier: Apache-2.0
// Shapes with several trees per producer, with regions, and the choice among shapes.
#include <gtest/gtest.h>

#include <bit>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "transport/tree/reattach.hpp"
#include "transport/tree/relay_plan.hpp"
#include "transport/tree/shape.hpp"

namespace weft::transport {
namespace {

constexpr std::uint32_t kAgentCounts[] = {1,  2,  3,  4,  5,  7,   8,    9,   15,
                                          16, 31, 63, 64, 65, 127, 1000, 4096};

// Every tree of every producer reaches every agent once; parents and children agree.
void expect_whole(const RelayPlan& plan, std::uint32_t producers, std::uint32_t agents) {
  ASSERT_EQ(plan.trees.size(), std::size_t{producers} * plan.stripes);
  for (std::size_t t = 0; t < plan.trees.size(); ++t) {
    const auto& nodes = plan.trees[t].nodes;
    ASSERT_EQ(nodes.size(), std::size_t{producers} + agents);
    const auto root = static_cast<std::uint32_t>(t / plan.stripes);
    std::vector<std::uint32_t> waiting{root};
    std::vector<int> visits(nodes.size(), 0);
    while (!waiting.empty()) {
      const std::uint32_t node = waiting.back();
      waiting.pop_back();
      ASSERT_EQ(++visits[node], 1) << "node " << node << " tree " << t;
      for (const NodeIndex child : nodes[node].children) {
        ASSERT_EQ(nodes[child.value].parent, NodeIndex{node});
        waiting.push_back(child.value);
      }
    }
    for (std::uint32_t node = 0; node < nodes.size(); ++node) {
      ASSERT_EQ(visits[node], node == root || node >= producers ? 1 : 0) << node << " tree " << t;
    }
  }
}

RelayPlan plan_of(const std::string& shape, std::uint32_t producers, std::uint32_t agents) {
  auto plan = plan_relays({shape, producers, agents});
  EXPECT_TRUE(plan) << shape << " " << (plan ? "" : plan.error().message());
  return plan ? *std::move(plan) : RelayPlan{};
}

TEST(RelayShapes, StripedIsWholeAndEachAgentIsInteriorInOneTree) {
  for (const std::uint32_t agents : kAgentCounts) {
    for (const std::uint32_t k : {1U, 2U, 3U, 4U, 8U, 16U}) {
      SCOPED_TRACE("striped " + std::to_string(k) + " over " + std::to_string(agents));
      const RelayPlan plan = plan_of("striped(" + std::to_string(k) + ")", 2, agents);
      ASSERT_EQ(plan.stripes, std::min(k, agents));
      expect_whole(plan, 2, agents);
      if (HasFatalFailure()) return;
      for (const std::uint32_t producer : {0U, 1U}) {
        std::map<std::uint32_t, int> interior;
        for (std::uint32_t s = 0; s < plan.stripes; ++s) {
          const auto& nodes = plan.trees[producer * plan.stripes + s].nodes;
          EXPECT_EQ(nodes[producer].children.size(), 1U);
          for (std::uint32_t node = 2; node < nodes.size(); ++node) {
            interior[node] += nodes[node].children.empty() ? 0 : 1;
          }
        }
        for (const auto& [node, count] : interior) EXPECT_LE(count, 1) << node;
        const PlanCost cost = cost_of(plan, ProducerIndex{producer});
        const bool even = agents % plan.stripes == 1 % plan.stripes || k <= 2;
        EXPECT_LE(cost.egress, even ? 1.0 : 2.0);
        if (k >= 2 && agents > k) {
          EXPECT_LE(cost.depth, 2U + static_cast<std::uint32_t>(std::bit_width(agents)));
        }
      }
    }
  }
}

TEST(RelayShapes, PipelineIsWholeAndNobodySendsMuchMoreThanItGets) {
  for (const std::uint32_t agents : kAgentCounts) {
    SCOPED_TRACE(agents);
    const RelayPlan plan = plan_of("pipeline", 2, agents);
    expect_whole(plan, 2, agents);
    if (HasFatalFailure()) return;
    const PlanCost cost = cost_of(plan, ProducerIndex{1});
    const bool cube = std::has_single_bit(agents + 1);
    EXPECT_LE(cost.egress, cube ? 1.0 : 1.7);
    EXPECT_LE(cost.depth, plan.stripes + 2);
    for (std::uint32_t s = 0; s < plan.stripes; ++s) {
      EXPECT_EQ(plan.trees[s].nodes[0].children.size(), 1U);  // each frame leaves the producer once
    }
  }
}

TEST(RelayShapes, RegionalEntersEachRegionOnceByDifferentGateways) {
  for (const std::uint32_t agents : {4U, 12U, 100U, 999U}) {
    PlanRequest request{"regional(kary(2), chain)", 3, agents};
    for (std::uint32_t i = 0; i < 3 + agents; ++i) {
      request.regions.push_back("region-" + std::to_string(i < 3 ? 0 : i % 4));
    }
    const auto plan = plan_relays(request);
    ASSERT_TRUE(plan) << plan.error().message();
    expect_whole(*plan, 3, agents);
    std::map<std::string, std::set<std::uint32_t>> gateways;
    for (std::uint32_t p = 0; p < 3; ++p) {
      std::map<std::string, int> entered;
      const auto& nodes = plan->trees[p].nodes;
      for (std::uint32_t node = 3; node < nodes.size(); ++node) {
        const std::string& to = request.regions[node];
        if (request.regions[nodes[node].parent->value] == to) continue;
        ++entered[to];
        gateways[to].insert(node);
      }
      EXPECT_EQ(entered.size(), 3U);
      for (const auto& [region, count] : entered) EXPECT_EQ(count, 1) << region;
    }
    for (const auto& [region, nodes] : gateways) {
      EXPECT_EQ(nodes.size(), std::min(std::size_t{3}, std::size_t{agents / 4})) << region;
    }
  }
}

TEST(RelayShapes, WithoutRegionsRegionalIsItsInnerShape) {
  EXPECT_EQ(plan_of("regional(binomial, star)", 1, 20).trees, plan_of("binomial", 1, 20).trees);
}

TEST(RelayShapes, AutoTakesAShallowShapeForLittleAndAWideOneForMuch) {
  PlanRequest request{"auto", 1, 64};
  request.volume_bytes = 1;
  const auto little = plan_relays(request);
  request.volume_bytes = std::uint64_t{10} << 30;
  const auto much = plan_relays(request);
  ASSERT_TRUE(little && much);
  expect_whole(*little, 1, 64);
  expect_whole(*much, 1, 64);
  EXPECT_LE(cost_of(*little, ProducerIndex{0}).depth, 7U);
  EXPECT_LE(cost_of(*much, ProducerIndex{0}).egress, 1.5);
  EXPECT_NE(little->shape, "auto");
  EXPECT_NE(much->shape, "auto");
}

TEST(RelayShapes, AutoRespectsRegions) {
  PlanRequest request{"auto", 1, 20};
  for (std::uint32_t i = 0; i < 21; ++i) request.regions.push_back(i < 11 ? "a" : "b");
  const auto plan = plan_relays(request);
  ASSERT_TRUE(plan);
  int crossings = 0;
  for (std::uint32_t node = 1; node < 21; ++node) {
    const auto parent = plan->trees[0].nodes[node].parent->value;
    crossings += request.regions[node] == request.regions[parent] ? 0 : 1;
  }
  EXPECT_EQ(crossings, 1);
}

TEST(RelayShapes, WhoMustBeALeafIsOneInEveryTree) {
  for (const char* shape : {"chain", "kary(2)", "binomial", "pipeline", "striped(3)", "auto"}) {
    PlanRequest request{shape, 1, 20};
    request.leaf_only.resize(21, false);
    for (const std::uint32_t leaf : {1U, 4U, 9U, 20U}) request.leaf_only[leaf] = true;
    const auto plan = plan_relays(request);
    ASSERT_TRUE(plan);
    expect_whole(*plan, 1, 20);
    for (const auto& tree : plan->trees) {
      for (const std::uint32_t leaf : {1U, 4U, 9U, 20U}) {
        EXPECT_TRUE(tree.nodes[leaf].children.empty()) << shape;
      }
    }
  }
}

TEST(RelayShapes, LossesKeepStripedTreesWhole) {
  RelayPlan first = plan_of("striped(3)", 2, 30);
  wire::Plan plan;
  plan.producer_count = 2;
  plan.trees = first.trees;
  for (std::uint64_t i = 1; i <= 32; ++i) {
    plan.nodes.push_back({"node-" + std::to_string(i), ProcessId{i}, "", {}});
  }
  std::vector<wire::Endpoint> nodes = plan.nodes;
  nodes.erase(nodes.begin() + 20);
  nodes.erase(nodes.begin() + 7);
  nodes.erase(nodes.begin() + 3);
  auto trees = reattach({plan, nodes, std::vector<bool>(nodes.size(), false)});
  ASSERT_TRUE(trees);
  first.trees = *std::move(trees);
  expect_whole(first, 2, 27);
}

TEST(RelayShapes, WhatIsNoShapeIsNamed) {
  for (const char* text : {"striped", "striped()", "striped(0)", "striped(17)", "regional",
                           "regional()", "regional(chain)", "regional(chain,)",
                           "regional(striped(2), chain)", "regional(chain, regional(chain, chain))",
                           "regional(auto, chain)", "pipeline(2)", "auto()"}) {
    const auto shape = parse_shape(text);
    ASSERT_FALSE(shape) << text;
    EXPECT_EQ(shape.error().code, ErrorCode::kConfig);
    EXPECT_NE(shape.error().detail.find("regional(inner, outer)"), std::string::npos);
  }
}

}  // namespace
}  // namespace weft::transport
