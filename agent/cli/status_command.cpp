// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <string>

#include "agent/cli/commands.hpp"
#include "agent/cli/http_pages.hpp"
#include "agent/cli/report.hpp"
#include "agent/lib/status_text.hpp"
#include "transport/control/control_client.hpp"
#include "transport/control/library_log.hpp"

namespace weft::cli {
namespace {

Result<std::string> fetch(const StatusOptions& options) {
  if (options.node) {
    return fetch_page(*options.node, options.common.json ? "/status.json" : "/status.txt",
                      options.fleet.timeout);
  }
  const transport::ControlCallOptions call{options.fleet.coordinator, options.fleet.tls,
                                           options.fleet.timeout};
  WEFT_TRY(const auto status, transport::fetch_status(call));
  return options.common.json ? agent::status_json(status) : agent::status_text(status);
}

int show(std::string text, const StatusOptions& options) {
  if (options.common.json) return report_result(text);
  // A terminal shows the newest only; a file gets one after the other.
  if (options.watch && isatty(STDOUT_FILENO) == 1) text = "\x1b[H\x1b[2J" + text;
  return report_result(text);
}

}  // namespace

int run_status(const StatusOptions& options, StopToken& stop) {
  transport::route_library_logs(nullptr);
  while (true) {
    const auto status = fetch(options);
    if (status) {
      if (const int code = show(*status, options); code != 0) return code;
    } else if (const int code = report_failure(status.error(), options.common); !options.watch) {
      return code;
    }
    // While watching, a coordinator that restarts is waited for.
    if (!options.watch || stop.wait_for(options.interval)) return 0;
  }
}

}  // namespace weft::cli
