// SPDX-License-Identifier: Apache-2.0
// weft agent: the node agent as a long-running process.
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "agent/cli/commands.hpp"
#include "agent/cli/http_pages.hpp"
#include "agent/cli/log_event_sink.hpp"
#include "agent/cli/report.hpp"
#include "agent/cli/role_start.hpp"
#include "agent/lib/config.hpp"
#include "agent/lib/node_agent.hpp"
#include "agent/lib/node_status.hpp"
#include "agent/lib/status_text.hpp"

namespace weft::cli {
namespace {

PageSource pages_of(const agent::NodeAgent& node, const LogEventSink& events) {
  PageSource source;
  source.metrics = [&] {
    return agent::node_metrics(node.snapshot(), std::chrono::steady_clock::now()) +
           agent::counter_metrics(events.counters());
  };
  source.ready = [&] { return node.snapshot().ready; };
  source.status_json = [&] {
    return agent::node_status_json(node.snapshot(), std::chrono::steady_clock::now());
  };
  source.status_text = [&] { return agent::node_status_text(node.snapshot()); };
  return source;
}

}  // namespace

int run_agent(const AgentOptions& options, StopToken& stop) {
  auto loaded = agent::load_agent_config(options.config_file);
  if (!loaded) return report_failure(loaded.error(), options.common);
  if (options.check_config) return report_config(loaded->effective, options.common);
  agent::AgentConfig& config = loaded->config;
  override_log(config.log, options.common);
  LogEventSink events(config.log);
  log_config(loaded->effective, events);

  auto node = agent::NodeAgent::open(config, events);
  if (!node) return report_failure(node.error(), options.common);
  std::unique_ptr<HttpPages> pages;
  if (config.http.listen) {
    // A taken port is said, and the node serves on without pages.
    auto opened = HttpPages::open(*config.http.listen, pages_of(**node, events), events);
    if (opened) pages = *std::move(opened);
  }
  // StopToken wakes this thread; run() notices within a tick.
  std::atomic<bool> ended{false};
  std::thread watcher([&] {
    while (!ended.load() && !stop.wait_for(std::chrono::milliseconds(100))) {
      events.flush(false);
    }
    (*node)->request_stop();
  });
  const Status ran = (*node)->run();
  pages.reset();
  ended.store(true);
  watcher.join();
  if (!ran) return report_failure(ran.error(), options.common);
  return 0;
}

}  // namespace weft::cli
