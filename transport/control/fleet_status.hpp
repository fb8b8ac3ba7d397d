// SPDX-License-Identifier: Apache-2.0
// What the coordinator knows of the fleet, as plain values: the answer to the Status call, and what
// `weft status`, the status page and /metrics show.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "weft/base/ids.hpp"
#include "weft/wire/messages.hpp"

namespace weft::transport {

struct MemberStatus {
  std::string id;
  wire::Role role = wire::Role::kAgent;
  wire::MemberState state = wire::MemberState::kStarting;
  Content content;
  std::optional<wire::Cause> cause;
  std::string region;
  bool ready = false;        // readers may use its weights
  bool connected = false;    // has a session
  bool unconfirmed = false;  // has not acknowledged a commit yet
  ProcessId process;
  std::uint64_t silent_ms = 0;  // since its last message
  std::uint64_t frames = 0;     // of the open refit: received and resolved
  std::uint64_t bytes = 0;
  std::string parent;  // in the first tree of the open refit; empty: none, or not planned
  std::optional<wire::ScrubReport> scrub;  // an agent's, its age as of now
  auto operator<=>(const MemberStatus&) const = default;
};

struct RefitStatus {
  RefitId id;
  std::string phase;  // gathering, settling, rehashing, founding, streaming, preparing, deciding
  Version base;
  Version target;
  std::string shape;
  std::uint32_t planned = 0;
  std::uint32_t lost = 0;
  std::uint32_t yes = 0;
  std::uint32_t no = 0;
  std::uint64_t frames_min = 0;  // of the slowest member
  std::uint64_t open_ms = 0;     // since begin
  auto operator<=>(const RefitStatus&) const = default;
};

struct FleetStatus {
  FleetId fleet;
  Epoch epoch;
  Content committed;                       // version 0: a fresh fleet
  std::vector<MemberStatus> members;       // by id
  std::optional<RefitStatus> refit;        // the open one
  std::optional<wire::RefitOutcome> last;  // the last decided one of this coordinator process
  auto operator<=>(const FleetStatus&) const = default;
};

}  // namespace weft::transport
