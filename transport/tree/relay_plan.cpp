// SPDX-License-Identifier: Apache-2.0
#include "transport/tree/relay_plan.hpp"

#include <algorithm>
#include <bit>
#include <charconv>
#include <string>

namespace weft::transport {
namespace {

enum class ShapeKind : std::uint8_t { kKary, kBinomial };

struct Shape {
  ShapeKind kind = ShapeKind::kKary;
  std::uint32_t degree = 1;
};

Error unknown_shape(std::string_view shape) {
  return failure(ErrorCode::kConfig, Stage::kConfig,
                 "relay shape '" + std::string(shape.substr(0, 64)) +
                     "' is none of star, chain, kary(k) with k from 1 to " +
                     std::to_string(limits::kChildrenMax) + ", binomial");
}

// chain and star are kary(1) and kary(number of agents).
Result<Shape> parse_shape(std::string_view shape, std::uint32_t agent_count) {
  if (shape == "chain") return Shape{ShapeKind::kKary, 1};
  if (shape == "star") return Shape{ShapeKind::kKary, std::max(1U, agent_count)};
  if (shape == "binomial") return Shape{ShapeKind::kBinomial, 0};
  constexpr std::string_view kOpening = "kary(";
  if (!shape.starts_with(kOpening) || !shape.ends_with(")")) return unknown_shape(shape);
  const std::string_view digits = shape.substr(kOpening.size(), shape.size() - kOpening.size() - 1);
  Shape kary;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), kary.degree);
  const bool whole = error == std::errc{} && end == digits.data() + digits.size();
  if (!whole || kary.degree == 0 || kary.degree > limits::kChildrenMax) return unknown_shape(shape);
  return kary;
}

// Rank 0 is the root.
std::uint32_t parent_rank(const Shape& shape, std::uint32_t rank) {
  if (shape.kind == ShapeKind::kKary) return (rank - 1) / shape.degree;
  return rank & ~std::bit_floor(rank);
}

// Ranks to nodes of one producer's tree.
struct Seats {
  ProducerIndex producer;
  std::uint32_t producer_count;
  std::uint32_t agent_count;

  NodeIndex node(std::uint32_t rank) const {
    if (rank == 0) return {producer.value};
    // First hops lie as far apart as agents and producers allow.
    const std::uint64_t stride = std::max(1U, agent_count / producer_count);
    const std::uint64_t agent = (rank - 1 + producer.value * stride) % agent_count;
    return {producer_count + static_cast<std::uint32_t>(agent)};
  }
};

}  // namespace

Result<wire::Plan::Tree> plan_tree(const TreeRequest& request) {
  if (request.producer_count == 0 || request.producer.value >= request.producer_count ||
      request.producer_count > limits::kProducersMax || request.agent_count > limits::kMembersMax) {
    return failure(ErrorCode::kConfig, Stage::kConfig,
                   "relay plan of producer " + std::to_string(request.producer.value) + " of " +
                       std::to_string(request.producer_count) + " over " +
                       std::to_string(request.agent_count) + " agents");
  }
  WEFT_TRY(const Shape shape, parse_shape(request.shape, request.agent_count));
  if (shape.degree > limits::kChildrenMax) {
    return failure(ErrorCode::kConfig, Stage::kConfig,
                   "star over " + std::to_string(request.agent_count) +
                       " agents: a node has at most " + std::to_string(limits::kChildrenMax) +
                       " children; use kary(k)");
  }
  const Seats seats{request.producer, request.producer_count, request.agent_count};
  wire::Plan::Tree tree;
  tree.nodes.resize(request.producer_count + request.agent_count);
  for (std::uint32_t rank = 1; rank <= request.agent_count; ++rank) {
    const NodeIndex node = seats.node(rank);
    const NodeIndex parent = seats.node(parent_rank(shape, rank));
    tree.nodes[node.value].parent = parent;
    tree.nodes[parent.value].children.push_back(node);
  }
  return tree;
}

}  // namespace weft::transport
