// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "agent/lib/config.hpp"
#include "transport/control/fleet_status.hpp"
#include "transport/control/host_port.hpp"
#include "weft/base/event_sink.hpp"
#include "weft/base/result.hpp"

namespace weft::agent {

// The coordinator of a fleet: the step machine of apply/commit over the control plane and the
// decision log. One loop thread takes messages, ticks and log completions in order and carries out
// what the machine says, so a decision is in the log before anyone hears of it.
// Life:    1. open(): takes the directory, reads the log, records this start, serves.
//          2. runs until close(), or until it must stop by itself: a decision may not be durable,
//             or a member knows more than the log.
// Owns:    the directory's lock, the log, the server, the loop thread.
// Threads: any.
class CoordinatorService {
 public:
  // The state directory is made when missing. Errors: kBusy (another coordinator has it), kConfig
  // (address taken, TLS files), kNeedsReseed (unreadable log), kIoFailed, kNoSpace, kDenied.
  static Result<std::unique_ptr<CoordinatorService>> open(const CoordinatorConfig& config,
                                                          EventSink& events);
  ~CoordinatorService();
  CoordinatorService(const CoordinatorService&) = delete;
  CoordinatorService& operator=(const CoordinatorService&) = delete;

  // The bound address.
  const transport::HostPort& address() const;
  // The newest snapshot.
  transport::FleetStatus status() const;
  // Why it stopped by itself; none while it runs, and none after close().
  std::optional<Error> stopped() const;
  // Takes members and decides. False once it has stopped.
  bool serving() const;

  void close();

 private:
  class Impl;
  explicit CoordinatorService(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft::agent
