// SPDX-License-Identifier: Apache-2.0
// The same topologies over plain TCP: one hop spins, more processes than cores block.
#include <array>
#include <cerrno>
#include <cstring>
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
  // Children listen, parents connect.
  std::vector<int> children;
  for (std::uint32_t i = node.index * node.degree + 1;
       i <= (node.index + 1) * node.degree && i < node.count; ++i) {
    sockaddr_in address{};
    std::memcpy(&address, cards[i].address, sizeof(address));
    const int stream = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(stream, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) return 1;
    prepare(stream, spins);
    children.push_back(stream);
  }
  std::vector<std::byte> memory(kBuffers * kBenchFrameBytes, std::byte{7});
  const auto send_all = [&](std::byte* frame) {
    bool well = true;
    for (const int child : children) {
      well &= move_all([&](std::byte* from,
                           std::size_t bytes) { return send(child, from, bytes, MSG_NOSIGNAL); },
                       frame, kBenchFrameBytes);
    }
    return well;
  };
  BenchSpan span;
  std::uint64_t frames = 0;
  if (node.index == 0) {
    span.start = monotonic_seconds();
    for (; monotonic_seconds() - span.start < node.seconds; ++frames) {
      if (!send_all(memory.data() + frames % kBuffers * kBenchFrameBytes)) return 1;
    }
    span.frames = frames;
    for (const int child : children) close(child);
  } else {
    const int stream = accept(listener, nullptr, nullptr);
    if (stream < 0) return 1;
    prepare(stream, spins);
    const auto receive = [&](std::byte* to, std::size_t bytes) {
      return recv(stream, to, bytes, 0);
    };
    std::byte* frame = memory.data();
    std::uint64_t mixed = 0;
    while (move_all(receive, frame, kBenchFrameBytes)) {
      if (node.hashes) mixed ^= wire::digest128({frame, kBenchFrameBytes}).low;
      if (!send_all(frame)) return 1;
      frame = memory.data() + ++frames % kBuffers * kBenchFrameBytes;
    }
    for (const int child : children) close(child);
    span.end = monotonic_seconds();
    const double end = span.end;
    if (!ends.read_all(&span, sizeof(span)) || span.frames != frames) return 1;
    span.end = end;
    asm volatile("" : : "r"(mixed));  // the hashes are work to be done
  }
  std::byte over{};
  return ends.write_all(&span, sizeof(span)) && ends.read_all(&over, 1) ? 0 : 1;
}

}  // namespace weft::bench
