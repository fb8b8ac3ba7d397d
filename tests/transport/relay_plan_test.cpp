// SPDX-License-Identifier: Apache-2.0
#include "transport/tree/relay_plan.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <map>
#include <string>
#include <vector>

namespace weft::transport {
namespace {

struct Walk {
  std::vector<std::uint32_t> visits;
  std::uint32_t depth = 0;
  std::size_t out_degree = 0;
};

// Follows children from the root and checks that parents agree.
Walk walk_tree(const wire::Plan::Tree& tree, std::uint32_t root) {
  Walk walk;
  walk.visits.resize(tree.nodes.size());
  std::vector<std::uint32_t> level{root};
  while (!level.empty() && walk.depth <= tree.nodes.size()) {
    std::vector<std::uint32_t> next;
    for (const std::uint32_t node : level) {
      ++walk.visits[node];
      walk.out_degree = std::max(walk.out_degree, tree.nodes[node].children.size());
      for (const NodeIndex child : tree.nodes[node].children) {
        EXPECT_EQ(tree.nodes[child.value].parent, NodeIndex{node});
        next.push_back(child.value);
      }
    }
    level = std::move(next);
    if (!level.empty()) ++walk.depth;
  }
  return walk;
}

std::uint32_t kary_depth(std::uint32_t degree, std::uint32_t agents) {
  std::uint32_t depth = 0;
  std::uint64_t reached = 0;
  for (std::uint64_t width = degree; reached < agents; width *= degree) reached += width, ++depth;
  return depth;
}

struct Bound {
  std::string shape;
  std::size_t out_degree;
  std::uint32_t depth;
};

void expect_bounds(const Bound& bound, std::uint32_t producers, std::uint32_t agents) {
  SCOPED_TRACE(bound.shape + " producers " + std::to_string(producers) + " agents " +
               std::to_string(agents));
  const auto plan = plan_relays({bound.shape, producers, agents});
  ASSERT_TRUE(plan) << plan.error().message();
  ASSERT_EQ(plan->trees.size(), producers);
  for (const std::uint32_t producer : {0U, producers / 2, producers - 1}) {
    const Walk walk = walk_tree(plan->trees[producer], producer);
    for (std::uint32_t node = 0; node < producers + agents; ++node) {
      const bool in_tree = node == producer || node >= producers;
      ASSERT_EQ(walk.visits[node], in_tree ? 1U : 0U) << "node " << node;
    }
    EXPECT_LE(walk.out_degree, bound.out_degree);
    EXPECT_LE(walk.depth, bound.depth);
  }
}

TEST(RelayPlan, ReachesEveryAgentOnceWithinDegreeAndDepth) {
  for (const std::uint32_t agents : {0U, 1U, 2U, 3U, 7U, 8U, 63U, 64U, 65U, 1000U, 4096U}) {
    for (const std::uint32_t producers : {1U, 2U, 5U, 64U}) {
      expect_bounds({"chain", 1, agents}, producers, agents);
      for (const std::uint32_t k : {1U, 2U, 3U, 16U, 64U}) {
        expect_bounds({"kary(" + std::to_string(k) + ")", k, kary_depth(k, agents)}, producers,
                      agents);
      }
      const auto bits = static_cast<std::uint32_t>(std::bit_width(agents));
      expect_bounds({"binomial", bits, bits}, producers, agents);
      if (agents <= limits::kChildrenMax) expect_bounds({"star", agents, 1}, producers, agents);
    }
  }
}

TEST(RelayPlan, SpreadsFirstHopsOverAgents) {
  for (const std::uint32_t agents : {1U, 3U, 8U, 100U}) {
    for (const std::uint32_t producers : {1U, 2U, 7U, 64U}) {
      const auto plan = plan_relays({"chain", producers, agents});
      ASSERT_TRUE(plan);
      std::map<std::uint32_t, std::uint32_t> first_hops;
      for (std::uint32_t producer = 0; producer < producers; ++producer) {
        ++first_hops[plan->trees[producer].nodes[producer].children.at(0).value];
      }
      for (const auto& [agent, count] : first_hops) {
        EXPECT_LE(count, (producers + agents - 1) / agents) << agents << " " << producers;
      }
    }
  }
}

TEST(RelayPlan, IsTheSameForTheSameRequest) {
  const PlanRequest request{"kary(3)", 4, 50};
  EXPECT_EQ(plan_relays(request)->trees, plan_relays(request)->trees);
}

TEST(RelayPlan, RefusesWhatIsNoShape) {
  for (const char* shape : {"", "ring", "kary", "kary()", "kary(0)", "kary(-1)", "kary(65)",
                            "kary(2", "kary(2)x", "kary( 2)", "kary(99999999999)", "Star"}) {
    const auto plan = plan_relays({shape, 1, 3});
    ASSERT_FALSE(plan) << shape;
    EXPECT_EQ(plan.error().code, ErrorCode::kConfig);
  }
}

TEST(RelayPlan, RefusesAStarWiderThanANodeMayFanOut) {
  const auto plan = plan_relays({"star", 1, limits::kChildrenMax + 1});
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code, ErrorCode::kConfig);
}

TEST(RelayPlan, RefusesCountsThatDoNotFit) {
  EXPECT_FALSE(plan_relays({"chain", 0, 3}));
  EXPECT_FALSE(plan_relays({"chain", 1, limits::kMembersMax + 1}));
  EXPECT_FALSE(plan_relays({"chain", 1, 3, {"too few", "regions"}}));
  EXPECT_FALSE(plan_relays({"chain", 1, 3, {}, {true}}));
}

}  // namespace
}  // namespace weft::transport
