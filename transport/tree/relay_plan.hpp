// SPDX-License-Identifier: Apache-2.0
// Relay trees as pure functions of shape and counts.
#pragma once

#include <cstdint>
#include <string_view>

#include "weft/base/ids.hpp"
#include "weft/base/result.hpp"
#include "weft/wire/messages.hpp"

namespace weft::transport {

struct TreeRequest {
  std::string_view shape;  // "star", "chain", "kary(k)", "binomial"
  ProducerIndex producer;
  std::uint32_t producer_count = 1;
  std::uint32_t agent_count = 0;
};

// The tree of one producer over nodes 0..producer_count-1 (producers), then agents. The producer is
// the root and has the shape's out-degree like every other node; other producers have no place.
// Trees of different producers start at different agents, so that no agent carries everyone's
// first hop. Errors: kConfig (unknown shape, bad k, counts, a node with more than kChildrenMax
// children).
Result<wire::Plan::Tree> plan_tree(const TreeRequest& request);

}  // namespace weft::transport
