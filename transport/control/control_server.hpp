// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "transport/control/fleet_status.hpp"
#include "transport/control/host_port.hpp"
#include "transport/control/tls_options.hpp"
#include "weft/base/clock.hpp"
#include "weft/base/event_sink.hpp"
#include "weft/base/result.hpp"
#include "weft/wire/messages.hpp"

namespace weft::transport {

// One member's stream; never used twice in a process, and a later one has a higher number.
struct SessionId {
  std::uint64_t value = 0;
  auto operator<=>(const SessionId&) const = default;
};

struct ControlServerOptions {
  HostPort listen;
  TlsOptions tls;
  std::chrono::milliseconds heartbeat_interval{1000};
  std::chrono::milliseconds lost_after{3000};  // a session that was silent for so long is closed
  std::uint32_t sessions_max = 8192;           // members and producers; a further one is refused
  std::uint32_t connections_max = 16'384;      // sockets, half-open ones included
  std::uint32_t send_queue_max = 1024;         // messages waiting for one slow session
  std::uint64_t send_queue_bytes_max = 16ULL << 20;
};

// Threads: called on gRPC's threads; implementations only enqueue, never block, and never call
// back into the server (send() excepted).
class ControlServerObserver {
 public:
  using ResolveReply = std::function<void(Status)>;  // call once, from any thread

  virtual ~ControlServerObserver() = default;
  // Heartbeats too. The first message of a session is always a valid Hello.
  virtual void on_message(SessionId session, wire::MemberMessage message) = 0;
  // Last call for this session, after its first message only. kPeerLost: silent or disconnected;
  // kFenced: the same member opened a newer session; kProtocol, kResourceLimit: closed by us.
  virtual void on_closed(SessionId session, Error reason) = 0;
  // The newest snapshot.
  virtual FleetStatus status() = 0;
  // The operator decides a refit that is in doubt.
  virtual void on_resolve(RefitId refit, bool commit, ResolveReply reply) = 0;
};

// The coordinator's end of the control plane: accepts one stream per member, checks every message
// against base/limits before it is passed on, sends heartbeats, closes silent and slow sessions.
// A member has at most one session: the newer one wins and the older is refused for good if it is
// another process (kFenced), or dropped if it is the same one that reconnected.
// Life:    1. open() binds and serves. 2. close() ends every session; no observer call afterwards.
// Threads: any.
class ControlServer {
 public:
  // Errors: kConfig (address taken, not ours, TLS files unreadable, plaintext beyond loopback).
  static Result<std::unique_ptr<ControlServer>> open(const ControlServerOptions& options,
                                                     ControlServerObserver& observer,
                                                     EventSink& events);
  ~ControlServer();
  ControlServer(const ControlServer&) = delete;
  ControlServer& operator=(const ControlServer&) = delete;

  // The bound address (the port is the real one when 0 was asked for).
  const HostPort& address() const;

  // Queues one message; it is lost only if the session is. Errors: kPeerLost (no such session),
  // kResourceLimit (its queue is full: the session is closed; or the message is too large).
  Status send(SessionId session, const wire::CoordinatorMessage& message);
  // Sends what is queued and a SessionRefused with this cause, then closes; on_closed follows.
  void refuse(SessionId session, const wire::Cause& cause);

  // The same without a word to the member, which may connect again.
  void end(SessionId session);

  std::uint32_t session_count() const;
  void close();

 private:
  class Impl;
  explicit ControlServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft::transport
