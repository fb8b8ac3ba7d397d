// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>

#include "transport/control/host_port.hpp"
#include "weft/base/clock.hpp"
#include "weft/base/event_sink.hpp"
#include "weft/base/result.hpp"

namespace weft::transport {

struct ConnectionGateOptions {
  std::uint32_t connections_max =
      16'384;                       // by descriptor number, so at least that many can be open
  std::uint32_t silent_max = 1024;  // connections that have not said a byte yet
  std::chrono::milliseconds silent_timeout{5000};
};

// The listening socket, and what has connected and not spoken yet: a connection is handed on only
// with its first byte. Thousands of silent ones therefore cost one descriptor each and no more, are
// dropped after a while, and beyond `silent_max` the oldest is dropped for the newest.
// Owns:    the listening socket and the silent connections.
// Threads: owner.
class ConnectionGate {
 public:
  // Errors: kConfig, naming the address and the reason (taken, not ours, no right).
  static Result<ConnectionGate> open(const HostPort& listen, const ConnectionGateOptions& options);
  ConnectionGate(ConnectionGate&& other) noexcept;
  ConnectionGate& operator=(ConnectionGate&&) = delete;
  ~ConnectionGate();

  const HostPort& address() const { return address_; }
  std::size_t silent_count() const { return silent_.size(); }

  // Accepts, hands on and drops what is due; returns after at most `timeout`, or as soon as
  // `wake_fd` is readable.
  void run_once(std::chrono::milliseconds timeout, int wake_fd,
                const std::function<void(int fd)>& hand_on, EventSink& events);

 private:
  struct Silent {
    int fd = -1;
    TimePoint accepted_at;
  };

  ConnectionGate(int listen_fd, HostPort address, const ConnectionGateOptions& options);
  void accept_all(TimePoint now, EventSink& events);
  void drop_oldest();

  int listen_fd_;
  HostPort address_;
  ConnectionGateOptions options_;
  std::deque<Silent> silent_;  // oldest first
  TimePoint accept_again_at_{};
};

}  // namespace weft::transport
