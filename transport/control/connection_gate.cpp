// SPDX-License-Identifier: Apache-2.0
#include "transport/control/connection_gate.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace weft::transport {
namespace {

constexpr int kBacklog = 1024;
constexpr std::chrono::milliseconds kAcceptPause{100};

Error bind_error(const HostPort& listen, int error) {
  std::string why = std::strerror(error);
  if (error == EADDRINUSE) {
    why += " (who has it: ss -ltnp 'sport = :" + std::to_string(listen.port) + "')";
  }
  return make_error(ErrorCode::kConfig, Stage::kControl,
                    "cannot listen on " + to_string(listen) + ": " + why, error);
}

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Result<Addresses> resolve(const HostPort& listen) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const std::string port = std::to_string(listen.port);
  if (const int error = getaddrinfo(listen.host.c_str(), port.c_str(), &hints, &found);
      error != 0) {
    return failure(ErrorCode::kConfig, Stage::kControl,
                   "cannot listen on " + to_string(listen) + ": " + gai_strerror(error));
  }
  return Addresses(found, &freeaddrinfo);
}

// The descriptor, or -1 with errno set.
int bind_and_listen(const addrinfo& address) {
  const int fd = socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  // A restart must not wait for TIME_WAIT; without SO_REUSEPORT a second listener is still refused.
  const int on = 1;
  const int off = 0;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (address.ai_family == AF_INET6) {
    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  }
  if (bind(fd, address.ai_addr, address.ai_addrlen) == 0 && listen(fd, kBacklog) == 0) return fd;
  const int error = errno;
  close(fd);
  errno = error;
  return -1;
}

std::uint16_t bound_port(int fd) {
  sockaddr_storage storage{};
  socklen_t length = sizeof(storage);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &length) != 0) return 0;
  if (storage.ss_family == AF_INET6) {
    return ntohs(reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_port);
  }
  return ntohs(reinterpret_cast<const sockaddr_in*>(&storage)->sin_port);
}

}  // namespace

ConnectionGate::ConnectionGate(int listen_fd, HostPort address,
                               const ConnectionGateOptions& options)
    : listen_fd_(listen_fd), address_(std::move(address)), options_(options) {}

ConnectionGate::ConnectionGate(ConnectionGate&& other) noexcept
    : listen_fd_(std::exchange(other.listen_fd_, -1)),
      address_(std::move(other.address_)),
      options_(other.options_),
      silent_(std::exchange(other.silent_, {})) {}

ConnectionGate::~ConnectionGate() {
  for (const Silent& connection : silent_) close(connection.fd);
  if (listen_fd_ >= 0) close(listen_fd_);
}

Result<ConnectionGate> ConnectionGate::open(const HostPort& listen,
                                            const ConnectionGateOptions& options) {
  WEFT_TRY(const auto addresses, resolve(listen));
  int error = EADDRNOTAVAIL;
  for (const addrinfo* address = addresses.get(); address != nullptr; address = address->ai_next) {
    const int fd = bind_and_listen(*address);
    if (fd >= 0) return ConnectionGate(fd, HostPort{listen.host, bound_port(fd)}, options);
    error = errno;
  }
  return bind_error(listen, error);
}

void ConnectionGate::drop_oldest() {
  close(silent_.front().fd);
  silent_.pop_front();
}

void ConnectionGate::accept_all(TimePoint now, EventSink& events) {
  for (int round = 0; round < kBacklog; ++round) {
    const int fd = accept4(listen_fd_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
      if (errno == EAGAIN || errno == EWOULDBLOCK) return;
      if (errno == EINTR || errno == ECONNABORTED) continue;
      // Out of descriptors or memory: the silent ones go first, and accepting rests a moment.
      const std::array fields = {EventField{"cause", std::strerror(errno)}};
      events.report(Severity::kWarning, "control_accept_failed", fields);
      events.count("control_accept_failed_total", 1);
      while (!silent_.empty()) drop_oldest();
      accept_again_at_ = now + kAcceptPause;
      return;
    }
    // The kernel gives the lowest free number, so this many descriptors are open already.
    if (static_cast<std::uint32_t>(fd) >= options_.connections_max) {
      close(fd);
      events.count("control_connections_refused_total", 1);
      continue;
    }
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (silent_.size() >= options_.silent_max) {
      drop_oldest();
      events.count("control_connections_silent_total", 1);
    }
    silent_.push_back({fd, now});
  }
}

void ConnectionGate::run_once(std::chrono::milliseconds timeout, int wake_fd,
                              const std::function<void(int fd)>& hand_on, EventSink& events) {
  std::vector<pollfd> polled = {{wake_fd, POLLIN, 0}};
  const MonotonicClock clock;
  const bool accepting = clock.now() >= accept_again_at_;
  polled.push_back({accepting ? listen_fd_ : -1, POLLIN, 0});
  for (const Silent& connection : silent_) polled.push_back({connection.fd, POLLIN, 0});
  if (poll(polled.data(), polled.size(), static_cast<int>(timeout.count())) < 0) return;

  const TimePoint now = clock.now();
  std::deque<Silent> still_silent;
  for (std::size_t i = 0; i < silent_.size(); ++i) {
    const short events_seen = polled[i + 2].revents;
    if ((events_seen & POLLIN) != 0) {
      hand_on(silent_[i].fd);
    } else if (events_seen != 0 || now - silent_[i].accepted_at > options_.silent_timeout) {
      close(silent_[i].fd);
    } else {
      still_silent.push_back(silent_[i]);
    }
  }
  silent_ = std::move(still_silent);
  if ((polled[1].revents & POLLIN) != 0) accept_all(now, events);
}

}  // namespace weft::transport
