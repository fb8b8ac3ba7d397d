// SPDX-License-Identifier: Apache-2.0
#include "codec/flow/numa_plan.hpp"

#include <hwloc.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <thread>
#include <utility>

namespace weft::codec {

namespace {

// Threads: one at a time.
class Topology {
 public:
  Topology() {
    if (hwloc_topology_init(&topology_) != 0) topology_ = nullptr;
  }
  Topology(const Topology&) = delete;
  Topology& operator=(const Topology&) = delete;
  ~Topology() {
    if (topology_ != nullptr) hwloc_topology_destroy(topology_);
  }
  bool describe(const std::string& words) {
    return topology_ != nullptr && hwloc_topology_set_synthetic(topology_, words.c_str()) == 0;
  }
  bool load() { return topology_ != nullptr && hwloc_topology_load(topology_) == 0; }
  // With `here`, only the processors on which the calling thread may run.
  NumaTopology read(bool here) const;
  std::optional<std::uint32_t> node_of(const void* at) const;

 private:
  hwloc_topology_t topology_ = nullptr;
};

NumaTopology Topology::read(bool here) const {
  NumaTopology found;
  const hwloc_bitmap_t allowed = hwloc_bitmap_dup(hwloc_topology_get_allowed_cpuset(topology_));
  const hwloc_bitmap_t bound = hwloc_bitmap_alloc();
  if (here && hwloc_get_cpubind(topology_, bound, HWLOC_CPUBIND_THREAD) == 0) {
    hwloc_bitmap_and(allowed, allowed, bound);
  }
  hwloc_bitmap_free(bound);
  for (hwloc_obj_t node = nullptr;
       (node = hwloc_get_next_obj_by_type(topology_, HWLOC_OBJ_NUMANODE, node)) != nullptr;) {
    NumaNode made{node->os_index, {}};
    for (int cpu = hwloc_bitmap_first(node->cpuset); cpu >= 0;
         cpu = hwloc_bitmap_next(node->cpuset, cpu)) {
      const auto number = static_cast<unsigned>(cpu);
      if (hwloc_bitmap_isset(allowed, number) != 0) made.cpus.push_back(number);
    }
    if (!made.cpus.empty()) found.nodes.push_back(std::move(made));
  }
  hwloc_bitmap_free(allowed);
  return found;
}

std::optional<std::uint32_t> Topology::node_of(const void* at) const {
  const hwloc_bitmap_t nodes = hwloc_bitmap_alloc();
  const bool known =
      hwloc_get_area_memlocation(topology_, at, 1, nodes, HWLOC_MEMBIND_BYNODESET) == 0;
  const int node = known ? hwloc_bitmap_first(nodes) : -1;
  hwloc_bitmap_free(nodes);
  if (node < 0) return std::nullopt;
  return static_cast<std::uint32_t>(node);
}

NumaTopology read_machine() {
  Topology machine;
  NumaTopology found;
  if (machine.load()) found = machine.read(true);
  if (found.nodes.empty()) found.nodes.push_back({});
  return found;
}

// How many threads fit a node.
std::uint32_t room(const NumaNode& node) {
  if (!node.cpus.empty()) return static_cast<std::uint32_t>(node.cpus.size());
  return std::max(1U, std::thread::hardware_concurrency());
}

}  // namespace

const NumaTopology& NumaTopology::of_machine() {
  static const NumaTopology machine = read_machine();
  return machine;
}

Result<NumaTopology> NumaTopology::of_text(const std::string& words) {
  Topology made;
  if (made.describe(words) && made.load()) return made.read(false);
  return failure(ErrorCode::kConfig, Stage::kConfig, "'" + words + "' describes no machine");
}

std::optional<std::uint32_t> node_of_memory(const void* at) {
  // A loaded topology is only read.
  static Topology machine;
  static const bool loaded = machine.load();
  return loaded ? machine.node_of(at) : std::nullopt;
}

std::vector<NumaShare> share_threads(const NumaTopology& topology, std::uint32_t threads) {
  std::vector<NumaShare> shares;
  for (const NumaNode& node : topology.nodes) shares.push_back({node, 0});
  for (std::uint32_t i = 0; i < std::max(threads, 1U); ++i) {
    NumaShare* emptiest = nullptr;
    for (NumaShare& share : shares) {
      if (share.threads == room(share.node)) continue;
      if (emptiest == nullptr || std::uint64_t{share.threads} * room(emptiest->node) <
                                     std::uint64_t{emptiest->threads} * room(share.node)) {
        emptiest = &share;
      }
    }
    if (emptiest == nullptr) break;
    ++emptiest->threads;
  }
  std::erase_if(shares, [](const NumaShare& share) { return share.threads == 0; });
  return shares;
}

}  // namespace weft::codec
