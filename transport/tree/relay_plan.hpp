// SPDX-License-Identifier: Apache-2.0
// Relay trees as pure functions of shape, nodes and regions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weft/base/ids.hpp"
#include "weft/base/result.hpp"
#include "weft/wire/messages.hpp"

namespace weft::transport {

// Nodes 0..producer_count-1 are producers, then come agents.
struct PlanRequest {
  // "star", "chain", "kary(k)", "binomial", "pipeline", "striped(k)", "regional(inner, outer)",
  // "auto"
  std::string shape;
  std::uint32_t producer_count = 1;
  std::uint32_t agent_count = 0;
  std::vector<std::string> regions = {};  // by node; empty: all in one
  std::vector<bool> leaf_only = {};       // by node; empty: none
  std::uint64_t volume_bytes = 0;         // of one producer's frames; 0: not known
};

struct RelayPlan {
  std::string shape;                    // what was asked, or what "auto" has taken
  std::uint32_t stripes = 1;            // trees of one producer, which its frames take in turn
  std::vector<wire::Plan::Tree> trees;  // place = producer * stripes + stripe
};

// The trees of all producers. A producer is the root of its trees; other producers have no place in
// them. Trees of different producers start at different agents, so that no agent carries everyone's
// first hop. Errors: kConfig (unknown shape, bad k, counts, a node with more than kChildrenMax
// children).
Result<RelayPlan> plan_relays(const PlanRequest& request);

// What a plan costs, in copies of one producer's frames over the busiest node's link.
struct PlanCost {
  double egress = 0;           // frames that the busiest node sends, per frame of the producer
  std::uint32_t depth = 0;     // hops to the last node
  std::uint32_t children = 0;  // of one node in one tree, at most
};
PlanCost cost_of(const RelayPlan& plan, ProducerIndex producer);

}  // namespace weft::transport
