// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>
#include <string>
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
  std::vector<std::uint32_t> depth;  // hops from the producer; place = node
  std::uint32_t deepest = 0;
  std::uint32_t widest = 0;  // most children of one node
};

// Of one tree alone on its links: the last byte leaves the producer after `children` copies of the
// refit, and then crosses the remaining hops frame by frame.
struct Prediction {
  double seconds = 0;
  double direct_seconds = 0;  // the producer sends to every agent itself
};

std::string name_of(std::uint32_t node, std::uint32_t producer_count) {
  return node < producer_count ? "producer-" + std::to_string(node)
                               : "agent-" + std::to_string(node - producer_count);
}

Result<Tree> make_tree(const PlanOptions& options, std::uint32_t producer) {
  Tree made;
  WEFT_TRY(made.tree, transport::plan_tree({options.shape, ProducerIndex{producer},
                                            options.producer_count, options.node_count}));
  made.depth.resize(made.tree.nodes.size());
  std::vector<std::uint32_t> level = {producer};
  for (std::uint32_t depth = 0; !level.empty(); ++depth) {
    std::vector<std::uint32_t> next;
    for (const std::uint32_t node : level) {
      made.depth[node] = depth;
      const auto& children = made.tree.nodes[node].children;
      made.widest = std::max(made.widest, static_cast<std::uint32_t>(children.size()));
      for (const NodeIndex child : children) next.push_back(child.value);
    }
    if (!next.empty()) made.deepest = depth + 1;
    level = std::move(next);
  }
  return made;
}

// Every node sends what it received to each of its children over one link of the given rate, frame
// by frame: the widest node sets the pace, each hop adds one frame and its delay.
std::optional<Prediction> predict(const PlanOptions& options, const Tree& tree) {
  if (options.refit_bytes == 0 || options.link_bits_per_second <= 0) return std::nullopt;
  const double once = static_cast<double>(options.refit_bytes) * 8 / options.link_bits_per_second;
  const double frame = std::min(
      once, static_cast<double>(limits::kFrameBytesMax) * 8 / options.link_bits_per_second);
  const double delay = std::chrono::duration<double>(options.hop_delay).count();
  return Prediction{once * tree.widest + tree.deepest * (frame * tree.widest + delay),
                    once * options.node_count + delay};
}

std::string as_json(const PlanOptions& options, const std::vector<Tree>& trees) {
  agent::JsonWriter json;
  json.begin_object().member("shape", options.shape).member("agents", options.node_count);
  json.member("producers", options.producer_count).key("trees").begin_array();
  for (std::uint32_t producer = 0; producer < trees.size(); ++producer) {
    const Tree& tree = trees[producer];
    json.begin_object().member("producer", name_of(producer, options.producer_count));
    json.member("depth", tree.deepest).member("children_max", tree.widest);
    if (const auto prediction = predict(options, tree)) {
      json.member("seconds", prediction->seconds);
      json.member("direct_seconds", prediction->direct_seconds);
    }
    json.key("nodes").begin_array();
    for (std::uint32_t node = options.producer_count; node < tree.tree.nodes.size(); ++node) {
      json.begin_object().member("id", name_of(node, options.producer_count));
      const auto& parent = tree.tree.nodes[node].parent;
      json.key("parent");
      parent ? json.value(name_of(parent->value, options.producer_count)) : json.null();
      json.member("depth", tree.depth[node]).end_object();
    }
    json.end_array().end_object();
  }
  return json.end_array().end_object().take();
}

std::string as_dot(const PlanOptions& options, const std::vector<Tree>& trees) {
  std::string text = "digraph plan {\n  rankdir=LR;\n";
  for (std::uint32_t producer = 0; producer < trees.size(); ++producer) {
    const auto& nodes = trees[producer].tree.nodes;
    for (std::uint32_t node = 0; node < nodes.size(); ++node) {
      for (const NodeIndex child : nodes[node].children) {
        text += "  \"" + name_of(node, options.producer_count) + "\" -> \"" +
                name_of(child.value, options.producer_count) + "\"" +
                (trees.size() > 1 ? " [label=\"" + std::to_string(producer) + "\"]" : "") + ";\n";
      }
    }
  }
  return text + "}";
}

// Depth first, each child below its parent; a stack of its own, because a chain is as deep as the
// fleet is large.
void append_tree(const PlanOptions& options, const Tree& tree, std::uint32_t root,
                 std::string& text) {
  std::vector<std::uint32_t> waiting = {root};
  while (!waiting.empty()) {
    const std::uint32_t node = waiting.back();
    waiting.pop_back();
    text += std::string(std::size_t{2} * std::min(tree.depth[node], 40U) + 2, ' ') +
            name_of(node, options.producer_count) + "\n";
    const auto& children = tree.tree.nodes[node].children;
    for (auto child = children.rbegin(); child != children.rend(); ++child) {
      waiting.push_back(child->value);
    }
  }
}

std::string as_text(const PlanOptions& options, const std::vector<Tree>& trees) {
  std::string text;
  for (std::uint32_t producer = 0; producer < trees.size(); ++producer) {
    const Tree& tree = trees[producer];
    text += options.shape + ": depth " + std::to_string(tree.deepest) + ", at most " +
            std::to_string(tree.widest) + " children\n";
    append_tree(options, tree, producer, text);
    if (const auto prediction = predict(options, tree)) {
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
  std::vector<Tree> trees;
  for (std::uint32_t producer = 0; producer < options.producer_count; ++producer) {
    auto tree = make_tree(options, producer);
    if (!tree) return report_failure(tree.error(), options.common);
    trees.push_back(*std::move(tree));
  }
  if (options.common.json) return report_result(as_json(options, trees));
  return report_result(options.format == PlanFormat::kDot ? as_dot(options, trees)
                                                          : as_text(options, trees));
}

}  // namespace weft::cli
