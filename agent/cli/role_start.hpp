// SPDX-License-Identifier: Apache-2.0
// What the long-running commands have in common when they start.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "agent/cli/options.hpp"
#include "weft/base/event_sink.hpp"

namespace weft::cli {

using EffectiveConfig = std::vector<std::pair<std::string, std::string>>;

// --log-level and --log-format win over the file.
void override_log(agent::LogConfig& log, const CommonOptions& common);

// --check-config: the effective values as TOML (or JSON) on stdout.
int report_config(const EffectiveConfig& effective, const CommonOptions& common);

// The one `config` line of the log.
void log_config(const EffectiveConfig& effective, EventSink& events);

}  // namespace weft::cli
