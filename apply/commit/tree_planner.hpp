// SPDX-License-Identifier: Apache-2.0
// The relay plan as the coordinator sees it: a pure function that the roof brings along, so that
// this room need not know transport.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "weft/base/result.hpp"
#include "weft/wire/messages.hpp"

namespace weft::apply {

struct TreeRequest {
  std::string shape;
  std::uint32_t producer_count = 1;
  std::vector<wire::Endpoint> nodes;  // producers first, then agents in order of their ids
  std::vector<bool> leaf_only;        // place = node: has no children in any tree
  std::uint64_t model_bytes = 0;
  // Trees of this refit that are in use: what can stay as it is stays. None: the first ones.
  const wire::Plan* previous = nullptr;
};

// As many trees per producer, one producer's after the other's, which its frames take in turn; each
// over all nodes (other producers' nodes without parent and children).
using TreePlanner =
    std::function<Result<std::vector<wire::Plan::Tree>>(const TreeRequest& request)>;

}  // namespace weft::apply
