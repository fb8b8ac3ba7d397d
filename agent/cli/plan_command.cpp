// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent/cli/commands.hpp"
#include "agent/cli/report.hpp"
#include "agent/lib/json_writer.hpp"
#include "agent/lib/units.hpp"
#include "transport/tree/relay_plan.hpp"

namespace weft::cli {
namespace {

struct Tree {
  wire::Plan::Tree tree;
  std::uint32_t producer = 0;
  std::uint32_t stripe = 0;
  std::vector<std::uint32_t> depth;  // hops from the producer; place = node
  std::uint32_t deepest = 0;
  std::uint32_t widest = 0;     // most children of one node
  std::uint32_t crossings = 0;  // hops from one region to another
};

struct Plan {
  std::string shape;  // "auto" has taken one
  std::uint32_t stripes = 1;
  std::vector<Tree> trees;
  std::vector<std::string> regions;        // place = node; empty: one
  std::vector<transport::PlanCost> costs;  // place = producer
};

// Of one producer's trees alone on their links: the last byte leaves the busiest node after its
// share of copies of the refit, and then crosses the remaining hops frame by frame.
struct Prediction {
  double seconds = 0;
  double direct_seconds = 0;  // the producer sends to every agent itself
};

std::string name_of(std::uint32_t node, std::uint32_t producer_count) {
  return node < producer_count ? "producer-" + std::to_string(node)
                               : "agent-" + std::to_string(node - producer_count);
}

// The place of `node` with its region, where there are several.
std::string place_of(const Plan& plan, std::uint32_t node, std::uint32_t producer_count) {
  return name_of(node, producer_count) +
         (plan.regions.empty() ? "" : " (" + plan.regions[node] + ")");
}

std::vector<std::string> regions_of(const PlanOptions& options) {
  std::vector<std::string> regions;
  if (options.region_count < 2) return regions;
  regions.resize(options.producer_count, "region-0");
  for (std::uint64_t agent = 0; agent < options.node_count; ++agent) {
    regions.push_back("region-" +
                      std::to_string(agent * options.region_count / options.node_count));
  }
  return regions;
}

Tree measure(wire::Plan::Tree tree, std::uint32_t producer, std::uint32_t stripe,
             const std::vector<std::string>& regions) {
  Tree made;
  made.tree = std::move(tree);
  made.producer = producer;
  made.stripe = stripe;
  made.depth.resize(made.tree.nodes.size());
  std::vector<std::uint32_t> level = {producer};
  for (std::uint32_t depth = 0; !level.empty(); ++depth) {
    std::vector<std::uint32_t> next;
    for (const std::uint32_t node : level) {
      made.depth[node] = depth;
      const auto& children = made.tree.nodes[node].children;
      made.widest = std::max(made.widest, static_cast<std::uint32_t>(children.size()));
      for (const NodeIndex child : children) {
        next.push_back(child.value);
        if (!regions.empty() && regions[child.value] != regions[node]) ++made.crossings;
      }
    }
    if (!next.empty()) made.deepest = depth + 1;
    level = std::move(next);
  }
  return made;
}

Result<Plan> make_plan(const PlanOptions& options) {
  transport::PlanRequest request{options.shape, options.producer_count, options.node_count};
  request.volume_bytes = options.refit_bytes;
  request.regions = regions_of(options);
  WEFT_TRY(transport::RelayPlan relays, transport::plan_relays(request));
  Plan plan;
  plan.shape = relays.shape;
  plan.stripes = relays.stripes;
  plan.regions = std::move(request.regions);
  for (std::uint32_t producer = 0; producer < options.producer_count; ++producer) {
    plan.costs.push_back(transport::cost_of(relays, ProducerIndex{producer}));
    for (std::uint32_t stripe = 0; stripe < plan.stripes; ++stripe) {
      plan.trees.push_back(measure(std::move(relays.trees[producer * plan.stripes + stripe]),
                                   producer, stripe, plan.regions));
    }
  }
  return plan;
}

// Every node sends its share to each of its children over one link of the given rate, frame by
// frame: the busiest node sets the pace, each hop adds one frame and its delay.
std::optional<Prediction> predict(const PlanOptions& options, const Plan& plan,
                                  std::uint32_t producer) {
  if (options.refit_bytes == 0 || options.link_bits_per_second <= 0) return std::nullopt;
  const transport::PlanCost& cost = plan.costs[producer];
  const double once = static_cast<double>(options.refit_bytes) * 8 / options.link_bits_per_second;
  const double frame = std::min(
      once, static_cast<double>(limits::kFrameBytesMax) * 8 / options.link_bits_per_second);
  const double delay = std::chrono::duration<double>(options.hop_delay).count();
  return Prediction{once * cost.egress + cost.depth * (frame * std::max(1.0, cost.egress) + delay),
                    once * options.node_count + delay};
}

std::string as_json(const PlanOptions& options, const Plan& plan) {
  agent::JsonWriter json;
  json.begin_object().member("shape", plan.shape).member("agents", options.node_count);
  json.member("producers", options.producer_count).member("stripes", plan.stripes);
  json.key("trees").begin_array();
  for (const Tree& tree : plan.trees) {
    json.begin_object().member("producer", name_of(tree.producer, options.producer_count));
    json.member("stripe", tree.stripe).member("depth", tree.deepest);
    json.member("children_max", tree.widest).member("region_crossings", tree.crossings);
    json.member("egress", plan.costs[tree.producer].egress);
    if (const auto prediction = predict(options, plan, tree.producer)) {
      json.member("seconds", prediction->seconds);
      json.member("direct_seconds", prediction->direct_seconds);
    }
    json.key("nodes").begin_array();
    for (std::uint32_t node = options.producer_count; node < tree.tree.nodes.size(); ++node) {
      json.begin_object().member("id", name_of(node, options.producer_count));
      const auto& parent = tree.tree.nodes[node].parent;
      json.key("parent");
      parent ? json.value(name_of(parent->value, options.producer_count)) : json.null();
      json.member("depth", tree.depth[node]);
      if (!plan.regions.empty()) json.member("region", plan.regions[node]);
      json.end_object();
    }
    json.end_array().end_object();
  }
  return json.end_array().end_object().take();
}

std::string as_dot(const PlanOptions& options, const Plan& plan) {
  std::string text = "digraph plan {\n  rankdir=LR;\n";
  for (std::size_t i = 0; i < plan.trees.size(); ++i) {
    const auto& nodes = plan.trees[i].tree.nodes;
    for (std::uint32_t node = 0; node < nodes.size(); ++node) {
      for (const NodeIndex child : nodes[node].children) {
        text += "  \"" + place_of(plan, node, options.producer_count) + "\" -> \"" +
                place_of(plan, child.value, options.producer_count) + "\"" +
                (plan.trees.size() > 1 ? " [label=\"" + std::to_string(i) + "\"]" : "") + ";\n";
      }
    }
  }
  return text + "}";
}

// Depth first, each child below its parent; a stack of its own, because a chain is as deep as the
// fleet is large.
void append_tree(const PlanOptions& options, const Plan& plan, const Tree& tree,
                 std::string& text) {
  std::vector<std::uint32_t> waiting = {tree.producer};
  while (!waiting.empty()) {
    const std::uint32_t node = waiting.back();
    waiting.pop_back();
    text += std::string(std::size_t{2} * std::min(tree.depth[node], 40U) + 2, ' ') +
            place_of(plan, node, options.producer_count) + "\n";
    const auto& children = tree.tree.nodes[node].children;
    for (auto child = children.rbegin(); child != children.rend(); ++child) {
      waiting.push_back(child->value);
    }
  }
}

std::string as_text(const PlanOptions& options, const Plan& plan) {
  std::string text;
  for (const Tree& tree : plan.trees) {
    const std::string stripe = plan.stripes == 1 ? ""
                                                 : ", stripe " + std::to_string(tree.stripe + 1) +
                                                       " of " + std::to_string(plan.stripes);
    text += plan.shape + stripe + ": depth " + std::to_string(tree.deepest) + ", at most " +
            std::to_string(tree.widest) + " children" +
            (plan.regions.empty() ? ""
                                  : ", enters a region " + std::to_string(tree.crossings) +
                                        (tree.crossings == 1 ? " time" : " times")) +
            "\n";
    append_tree(options, plan, tree, text);
    if (tree.stripe + 1 < plan.stripes) continue;
    if (const auto prediction = predict(options, plan, tree.producer)) {
      char line[160];
      std::snprintf(line, sizeof(line),
                    "predicted: %.3f s for %s (%.3f s if the producer sent to each itself)\n",
                    prediction->seconds, agent::human_bytes(options.refit_bytes).c_str(),
                    prediction->direct_seconds);
      text += line;
    }
  }
  text.pop_back();
  return text;
}

}  // namespace

int run_plan(const PlanOptions& options, StopToken&) {
  const Result<Plan> plan = make_plan(options);
  if (!plan) return report_failure(plan.error(), options.common);
  if (options.common.json) return report_result(as_json(options, *plan));
  return report_result(options.format == PlanFormat::kDot ? as_dot(options, *plan)
                                                          : as_text(options, *plan));
}

}  // namespace weft::cli
