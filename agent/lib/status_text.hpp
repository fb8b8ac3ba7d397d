// SPDX-License-Identifier: Apache-2.0
// The fleet's status as text: for `weft status`, its --json, the status page and /metrics.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "transport/control/fleet_status.hpp"

namespace weft::agent {

// One object; docs/json.md lists the keys.
std::string status_json(const transport::FleetStatus& status);

// A few lines and a table, for a terminal.
std::string status_text(const transport::FleetStatus& status);

// Prometheus text: gauges of the fleet. Member ids are labels, escaped.
std::string status_metrics(const transport::FleetStatus& status);

// Prometheus text: `weft_<name>` counters.
std::string counter_metrics(const std::map<std::string, std::uint64_t>& counters);

}  // namespace weft::agent
