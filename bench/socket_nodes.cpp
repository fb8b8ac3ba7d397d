// SPDX-License-Identifier: Apache-2.0
// The same topologies over plain TCP: one hop spins, more processes than cores block.
#include <array>
#include <cerrno>
#include <cstring>
#include <span>
#include <vector>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bench/fabric_nodes.hpp"
#include "weft/wire/digest.hpp"

namespace weft::bench {
namespace {

constexpr std::size_t kBuffers = 8;

// Moves all of `bytes`; on a non-blocking socket it spins. False at the end of the stream.
template <typename Call>
bool move_all(Call&& call, std::byte* memory, std::size_t bytes) {
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t moved = call(memory + done, bytes - done);
    if (moved == 0) return false;
    if (moved < 0 && errno != EAGAIN && errno != EWOULDBLOCK) return false;
    if (moved > 0) done += static_cast<std::size_t>(moved);
  }
  return true;
}

void prepare(int stream, bool spins) {
  const int on = 1;
  setsockopt(stream, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  if (spins) fcntl(stream, F_SETFL, fcntl(stream, F_GETFL) | O_NONBLOCK);
}

int listen_on(const std::string& host, NodeCard& card) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  inet_pton(AF_INET, host.c_str(), &address.sin_addr);
  socklen_t length = sizeof(address);
  if (bind(listener, reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      listen(listener, 16) != 0 ||
      getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    return -1;
  }
  card.address_bytes = sizeof(address);
  std::memcpy(card.address, &address, sizeof(address));
  return listener;
}

// Connections to those below; empty and false when one cannot be made.
bool connect_children(const BenchNode& node, const std::vector<NodeCard>& cards, bool spins,
                      std::vector<int>& children) {
  for (std::uint32_t i = node.index * node.degree + 1;
       i <= (node.index + 1) * node.degree && i < node.count; ++i) {
    sockaddr_in address{};
    std::memcpy(&address, cards[i].address, sizeof(address));
    const int stream = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(stream, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) return false;
    prepare(stream, spins);
    children.push_back(stream);
  }
  return true;
}

bool send_all(const std::vector<int>& children, std::byte* frame) {
  bool well = true;
  for (const int child : children) {
    well &= move_all(
        [&](std::byte* from, std::size_t bytes) { return send(child, from, bytes, MSG_NOSIGNAL); },
        frame, kBenchFrameBytes);
  }
  return well;
}

// Frames for as long as asked; the connections are closed at the end.
bool run_root(const BenchNode& node, const std::vector<int>& children, std::span<std::byte> memory,
              BenchSpan& span) {
  span.start = monotonic_seconds();
  for (; monotonic_seconds() - span.start < node.seconds; ++span.frames) {
    if (!send_all(children, memory.data() + span.frames % kBuffers * kBenchFrameBytes)) {
      return false;
    }
  }
  for (const int child : children) close(child);
  return true;
}

// Takes frames until the parent closes, and passes them on.
bool run_below(const BenchNode& node, int stream, const std::vector<int>& children,
               std::span<std::byte> memory, BenchSpan& span) {
  const auto receive = [&](std::byte* to, std::size_t bytes) { return recv(stream, to, bytes, 0); };
  std::byte* frame = memory.data();
  std::uint64_t mixed = 0;
  while (move_all(receive, frame, kBenchFrameBytes)) {
    if (node.hashes) mixed ^= wire::digest128({frame, kBenchFrameBytes}).low;
    if (!send_all(children, frame)) return false;
    frame = memory.data() + ++span.frames % kBuffers * kBenchFrameBytes;
  }
  for (const int child : children) close(child);
  span.end = monotonic_seconds();
  asm volatile("" : : "r"(mixed));  // the hashes are work to be done
  return true;
}

}  // namespace

int run_socket_node(const BenchNode& node, const PipeEnds& ends) {
  const bool spins = node.count == 2;
  NodeCard own;
  const int listener = listen_on(node.address, own);
  std::vector<NodeCard> cards(node.count);
  if (listener < 0 || !ends.write_all(&own, sizeof(own)) ||
      !ends.read_all(cards.data(), cards.size() * sizeof(NodeCard))) {
    return 1;
  }
  std::vector<int> children;
  if (!connect_children(node, cards, spins, children)) return 1;
  std::vector<std::byte> memory(kBuffers * kBenchFrameBytes, std::byte{7});
  BenchSpan span;
  if (node.index == 0) {
    if (!run_root(node, children, memory, span)) return 1;
  } else {
    const int stream = accept(listener, nullptr, nullptr);
    if (stream < 0) return 1;
    prepare(stream, spins);
    BenchSpan taken;
    if (!run_below(node, stream, children, memory, taken)) return 1;
    if (!ends.read_all(&span, sizeof(span)) || span.frames != taken.frames) return 1;
    span.end = taken.end;
  }
  std::byte over{};
  return ends.write_all(&span, sizeof(span)) && ends.read_all(&over, 1) ? 0 : 1;
}

}  // namespace weft::bench
