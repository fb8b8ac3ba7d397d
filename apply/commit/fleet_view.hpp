// SPDX-License-Identifier: Apache-2.0
// What `weft status` and the status page show of the fleet: a copy, taken between two steps.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "weft/base/clock.hpp"
#include "weft/base/ids.hpp"
#include "weft/wire/messages.hpp"

namespace weft::apply {

struct MemberView {
  std::string id;
  wire::Role role = wire::Role::kAgent;
  wire::MemberState state = wire::MemberState::kStarting;  // kLost: silent for too long
  std::optional<wire::Cause> cause;
  Content content;
  bool ready = false;
  std::string region;
  ProcessId process;
  Duration silent{};         // since its last message
  std::uint64_t frames = 0;  // of the open refit: received and resolved
  std::uint64_t bytes = 0;
  std::optional<wire::ScrubReport> scrub;  // the last one told; its age goes on
  bool connected = false;
  bool unconfirmed = false;  // has not acknowledged a commit yet
};

struct RefitView {
  RefitId refit;
  std::string phase;  // gathering, settling, rehashing, founding, streaming, preparing, deciding
  Content base;
  Version target_version;
  Duration open{};  // since begin
  std::uint32_t planned = 0;
  std::uint32_t lost = 0;
  std::uint32_t yes = 0;
  std::uint32_t no = 0;
  std::uint64_t frames_min = 0;  // of the slowest member
  std::optional<wire::Plan> plan;
};

struct FleetView {
  FleetId fleet;
  Epoch epoch;
  Content committed;
  std::vector<MemberView> members;  // by id
  std::optional<RefitView> refit;
  std::optional<wire::RefitOutcome> last;  // of this coordinator process
};

}  // namespace weft::apply
