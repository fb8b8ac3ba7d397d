// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>

#include "agent/lib/config.hpp"
#include "weft/base/event_sink.hpp"
#include "weft/base/ids.hpp"
#include "weft/base/result.hpp"

namespace weft::agent {

struct LostLogReport {
  std::uint32_t members = 0;  // agents that came
  Version version;            // committed, by the new log
  std::uint64_t epoch = 0;    // the next coordinator's is higher
};

// `weft coordinator --resolve REFIT commit|abort --log-lost`: in the coordinator's place, listens
// for `wait` to what the members say of themselves, answers nobody, and writes a new decision log
// with the operator's word in it. Nobody is told anything: the coordinator that is started next
// does that. Errors: kBusy (a coordinator runs), those of apply::rebuild_lost_log, of the log and
// of the server.
Result<LostLogReport> rebuild_log_from_members(const CoordinatorConfig& config,
                                               const RefitId& refit, bool commit,
                                               std::chrono::milliseconds wait, EventSink& events);

}  // namespace weft::agent
