// SPDX-License-Identifier: Apache-2.0
// Which processors there are, by NUMA node, and how the threads of a flow are shared out to them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "weft/base/result.hpp"

namespace weft::codec {

// Threads: a value; one at a time.
struct NumaNode {
  std::uint32_t number = 0;         // the system's
  std::vector<std::uint32_t> cpus;  // the system's numbers, ascending; only those we may run on
};

// Nodes without a processor for this process are left out; there is at least one node.
// Threads: a value; one at a time.
struct NumaTopology {
  std::vector<NumaNode> nodes;

  // What hwloc finds on this machine, read once. Where it finds nothing, one node without a list of
  // processors: nothing is pinned.
  static const NumaTopology& of_machine();
  // hwloc's words for a machine that does not exist, like "numa:2 core:4 pu:2". Errors: kConfig.
  static Result<NumaTopology> of_text(const std::string& words);
};

// Threads: a value; one at a time.
struct NumaShare {
  NumaNode node;
  std::uint32_t threads = 0;
};

// At most `threads` threads, at least one, and no more on a node than it has processors: each goes
// where the fewest are in relation to the processors, the earliest node first. Nodes without a
// thread are left out.
std::vector<NumaShare> share_threads(const NumaTopology& topology, std::uint32_t threads);

// The system's number of the node where memory lies, if that is known.
using NodeOfMemory = std::function<std::optional<std::uint32_t>(const void* at)>;

// Asks the system; nothing where it cannot say, or the page has not been touched yet. Threads: any.
std::optional<std::uint32_t> node_of_memory(const void* at);

}  // namespace weft::codec
