// SPDX-License-Identifier: Apache-2.0
#include "support/trap_fabric.hpp"

#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <utility>

#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "transport/relay/relay_core.hpp"
#include "transport/relay/repair_message.hpp"

namespace weft::transport {
namespace {

constexpr std::array kControlNames = {"hello", "grants", "written", "close", "closed"};
constexpr std::array kRepairNames = {"request", "offer", "done"};

std::string_view name_of(std::span<const std::byte> message) {
  if (const auto repair = decode_repair(message)) {
    return kRepairNames[static_cast<std::size_t>(repair->kind) -
                        static_cast<std::size_t>(RepairKind::kRequest)];
  }
  const auto control = decode_control(message);
  return control ? kControlNames[static_cast<std::size_t>(control->kind) - 1] : "unknown";
}

// Of this process's network namespace, which the test has made for it alone.
void take_link_down() {
  ifreq request{};
  std::strncpy(request.ifr_name, "eth0", IFNAMSIZ - 1);
  const int socket_fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  bool done = socket_fd >= 0 && ioctl(socket_fd, SIOCGIFFLAGS, &request) == 0;
  request.ifr_flags = static_cast<short>(request.ifr_flags & ~IFF_UP);
  done = done && ioctl(socket_fd, SIOCSIFFLAGS, &request) == 0;
  if (!done) std::abort();
  close(socket_fd);
}

}  // namespace

TrapFabric::TrapFabric(std::unique_ptr<Fabric> inner) : WrappedFabric(std::move(inner)) {}

void TrapFabric::arm(Trap trap) {
  std::lock_guard lock(mutex_);
  trap_ = std::move(trap);
}

void TrapFabric::pass(std::string_view prefix, std::string_view what) {
  std::lock_guard lock(mutex_);
  const std::string_view point = trap_.point;
  const bool here = point.size() == prefix.size() + what.size() && point.starts_with(prefix) &&
                    point.ends_with(what);
  if (trap_.count == 0 || !here || --trap_.count > 0) return;
  constexpr std::string_view kStruck = "struck\n";
  if (write(STDOUT_FILENO, kStruck.data(), kStruck.size()) < 0) std::abort();
  if (trap_.action == "down") return take_link_down();
  kill(getpid(), trap_.action == "stop" ? SIGSTOP : SIGKILL);
}

void TrapFabric::pass_event(const FabricEvent& event) {
  switch (event.kind) {
    case FabricEventKind::kMessage:
      return pass("heard-", name_of(event.message));
    case FabricEventKind::kDoorbell:
      return pass("doorbell", "");
    case FabricEventKind::kCompleted:
      return pass("completed-", (event.cookie & kReadCookie) != 0 ? "read" : "write");
    case FabricEventKind::kFailed:
    case FabricEventKind::kTrouble:
      return;
  }
}

Result<MemoryHandle> TrapFabric::register_memory(std::span<std::byte> bytes, MemoryAccess access) {
  if (access == MemoryAccess::kRemoteWrite) pass("registering", "");
  return WrappedFabric::register_memory(bytes, access);
}

Posted TrapFabric::post_send(PeerHandle peer, std::span<const std::byte> message) {
  const std::string_view name = name_of(message);
  pass("sending-", name);
  const Posted posted = WrappedFabric::post_send(peer, message);
  if (posted == Posted::kPosted) pass("sent-", name);
  return posted;
}

std::size_t TrapFabric::poll(std::span<FabricEvent> events) {
  const std::size_t stored = WrappedFabric::poll(events);
  for (const FabricEvent& event : events.first(stored)) pass_event(event);
  return stored;
}

Posted TrapFabric::do_write(const RemoteOperation& write) {
  pass("posting-", "write");
  const Posted posted = WrappedFabric::do_write(write);
  if (posted == Posted::kPosted) pass("posted-", "write");
  return posted;
}

Posted TrapFabric::do_read(const RemoteOperation& read) {
  pass("posting-", "read");
  const Posted posted = WrappedFabric::do_read(read);
  if (posted == Posted::kPosted) pass("posted-", "read");
  return posted;
}

}  // namespace weft::transport
