// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/lib/config.hpp"
#include "apply/patch/scrubber.hpp"
#include "transport/relay/link_status.hpp"
#include "weft/base/event_sink.hpp"
#include "weft/base/result.hpp"
#include "weft/wire/messages.hpp"

namespace weft::agent {

// How long the steps of the last refit took. A pause: readers of the files in place were kept out.
struct NodeTimes {
  std::uint64_t applies = 0;
  double prove_seconds = 0;
  double apply_seconds = 0;
  double pause_seconds = 0;
};

// What a node is now, for status pages, /readyz and metrics.
struct NodeSnapshot {
  std::string agent_id;
  wire::MemberState state = wire::MemberState::kStarting;
  std::optional<wire::Cause> cause;
  Content content;
  Content committed;  // the fleet's, as far as known
  bool ready = false;
  bool connected = false;
  FleetId fleet;
  Epoch epoch;
  std::string weights_path;  // where readers find the files
  NodeTimes times;
  apply::ScrubProgress scrub;
  // What the frames go over, as libfabric names it; as it was opened at the start.
  struct Rail {
    std::string provider;
    std::uint32_t protocol = 0;  // peers match by it
    std::string device;
    std::string address;
    std::string library_version;
    std::uint32_t slot_count = 0;
    std::int32_t numa_node = -1;  // where the slots were asked to lie; -1: no preference
  };
  Rail rail;
  std::vector<transport::LinkStatus> links;
};

// NodeAgent is the process on a rollout node: it joins a fleet, relays, stages, applies and
// recovers by itself.
// Life:    open -> run (returns after request_stop, or with the error that ends the node) -> gone.
// Threads: run on one thread; request_stop and snapshot from any.
class NodeAgent {
 public:
  // Takes the directories' locks, reads the state and opens the rail; nothing is said to the fleet
  // yet. Errors: kConfig, kBusy (another agent owns a directory), those of the checkpoint.
  static Result<std::unique_ptr<NodeAgent>> open(const AgentConfig& config, EventSink& events);
  ~NodeAgent();
  NodeAgent(const NodeAgent&) = delete;
  NodeAgent& operator=(const NodeAgent&) = delete;

  // Serves until request_stop. An apply that runs then is finished within agent.stop_grace.
  Status run();
  void request_stop();
  NodeSnapshot snapshot() const;

 private:
  class Body;
  explicit NodeAgent(std::unique_ptr<Body> body);
  std::unique_ptr<Body> body_;
};

}  // namespace weft::agent
