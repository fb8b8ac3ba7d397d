// SPDX-License-Identifier: Apache-2.0
// What a node agent is now, as text: for its own pages.
#pragma once

#include <string>

#include "agent/lib/node_agent.hpp"
#include "weft/base/clock.hpp"

namespace weft::agent {

// The keys of the fleet's status with this node as the only member, and `node`: docs/json.md.
std::string node_status_json(const NodeSnapshot& node, TimePoint now);

// A few lines and a table of its links, for a terminal.
std::string node_status_text(const NodeSnapshot& node);

// Prometheus text: gauges of this node and of its links.
std::string node_metrics(const NodeSnapshot& node, TimePoint now);

}  // namespace weft::agent
