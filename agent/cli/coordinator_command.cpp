// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <memory>
#include <optional>

#include "agent/cli/commands.hpp"
#include "agent/cli/http_pages.hpp"
#include "agent/cli/log_event_sink.hpp"
#include "agent/cli/report.hpp"
#include "agent/cli/role_start.hpp"
#include "agent/lib/coordinator_service.hpp"
#include "agent/lib/lost_log_session.hpp"
#include "agent/lib/status_text.hpp"
#include "transport/control/control_client.hpp"
#include "transport/control/library_log.hpp"

namespace weft::cli {
namespace {

constexpr std::chrono::milliseconds kLook{200};

// An address to listen on as one to connect to.
transport::HostPort reachable(transport::HostPort address) {
  if (address.host == "0.0.0.0") address.host = "127.0.0.1";
  if (address.host == "::") address.host = "::1";
  return address;
}

int resolve(const CoordinatorOptions& options, const agent::CoordinatorConfig& config) {
  const transport::HostPort address = options.resolve_at.value_or(reachable(config.listen));
  const Status told = transport::request_resolve({address, config.tls}, options.resolve->refit,
                                                 options.resolve->commit);
  if (!told) return report_failure(told.error(), options.common);
  const std::string verdict = options.resolve->commit ? "commit" : "abort";
  if (options.common.json) {
    return report_result(R"({"refit":")" + to_string(options.resolve->refit) + R"(","verdict":")" +
                         verdict + "\"}");
  }
  return report_result(to_string(options.resolve->refit) + ": " + verdict);
}

int resolve_without_log(const CoordinatorOptions& options, const agent::CoordinatorConfig& config,
                        LogEventSink& events) {
  const auto made = agent::rebuild_log_from_members(config, options.resolve->refit,
                                                    options.resolve->commit, options.wait, events);
  if (!made) return report_failure(made.error(), options.common);
  const std::string verdict = options.resolve->commit ? "commit" : "abort";
  if (options.common.json) {
    return report_result(R"({"refit":")" + to_string(options.resolve->refit) + R"(","verdict":")" +
                         verdict + R"(","members":)" + std::to_string(made->members) +
                         R"(,"version":)" + std::to_string(made->version.value) + "}");
  }
  return report_result(to_string(options.resolve->refit) + ": " + verdict +
                       "; the log holds version " + std::to_string(made->version.value) + ", as " +
                       std::to_string(made->members) + " members know it: start the coordinator");
}

PageSource pages_of(const agent::CoordinatorService& service, const LogEventSink& events) {
  PageSource source;
  source.metrics = [&] {
    return agent::status_metrics(service.status()) + agent::counter_metrics(events.counters());
  };
  source.ready = [&] { return service.serving(); };
  source.status_json = [&] { return agent::status_json(service.status()); };
  source.status_text = [&] { return agent::status_text(service.status()); };
  return source;
}

int serve(const agent::CoordinatorConfig& config, const CoordinatorOptions& options,
          LogEventSink& events, StopToken& stop) {
  auto service = agent::CoordinatorService::open(config, events);
  if (!service) return report_failure(service.error(), options.common);
  std::unique_ptr<HttpPages> pages;
  if (config.http.listen) {
    // A taken metrics port is said and does not stop the fleet.
    auto opened = HttpPages::open(*config.http.listen, pages_of(**service, events), events);
    if (opened) pages = *std::move(opened);
  }
  while (!stop.wait_for(kLook) && !(*service)->stopped()) events.flush(false);
  pages.reset();
  (*service)->close();
  if (const auto error = (*service)->stopped()) return report_failure(*error, options.common);
  events.report(Severity::kInfo, "coordinator_ends", {});
  return 0;
}

}  // namespace

int run_coordinator(const CoordinatorOptions& options, StopToken& stop) {
  auto loaded = agent::load_coordinator_config(options.config_file);
  if (!loaded) return report_failure(loaded.error(), options.common);
  if (options.check_config) return report_config(loaded->effective, options.common);
  if (options.resolve && !options.log_lost) return resolve(options, loaded->config);
  agent::CoordinatorConfig& config = loaded->config;
  override_log(config.log, options.common);
  LogEventSink events(config.log);
  log_config(loaded->effective, events);
  transport::route_library_logs(&events);
  const int code = options.log_lost ? resolve_without_log(options, config, events)
                                    : serve(config, options, events, stop);
  transport::route_library_logs(nullptr);
  return code;
}

}  // namespace weft::cli
