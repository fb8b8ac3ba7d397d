// SPDX-License-Identifier: Apache-2.0
#include "agent/cli/role_start.hpp"

#include "agent/cli/report.hpp"
#include "agent/lib/json_writer.hpp"

namespace weft::cli {
namespace {

// The effective values are TOML: texts in quotes, which are not part of them.
std::string without_quotes(const std::string& value) {
  const bool quoted = value.size() >= 2 && value.front() == '"';
  return quoted ? value.substr(1, value.size() - 2) : value;
}

}  // namespace

void override_log(agent::LogConfig& log, const CommonOptions& common) {
  if (common.log_level) log.level = *common.log_level;
  if (common.log_format) log.format = *common.log_format;
}

int report_config(const EffectiveConfig& effective, const CommonOptions& common) {
  if (common.json) {
    agent::JsonWriter json;
    json.begin_object().key("config").begin_object();
    for (const auto& [key, value] : effective) json.member(key, without_quotes(value));
    return report_result(json.end_object().end_object().take());
  }
  std::string text;
  for (const auto& [key, value] : effective) text += key + " = " + value + "\n";
  return report_result(text + "# the configuration is valid");
}

void log_config(const EffectiveConfig& effective, EventSink& events) {
  std::vector<EventField> fields;
  for (const auto& [key, value] : effective) fields.push_back({key, without_quotes(value)});
  events.report(Severity::kInfo, "config", fields);
}

}  // namespace weft::cli
