// SPDX-License-Identifier: Apache-2.0
#include "transport/tree/relay_plan.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "transport/tree/shape.hpp"

namespace weft::transport {
namespace {

constexpr double kFramesUnknown = 256;  // when nobody says how much there is to send
constexpr std::uint64_t kAutoTreesMax = 16;
constexpr std::uint64_t kAutoPlacesMax = 50'000;  // a plan is one control message

using Nodes = std::vector<std::uint32_t>;

void put(wire::Plan::Tree& tree, std::uint32_t node, std::uint32_t parent) {
  tree.nodes[node].parent = NodeIndex{parent};
  tree.nodes[parent].children.push_back(NodeIndex{node});
}

// `agents` below `root` in the shape's order.
void hang(wire::Plan::Tree& tree, const Shape& shape, std::uint32_t stripe, std::uint32_t root,
          const Nodes& agents) {
  const auto count = static_cast<std::uint32_t>(agents.size());
  for (std::uint32_t rank = 1; rank <= count; ++rank) {
    const std::uint32_t above = parent_rank(shape, stripe, rank, count);
    put(tree, agents[rank - 1], above == 0 ? root : agents[above - 1]);
  }
}

// First hops lie as far apart as agents and producers allow.
Nodes rotated(Nodes agents, std::uint32_t producer, std::uint32_t producer_count) {
  if (agents.empty()) return agents;
  const auto count = static_cast<std::uint32_t>(agents.size());
  const std::uint64_t stride = std::max(1U, count / producer_count);
  const auto first = static_cast<std::ptrdiff_t>(producer * stride % count);
  std::rotate(agents.begin(), agents.begin() + first, agents.end());
  return agents;
}

// Who may have children, and who may not.
struct Agents {
  Nodes inner;
  Nodes leaves;
};

Agents divide(const PlanRequest& request) {
  Agents agents;
  for (std::uint32_t i = 0; i < request.agent_count; ++i) {
    const std::uint32_t node = request.producer_count + i;
    const bool leaf = !request.leaf_only.empty() && request.leaf_only[node];
    (leaf ? agents.leaves : agents.inner).push_back(node);
  }
  return agents;
}

std::string region_of(const PlanRequest& request, std::uint32_t node) {
  return request.regions.empty() ? std::string() : request.regions[node];
}

using Regions = std::map<std::string, Nodes>;

Regions by_region(const PlanRequest& request, const Nodes& nodes) {
  Regions regions;
  for (const std::uint32_t node : nodes) regions[region_of(request, node)].push_back(node);
  return regions;
}

// Each region is entered once, by a gateway that differs from producer to producer.
Result<wire::Plan::Tree> regional_tree(const PlanRequest& request, const Shape& shape,
                                       std::uint32_t producer, const Nodes& agents) {
  WEFT_TRY(const Shape inner, parse_shape(shape.inner));
  WEFT_TRY(const Shape outer, parse_shape(shape.outer));
  wire::Plan::Tree tree;
  tree.nodes.resize(request.producer_count + request.agent_count);
  Nodes gateways;
  for (auto& [name, nodes] : by_region(request, agents)) {
    const Nodes own = rotated(nodes, producer, request.producer_count);
    if (name == region_of(request, producer)) {
      hang(tree, inner, 0, producer, own);
      continue;
    }
    gateways.push_back(own.front());
    hang(tree, inner, 0, own.front(), {own.begin() + 1, own.end()});
  }
  hang(tree, outer, 0, producer, rotated(std::move(gateways), producer, request.producer_count));
  return tree;
}

// Those that must not have children are dealt to the others, to who has fewest first.
void hang_leaves(wire::Plan::Tree& tree, Nodes parents, const Nodes& leaves) {
  std::stable_sort(parents.begin(), parents.end(), [&](std::uint32_t left, std::uint32_t right) {
    return tree.nodes[left].children.size() < tree.nodes[right].children.size();
  });
  for (std::size_t i = 0; i < leaves.size(); ++i) put(tree, leaves[i], parents[i % parents.size()]);
}

// As above, within their regions where somebody there may have children.
void hang_regional_leaves(wire::Plan::Tree& tree, const PlanRequest& request, Nodes parents,
                          const Nodes& leaves) {
  Regions near = by_region(request, parents);
  for (const auto& [region, nodes] : by_region(request, leaves)) {
    const auto found = near.find(region);
    hang_leaves(tree, found == near.end() ? parents : found->second, nodes);
  }
}

Status check_request(const PlanRequest& request) {
  const std::size_t nodes = std::size_t{request.producer_count} + request.agent_count;
  const bool fits = request.producer_count > 0 && request.producer_count <= limits::kProducersMax &&
                    request.agent_count <= limits::kMembersMax &&
                    (request.regions.empty() || request.regions.size() == nodes) &&
                    (request.leaf_only.empty() || request.leaf_only.size() == nodes);
  if (fits) return ok();
  return failure(ErrorCode::kConfig, Stage::kConfig,
                 "relay plan of " + std::to_string(request.producer_count) + " producers over " +
                     std::to_string(request.agent_count) + " agents");
}

Status check_width(const RelayPlan& plan) {
  for (const wire::Plan::Tree& tree : plan.trees) {
    for (const wire::TreeNode& node : tree.nodes) {
      if (node.children.size() <= limits::kChildrenMax) continue;
      return failure(ErrorCode::kConfig, Stage::kConfig,
                     plan.shape + ": a node would have " + std::to_string(node.children.size()) +
                         " children, at most " + std::to_string(limits::kChildrenMax) +
                         " are possible; use kary(k)");
    }
  }
  return ok();
}

// The trees of the first `roots` producers.
Result<RelayPlan> plan_shape(const PlanRequest& request, const Shape& shape, std::uint32_t roots) {
  const Agents agents = divide(request);
  RelayPlan plan;
  plan.shape = request.shape;
  plan.stripes = stripe_count(shape, static_cast<std::uint32_t>(agents.inner.size()));
  for (std::uint32_t producer = 0; producer < roots; ++producer) {
    const Nodes inner = rotated(agents.inner, producer, request.producer_count);
    Nodes parents = inner;
    parents.push_back(producer);
    for (std::uint32_t stripe = 0; stripe < plan.stripes; ++stripe) {
      wire::Plan::Tree tree;
      if (shape.kind == ShapeKind::kRegional) {
        WEFT_TRY(tree, regional_tree(request, shape, producer, agents.inner));
        hang_regional_leaves(tree, request, parents, agents.leaves);
      } else {
        tree.nodes.resize(request.producer_count + request.agent_count);
        hang(tree, shape, stripe, producer, inner);
        hang_leaves(tree, parents, agents.leaves);
      }
      plan.trees.push_back(std::move(tree));
    }
  }
  WEFT_TRY_STATUS(check_width(plan));
  return plan;
}

// A refit that is small has smaller frames, so that there is something to pass on meanwhile.
double frames_of(std::uint64_t volume_bytes) {
  if (volume_bytes == 0) return kFramesUnknown;
  const std::uint64_t largest = volume_bytes / limits::kFrameBytesMax + 1;
  const std::uint64_t smallest = volume_bytes / limits::kFrameBytesMin + 1;
  return static_cast<double>(
      std::max(largest, std::min<std::uint64_t>(limits::kFramesPerRefitTarget, smallest)));
}

// The busiest link sets the pace; each hop adds one frame times its node's children.
double predicted_frames(const PlanCost& cost, double frames) {
  return frames * cost.egress + cost.depth * std::max(1.0, cost.egress);
}

std::vector<std::string> candidates(const PlanRequest& request) {
  const auto first = request.regions.begin();
  const bool one_region =
      request.regions.empty() ||
      std::all_of(first, request.regions.end(), [&](const auto& each) { return each == *first; });
  if (one_region) {
    return {"chain", "kary(2)", "kary(3)", "binomial", "striped(2)", "striped(4)", "pipeline"};
  }
  return {"regional(chain, chain)", "regional(kary(2), chain)", "regional(binomial, chain)"};
}

// The shape that is done first, if every link has the same rate.
Result<std::string> choose_shape(const PlanRequest& request) {
  const double frames = frames_of(request.volume_bytes);
  std::string best = "chain";
  std::optional<double> best_frames;
  for (const std::string& name : candidates(request)) {
    PlanRequest tried = request;
    tried.shape = name;
    WEFT_TRY(const Shape shape, parse_shape(name));
    const auto plan = plan_shape(tried, shape, 1);
    if (!plan) continue;  // too wide for so many agents
    // Trees of several producers share the load already, and each needs slots of its own.
    const std::uint64_t trees = std::uint64_t{plan->stripes} * request.producer_count;
    const std::uint64_t places = trees * (request.producer_count + request.agent_count);
    if (plan->stripes > 1 && (trees > kAutoTreesMax || places > kAutoPlacesMax)) continue;
    const double predicted = predicted_frames(cost_of(*plan, ProducerIndex{0}), frames);
    if (best_frames && predicted >= *best_frames) continue;
    best = name;
    best_frames = predicted;
  }
  return best;
}

}  // namespace

Result<RelayPlan> plan_relays(const PlanRequest& request) {
  WEFT_TRY_STATUS(check_request(request));
  PlanRequest asked = request;
  WEFT_TRY(Shape shape, parse_shape(asked.shape));
  if (shape.kind == ShapeKind::kAuto) {
    WEFT_TRY(asked.shape, choose_shape(request));
    WEFT_TRY(shape, parse_shape(asked.shape));
  }
  return plan_shape(asked, shape, asked.producer_count);
}

PlanCost cost_of(const RelayPlan& plan, ProducerIndex producer) {
  PlanCost cost;
  std::vector<std::uint32_t> sent;
  for (std::uint32_t s = 0; s < plan.stripes; ++s) {
    const auto& nodes = plan.trees[producer.value * plan.stripes + s].nodes;
    sent.resize(nodes.size(), 0);
    Nodes level{producer.value};
    for (std::uint32_t depth = 0; !level.empty(); ++depth) {
      cost.depth = std::max(cost.depth, depth);
      Nodes next;
      for (const std::uint32_t node : level) {
        const auto children = static_cast<std::uint32_t>(nodes[node].children.size());
        sent[node] += children;
        cost.children = std::max(cost.children, children);
        for (const NodeIndex child : nodes[node].children) next.push_back(child.value);
      }
      level = std::move(next);
    }
  }
  const auto busiest = std::max_element(sent.begin(), sent.end());
  if (busiest != sent.end()) cost.egress = static_cast<double>(*busiest) / plan.stripes;
  return cost;
}

}  // namespace weft::transport
