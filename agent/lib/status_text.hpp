// SPDX-License-Identifier: Apache-2.0
// The fleet's status as text: for `weft status`, its --json, the status page and /metrics.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "transport/control/fleet_status.hpp"

namespace weft::agent {

// One object; docs/json.md lists the keys.
std::string status_json(const transport::FleetStatus& status);

// A few lines and a table, for a terminal.
std::string status_text(const transport::FleetStatus& status);

// Prometheus text: gauges of the fleet. Member ids are labels, escaped.
std::string status_metrics(const transport::FleetStatus& status);

// Columns of a terminal; every row is as long as the first, which there is.
std::string text_table(const std::vector<std::vector<std::string>>& rows);

// The value of a label, quoted and escaped.
std::string metric_label(const std::string& text);

// Prometheus text: `weft_<name>` counters.
std::string counter_metrics(const std::map<std::string, std::uint64_t>& counters);

}  // namespace weft::agent
