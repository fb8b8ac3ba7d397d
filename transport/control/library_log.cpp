// SPDX-License-Identifier: Apache-2.0
#include "transport/control/library_log.hpp"

#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>

#include <array>
#include <mutex>
#include <string>

namespace weft::transport {
namespace {

struct Route {
  std::mutex mutex;
  EventSink* events = nullptr;
};

Route& route() {
  static Route* const the_route = new Route;  // outlives gRPC's threads
  return *the_route;
}

void take_line(gpr_log_func_args* line) {
  if (line->severity != GPR_LOG_SEVERITY_ERROR) return;
  Route& to = route();
  std::lock_guard lock(to.mutex);
  if (to.events == nullptr) return;
  const std::array fields = {EventField{"text", line->message}};
  to.events->report(Severity::kWarning, "grpc_log", fields);
  to.events->count("grpc_log_lines_total", 1);
}

}  // namespace

void route_library_logs(EventSink* events) {
  Route& to = route();
  std::lock_guard lock(to.mutex);
  to.events = events;
  google::protobuf::SetLogHandler(nullptr);
  gpr_set_log_function(&take_line);
}

}  // namespace weft::transport
