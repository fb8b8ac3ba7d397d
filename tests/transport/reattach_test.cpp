// SPDX-License-Identifier: Apache-2.0
// New trees from old ones: nobody moves who need not, everybody is reached once.
#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>
#include <vector>

#include "transport/tree/reattach.hpp"
#include "transport/tree/relay_plan.hpp"

namespace weft::transport {
namespace {

wire::Endpoint endpoint(std::uint64_t process) {
  wire::Endpoint made;
  made.member_id = "node-" + std::to_string(process);
  made.process = ProcessId{process};
  return made;
}

wire::Plan first_plan(const std::string& shape, std::uint32_t producers, std::uint32_t agents) {
  wire::Plan plan;
  plan.producer_count = producers;
  for (std::uint32_t i = 0; i < producers + agents; ++i) plan.nodes.push_back(endpoint(i + 1));
  plan.trees = plan_relays({shape, producers, agents})->trees;
  return plan;
}

// Each node but the producers hangs below its parent once, and the producer reaches all.
void expect_whole(const wire::Plan& plan) {
  for (std::uint32_t p = 0; p < plan.trees.size(); ++p) {
    const auto& nodes = plan.trees[p].nodes;
    ASSERT_EQ(nodes.size(), plan.nodes.size());
    std::set<std::uint32_t> reached{p};
    std::vector<std::uint32_t> waiting{p};
    while (!waiting.empty()) {
      const std::uint32_t node = waiting.back();
      waiting.pop_back();
      EXPECT_LE(nodes[node].children.size(), limits::kChildrenMax);
      for (const NodeIndex child : nodes[node].children) {
        EXPECT_TRUE(reached.insert(child.value).second) << child.value;
        EXPECT_EQ(nodes[child.value].parent, NodeIndex{node});
        waiting.push_back(child.value);
      }
    }
    EXPECT_EQ(reached.size(), 1 + plan.nodes.size() - plan.producer_count);
  }
}

wire::Plan next_plan(const wire::Plan& previous, std::vector<wire::Endpoint> nodes,
                     std::vector<bool> leaf_only = {}) {
  leaf_only.resize(nodes.size(), false);
  wire::Plan next = previous;
  auto trees = reattach({previous, nodes, leaf_only});
  EXPECT_TRUE(trees);
  next.nodes = std::move(nodes);
  next.trees = *std::move(trees);
  return next;
}

TEST(Reattach, OrphansHangBelowTheirGrandparentAndNobodyElseMoves) {
  const wire::Plan plan = first_plan("kary(2)", 1, 14);
  std::vector<wire::Endpoint> nodes = plan.nodes;
  nodes.erase(nodes.begin() + 1);  // the first child of the producer
  const wire::Plan next = next_plan(plan, nodes);
  expect_whole(next);
  for (std::uint32_t i = 0; i < next.nodes.size(); ++i) {
    const auto& parent = next.trees[0].nodes[i].parent;
    if (!parent) continue;
    const std::uint32_t old_place = i == 0 ? 0 : i + 1;
    const auto old_parent = *plan.trees[0].nodes[old_place].parent;
    const std::uint32_t expected = old_parent.value == 1 ? 0 : old_parent.value;
    EXPECT_EQ(next.nodes[parent->value].process, plan.nodes[expected].process) << i;
  }
}

TEST(Reattach, AWholeBranchOfLostRelaysIsSkipped) {
  const wire::Plan plan = first_plan("chain", 1, 6);
  const wire::Plan next = next_plan(plan, {plan.nodes[0], plan.nodes[4], plan.nodes[6]});
  expect_whole(next);
  EXPECT_EQ(next.trees[0].nodes[1].parent, NodeIndex{0});
  EXPECT_EQ(next.trees[0].nodes[2].parent, NodeIndex{1});
}

TEST(Reattach, WhoComesBackIsALeafBelowSomebodyWhoMayHaveChildren) {
  const wire::Plan plan = first_plan("kary(2)", 1, 6);
  std::vector<wire::Endpoint> nodes = plan.nodes;
  nodes[1] = endpoint(99);  // the same member as another process
  std::vector<bool> leaf_only(nodes.size(), false);
  leaf_only[1] = leaf_only[5] = leaf_only[6] = true;
  const wire::Plan next = next_plan(plan, nodes, leaf_only);
  expect_whole(next);
  EXPECT_TRUE(next.trees[0].nodes[1].children.empty());
  EXPECT_FALSE(leaf_only[next.trees[0].nodes[1].parent->value]);
}

TEST(Reattach, AProducerThatIsGoneIsAnError) {
  const wire::Plan plan = first_plan("star", 2, 3);
  const std::vector<wire::Endpoint> nodes{plan.nodes[0], plan.nodes[2], plan.nodes[3]};
  const auto trees = reattach({plan, nodes, std::vector<bool>(3, false)});
  ASSERT_FALSE(trees);
  EXPECT_EQ(trees.error().code, ErrorCode::kPeerLost);
}

// Losses and returns one after the other, from seeds, up to 4,096 nodes.
TEST(Reattach, StaysWholeThroughManyLossesAndReturns) {
  for (std::uint32_t seed = 1; seed <= 12; ++seed) {
    std::mt19937 engine(seed);
    const auto random = [&] { return static_cast<std::uint32_t>(engine()); };
    const char* const shapes[] = {"chain", "kary(3)", "binomial", "kary(64)"};
    const std::uint32_t agents = seed == 12 ? 4000 : 5 + random() % 60;
    const std::uint32_t producers = seed == 12 ? 2 : 1 + random() % 3;
    wire::Plan plan = first_plan(shapes[seed % 4], producers, agents);
    std::uint64_t next_process = 100'000;
    for (int round = 0; round < 10; ++round) {
      std::vector<wire::Endpoint> nodes(plan.nodes.begin(), plan.nodes.begin() + producers);
      for (std::uint32_t i = producers; i < plan.nodes.size(); ++i) {
        const std::uint32_t fate = random() % 10;
        if (fate == 0 && plan.nodes.size() > producers + 3U) continue;
        nodes.push_back(fate == 1 ? endpoint(next_process++) : plan.nodes[i]);
      }
      plan = next_plan(plan, std::move(nodes));
      expect_whole(plan);
      if (HasFailure()) FAIL() << "seed " << seed << " round " << round;
    }
  }
}

}  // namespace
}  // namespace weft::transport
