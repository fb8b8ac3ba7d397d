// SPDX-License-Identifier: Apache-2.0
#include "transport/tree/reattach.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>

#include "weft/base/limits.hpp"

namespace weft::transport {
namespace {

using Place = std::optional<std::uint32_t>;

// One tree while it is being built.
// Threads: one at a time.
class TreeBuilder {
 public:
  explicit TreeBuilder(std::size_t node_count) { tree_.nodes.resize(node_count); }

  void put(std::uint32_t node, std::uint32_t parent) {
    tree_.nodes[node].parent = NodeIndex{parent};
    tree_.nodes[parent].children.push_back(NodeIndex{node});
  }
  std::size_t children(std::uint32_t node) const { return tree_.nodes[node].children.size(); }

  // `wanted`, or the nearest below it that has room.
  std::uint32_t with_room(std::uint32_t wanted) const {
    for (const std::uint32_t node : below(wanted)) {
      if (children(node) < limits::kChildrenMax) return node;
    }
    return wanted;
  }
  // Of those in the tree that may have children, one with the fewest, near the root.
  std::uint32_t emptiest(std::uint32_t root, const std::vector<bool>& leaf_only) const {
    std::uint32_t best = root;
    for (const std::uint32_t node : below(root)) {
      if (!leaf_only[node] && children(node) < children(best)) best = node;
    }
    return best;
  }
  wire::Plan::Tree take() && { return std::move(tree_); }

 private:
  // Breadth first, `top` included.
  std::vector<std::uint32_t> below(std::uint32_t top) const {
    std::vector<std::uint32_t> found{top};
    for (std::size_t i = 0; i < found.size(); ++i) {
      for (const NodeIndex child : tree_.nodes[found[i]].children) found.push_back(child.value);
    }
    return found;
  }
  wire::Plan::Tree tree_;
};

// The nearest ancestor that is left, by its new place.
Place ancestor_left(const wire::Plan::Tree& old, std::uint32_t node,
                    const std::vector<Place>& new_places) {
  auto above = old.nodes[node].parent;
  for (std::size_t steps = 0; above && steps < old.nodes.size(); ++steps) {
    if (new_places[above->value]) return new_places[above->value];
    above = old.nodes[above->value].parent;
  }
  return std::nullopt;
}

Result<wire::Plan::Tree> reattach_tree(const ReattachRequest& request, std::size_t tree,
                                       const std::vector<Place>& new_places) {
  const wire::Plan::Tree& old = request.previous.trees[tree];
  const std::size_t stripes = request.previous.trees.size() / request.previous.producer_count;
  const std::size_t producer = tree / stripes;
  TreeBuilder built(request.nodes.size());
  const Place root = new_places[producer];
  if (!root) {
    return failure(ErrorCode::kPeerLost, Stage::kRelay,
                   "producer " + request.previous.nodes[producer].member_id + " is gone");
  }
  std::vector<bool> placed(request.nodes.size(), false);
  // First those that stay, so that orphans find the room that is really left.
  std::vector<std::pair<std::uint32_t, std::uint32_t>> orphans;
  for (std::uint32_t i = 0; i < old.nodes.size(); ++i) {
    if (!old.nodes[i].parent || !new_places[i]) continue;
    placed[*new_places[i]] = true;
    if (const Place parent = new_places[old.nodes[i].parent->value]) {
      built.put(*new_places[i], *parent);
    } else {
      orphans.emplace_back(*new_places[i], ancestor_left(old, i, new_places).value_or(*root));
    }
  }
  for (const auto& [node, ancestor] : orphans) built.put(node, built.with_room(ancestor));
  for (auto i = request.previous.producer_count; i < request.nodes.size(); ++i) {
    if (!placed[i]) built.put(i, built.with_room(built.emptiest(*root, request.leaf_only)));
  }
  return std::move(built).take();
}

}  // namespace

Result<std::vector<wire::Plan::Tree>> reattach(const ReattachRequest& request) {
  std::map<ProcessId, std::uint32_t> by_process;
  for (std::uint32_t i = 0; i < request.nodes.size(); ++i) {
    by_process[request.nodes[i].process] = i;
  }
  std::vector<Place> new_places(request.previous.nodes.size());
  for (std::size_t i = 0; i < new_places.size(); ++i) {
    const auto found = by_process.find(request.previous.nodes[i].process);
    if (found != by_process.end()) new_places[i] = found->second;
  }
  std::vector<wire::Plan::Tree> trees;
  for (std::size_t t = 0; t < request.previous.trees.size(); ++t) {
    WEFT_TRY(auto tree, reattach_tree(request, t, new_places));
    trees.push_back(std::move(tree));
  }
  return trees;
}

}  // namespace weft::transport
