// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "transport/control/fleet_status.hpp"
#include "transport/control/host_port.hpp"
#include "transport/control/tls_options.hpp"
#include "weft/base/event_sink.hpp"
#include "weft/base/result.hpp"
#include "weft/wire/messages.hpp"

namespace weft::transport {

struct ControlClientOptions {
  HostPort coordinator;
  TlsOptions tls;
  std::chrono::milliseconds connect_timeout{5000};
  std::chrono::milliseconds heartbeat_interval{1000};
  std::chrono::milliseconds lost_after{3000};  // silence of the coordinator
  std::chrono::milliseconds backoff_first{100};
  std::chrono::milliseconds backoff_max{5000};
  std::uint64_t jitter_seed = 0;  // 0: random
  std::uint32_t send_queue_max = 1024;
};

// Threads: called on gRPC's threads and the client's own, one call at a time; implementations only
// enqueue and never block.
class ControlClientObserver {
 public:
  virtual ~ControlClientObserver() = default;
  // A new stream: send the Hello now, nothing is accepted before it.
  virtual void on_connected() = 0;
  // Heartbeats too.
  virtual void on_message(wire::CoordinatorMessage message) = 0;
  // The stream is gone and what was queued with it; the client connects again by itself, after a
  // pause that grows to backoff_max, with jitter. Also called for every connect that failed.
  virtual void on_disconnected(Error reason) = 0;
};

// A member's end of the control plane: one long-lived stream out to the coordinator, kept up for as
// long as the client lives. After a SessionRefused it does not connect again.
// Threads: any.
class ControlClient {
 public:
  // Does not wait for the connection. Errors: kConfig (TLS files unreadable, plaintext beyond
  // loopback).
  static Result<std::unique_ptr<ControlClient>> open(const ControlClientOptions& options,
                                                     ControlClientObserver& observer,
                                                     EventSink& events);
  ~ControlClient();
  ControlClient(const ControlClient&) = delete;
  ControlClient& operator=(const ControlClient&) = delete;

  // Errors: kPeerLost (not connected: say it again after on_connected), kResourceLimit (too large,
  // or the queue is full: the stream is dropped).
  Status send(const wire::MemberMessage& message);
  bool connected() const;
  // Sends what is queued, for at most `grace`; no observer call afterwards.
  void close(std::chrono::milliseconds grace = std::chrono::milliseconds(500));

 private:
  class Impl;
  explicit ControlClient(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// One call each, for the command line. Errors: kPeerLost, kTimeout, kDenied, kProtocol, and what
// the coordinator answers.
struct ControlCallOptions {
  HostPort coordinator;
  TlsOptions tls;
  std::chrono::milliseconds timeout{10'000};
};
Result<FleetStatus> fetch_status(const ControlCallOptions& options);
Status request_resolve(const ControlCallOptions& options, const RefitId& refit, bool commit);
// The body of a lattice, put before a refit begins and fetched once per run. Putting what the
// coordinator has costs one call. Errors of fetch: kUnsupported (nobody has put it),
// kCorruptPayload.
Status put_lattice(const ControlCallOptions& options, const Digest& digest,
                   std::span<const std::byte> body);
Result<std::vector<std::byte>> fetch_lattice(const ControlCallOptions& options,
                                             const Digest& digest);

}  // namespace weft::transport
