// SPDX-License-Identifier: Apache-2.0
// New trees from old ones when nodes go or come, as a pure function.
#pragma once

#include <vector>

#include "weft/base/result.hpp"
#include "weft/wire/messages.hpp"

namespace weft::transport {

struct ReattachRequest {
  const wire::Plan& previous;
  const std::vector<wire::Endpoint>& nodes;  // producers first; known again by their process
  const std::vector<bool>& leaf_only;        // place = node: nobody is newly put below it
};

// The trees of `previous` over `nodes`. Nobody whose parent is still there moves. Children of a
// node that is gone hang below the nearest ancestor that is left (or, where that one has
// kChildrenMax children, below one of its own); nodes that are new are leaves where the fewest
// children are. Errors: kPeerLost (a producer is gone).
Result<std::vector<wire::Plan::Tree>> reattach(const ReattachRequest& request);

}  // namespace weft::transport
