// SPDX-License-Identifier: Apache-2.0
// What the coordinator knows of the fleet, as plain values: the answer to the Status call, and what
// `weft status`, the status page and /metrics show.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
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
  ProcessId process;
  std::uint64_t silent_ms = 0;  // since its last message
  std::uint64_t frames = 0;     // of the open refit: received and resolved
  std::uint64_t bytes = 0;
  auto operator<=>(const MemberStatus&) const = default;
};

enum class RefitPhase : std::uint8_t {
  kStreaming = 1,
  kPreparing = 2,
  kCommitting = 3,
  kAborting = 4,
  kCommitted = 5,
  kAborted = 6,
};
std::string_view to_string(RefitPhase phase);

struct RefitStatus {
  RefitId id;
  RefitPhase phase = RefitPhase::kStreaming;
  Version base;
  Version target;
  std::string shape;
  std::uint32_t planned = 0;
  std::uint32_t prepared = 0;
  std::uint32_t applied = 0;
  std::uint32_t lost = 0;
  std::uint64_t open_ms = 0;  // since begin; of a finished one, until its end
  std::optional<wire::Cause> cause;
  auto operator<=>(const RefitStatus&) const = default;
};

struct FleetStatus {
  FleetId fleet;
  Epoch epoch;
  Content committed;
  std::vector<MemberStatus> members;  // by id
  std::optional<RefitStatus> refit;   // the open one, else the last one of this coordinator process
  auto operator<=>(const FleetStatus&) const = default;
};

}  // namespace weft::transport
