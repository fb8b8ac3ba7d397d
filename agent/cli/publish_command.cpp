// SPDX-License-Identifier: Apache-2.0
// weft publish: one refit from two checkpoints on disk.
#include <cstdio>
#include <string>

#include "agent/cli/commands.hpp"
#include "agent/cli/log_event_sink.hpp"
#include "agent/cli/progress.hpp"
#include "agent/cli/report.hpp"
#include "agent/cli/role_start.hpp"
#include "agent/lib/json_writer.hpp"
#include "agent/lib/publisher.hpp"
#include "agent/lib/units.hpp"

namespace weft::cli {
namespace {

std::string to_json(const agent::PublishReport& report) {
  agent::JsonWriter json;
  json.begin_object().member("refit", to_string(report.refit));
  json.member("version", report.target.version.value).member("root", to_hex(report.target.root));
  json.member("base_version", report.base.version.value);
  json.member("base_root", to_hex(report.base.root));
  json.member("already_committed", report.already_committed).member("attempts", report.attempts);
  json.member("frames", report.frames).member("wire_bytes", report.wire_bytes);
  json.member("full_bytes", report.full_bytes);
  json.member("changed_elements", report.changed_elements);
  json.member("total_elements", report.total_elements);
  json.member("encode_seconds", report.encode_seconds);
  json.member("prepare_seconds", report.prepare_seconds);
  json.member("total_seconds", report.total_seconds);
  if (report.outcome) {
    json.member("planned", report.outcome->planned).member("prepared", report.outcome->prepared);
    json.member("lost", report.outcome->lost).member("applied", report.outcome->applied);
  }
  return json.end_object().take();
}

void print(const agent::PublishReport& report) {
  const auto version = static_cast<unsigned long long>(report.target.version.value);
  if (report.already_committed) {
    std::printf("version %llu is committed already, root %s\n", version,
                to_hex(report.target.root).c_str());
    return;
  }
  const double changed = report.total_elements == 0
                             ? 0
                             : 100.0 * static_cast<double>(report.changed_elements) /
                                   static_cast<double>(report.total_elements);
  std::printf("version %llu committed, root %s\n", version, to_hex(report.target.root).c_str());
  std::printf("%.2f %% of the elements changed: %s on the wire for %s\n", changed,
              agent::human_bytes(report.wire_bytes).c_str(),
              agent::human_bytes(report.full_bytes).c_str());
  if (report.outcome) {
    std::printf("%u of %u members prepared after %.3f s", report.outcome->prepared,
                report.outcome->planned, report.prepare_seconds);
    if (report.outcome->lost != 0) std::printf(", %u lost on the way", report.outcome->lost);
    std::printf("\n");
  }
}

Result<agent::PublisherConfig> publisher_config(const PublishOptions& options) {
  agent::PublisherConfig config;
  config.log.level = LogLevel::kWarning;
  if (!options.config_file.empty()) {
    WEFT_TRY(auto loaded, agent::load_publisher_config(options.config_file));
    config = std::move(loaded.config);
  }
  if (options.fleet.tls.enabled() || options.fleet.tls.insecure) config.tls = options.fleet.tls;
  override_log(config.log, options.common);
  return config;
}

}  // namespace

int run_publish(const PublishOptions& options, StopToken& stop) {
  auto config = publisher_config(options);
  if (!config) return report_failure(config.error(), options.common);
  LogEventSink events(config->log);
  Progress progress(options.common.json, "publish");
  agent::PublishRequest request;
  request.coordinator = options.fleet.coordinator;
  request.base_dir = options.base_dir;
  request.target_dir = options.target_dir;
  request.target_version = options.target_version;
  request.base_version = options.base_version;
  request.full = options.full;
  request.shape = options.shape;
  request.stop_requested = [&stop] { return stop.requested(); };
  Guarded<Progress*> shared(&progress);
  request.on_progress = [&shared](const char* stage, std::uint64_t done, std::uint64_t total) {
    shared.with([&](Progress* line) {
      if (std::string_view(stage) == "encode") {
        line->show("frame " + std::to_string(done));
      } else {
        line->show_bytes(done, total, stage);
      }
    });
  };
  auto report = agent::publish(*config, request, events);
  progress.clear();
  if (!report) return report_failure(report.error(), options.common);
  if (options.common.json) return report_result(to_json(*report));
  print(*report);
  return 0;
}

}  // namespace weft::cli
