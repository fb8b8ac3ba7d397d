// SPDX-License-Identifier: Apache-2.0
// One hop at 1 MiB frames between two processes on loopback: a plain spinning TCP stream, the same
// with the frame's checksum on the receiving side, and a relay over each provider, in one run.
// Usage: bench_transport_hop [SECONDS_PER_ROUND] [ROUNDS]
#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/timing.hpp"
#include "transport/relay/relay.hpp"
#include "transport/tree/relay_plan.hpp"
#include "weft/wire/digest.hpp"

namespace weft::transport {
namespace {

using std::chrono::milliseconds;
using SteadyClock = std::chrono::steady_clock;

constexpr std::uint32_t kFrameBytes = limits::kFrameBytesMax;
constexpr std::size_t kBuffers = 8;

double seconds_since(SteadyClock::time_point start) {
  return std::chrono::duration<double>(SteadyClock::now() - start).count();
}

// Moves all of `bytes` through a non-blocking socket, spinning. False at the end of the stream.
template <typename Call>
bool spin(Call&& call, std::byte* memory, std::size_t bytes) {
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t moved = call(memory + done, bytes - done);
    if (moved == 0) return false;
    if (moved < 0 && errno != EAGAIN && errno != EWOULDBLOCK) return false;
    if (moved > 0) done += static_cast<std::size_t>(moved);
  }
  return true;
}

int make_listener(sockaddr_in& address) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  if (bind(listener, reinterpret_cast<sockaddr*>(&address), length) != 0) std::exit(1);
  if (listen(listener, 1) != 0) std::exit(1);
  getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length);
  return listener;
}

void prepare_socket(int stream) {
  const int on = 1;
  setsockopt(stream, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  fcntl(stream, F_SETFL, fcntl(stream, F_GETFL) | O_NONBLOCK);
}

[[noreturn]] void receive_stream(int listener, bool with_checksum) {
  const int stream = accept(listener, nullptr, nullptr);
  prepare_socket(stream);
  std::vector<std::byte> memory(kBuffers * kFrameBytes);
  const auto read_some = [&](std::byte* to, std::size_t bytes) {
    return recv(stream, to, bytes, 0);
  };
  std::uint64_t mixed = 0;
  for (std::size_t i = 0;
       spin(read_some, memory.data() + (i % kBuffers) * kFrameBytes, kFrameBytes); ++i) {
    if (!with_checksum) continue;
    mixed ^= wire::digest128({memory.data() + (i % kBuffers) * kFrameBytes, kFrameBytes}).low;
  }
  _exit(mixed == 1 ? 1 : 0);
}

// GiB/s of a plain stream, from the first byte sent until the receiver has ended.
double measure_stream(double seconds, bool with_checksum) {
  sockaddr_in address;
  const int listener = make_listener(address);
  const pid_t child = fork();
  if (child == 0) receive_stream(listener, with_checksum);
  const int stream = socket(AF_INET, SOCK_STREAM, 0);
  if (connect(stream, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) std::exit(1);
  prepare_socket(stream);
  std::vector<std::byte> memory(kBuffers * kFrameBytes, std::byte{7});
  const auto write_some = [&](std::byte* from, std::size_t bytes) {
    return send(stream, from, bytes, MSG_NOSIGNAL);
  };
  const auto start = SteadyClock::now();
  std::uint64_t frames = 0;
  for (; seconds_since(start) < seconds; ++frames) {
    spin(write_some, memory.data() + (frames % kBuffers) * kFrameBytes, kFrameBytes);
  }
  close(stream);
  close(listener);
  int status = 0;
  waitpid(child, &status, 0);
  return static_cast<double>(frames * kFrameBytes) / seconds_since(start) / double(kGiB);
}

// Threads: any.
class DroppingObserver final : public RelayObserver {
 public:
  void on_frame(const RefitId&, ProducerIndex, FrameSequence, SharedSlot) override {}
  void on_link_lost(const RefitId&, std::string_view, const Error&) override {}
  void on_fault(const RefitId&, std::string_view, const Error&) override {}
};

struct Side {
  std::unique_ptr<SlabPool> pool;
  std::unique_ptr<Relay> relay;
};

// Exits the process when the provider is not there.
Side open_side(const std::string& provider, DroppingObserver& observer, EventSink& events) {
  Side side;
  auto pool = SlabPool::open({.slot_count = 32}, events);
  RelayOptions options;
  options.fabric.provider = provider;
  options.fabric.interface = "lo";
  options.fabric.address = "127.0.0.1";
  if (!pool) std::exit(1);
  side.pool = std::move(*pool);
  auto relay = Relay::open(options, *side.pool, observer, events);
  if (!relay) {
    std::fprintf(stderr, "%s\n", relay.error().message().c_str());
    std::exit(1);
  }
  side.relay = std::move(*relay);
  return side;
}

wire::Endpoint endpoint_of(const Relay& relay, const std::string& name) {
  return {name, relay.process(), "", relay.rails()};
}

struct Announcement {
  ProcessId process;
  std::uint32_t protocol = 0;
  std::uint32_t address_bytes = 0;
  std::array<std::byte, limits::kFabricAddressBytesMax> address{};
};

void announce(int to, const Relay& relay) {
  Announcement own;
  const wire::RailAddress rail = relay.rails().at(0);
  own.process = relay.process();
  own.protocol = rail.protocol;
  own.address_bytes = static_cast<std::uint32_t>(rail.address.size());
  std::copy(rail.address.begin(), rail.address.end(), own.address.begin());
  if (write(to, &own, sizeof(own)) != sizeof(own)) std::exit(1);
}

wire::Endpoint hear(int from, const std::string& name) {
  Announcement other;
  if (read(from, &other, sizeof(other)) != sizeof(other)) std::exit(1);
  const std::vector<std::byte> address(other.address.begin(),
                                       other.address.begin() + other.address_bytes);
  return {name, other.process, "", {{"", other.protocol, address}}};
}

wire::Plan make_plan(const wire::Endpoint& producer, const wire::Endpoint& agent) {
  wire::Plan plan;
  plan.refit = {{1, ProcessId{1}}, 1};
  plan.nodes = {producer, agent};
  plan.trees = plan_relays({"chain", 1, 1})->trees;
  return plan;
}

[[noreturn]] void run_agent(const std::string& provider, int from, int to) {
  NullEventSink events;
  DroppingObserver observer;
  Side side = open_side(provider, observer, events);
  announce(to, *side.relay);
  const wire::Endpoint producer = hear(from, "producer");
  const wire::Plan plan = make_plan(producer, endpoint_of(*side.relay, "agent"));
  if (!side.relay->enter(plan, NodeIndex{1})) std::exit(1);
  std::byte end{};
  static_cast<void>(read(from, &end, 1) == 1);  // until the producer is done
  side.relay->leave(plan.refit);
  static_cast<void>(side.relay->close(milliseconds(2000)));
  side.relay.reset();
  _exit(0);
}

wire::FrameHeader fill_frame(std::span<std::byte> room, const wire::Plan& plan,
                             std::uint32_t sequence, bool first) {
  wire::FrameHeader header;
  header.set_refit(plan.refit);
  header.sequence = sequence;
  header.chunk_count = 1;
  header.index_bytes = wire::kIndexEntryBytes;
  header.payload_bytes = kFrameBytes - limits::kFrameHeaderBytes - wire::kIndexEntryBytes;
  const auto body = room.subspan(sizeof(header), header.index_bytes + header.payload_bytes);
  if (first) std::memset(body.data(), 7, body.size());
  const Digest checksum = wire::frame_checksum(header, body);
  header.checksum_low = checksum.low;
  header.checksum_high = checksum.high;
  std::memcpy(room.data(), &header, sizeof(header));
  return header;
}

// GiB/s of one relay hop; the producer's own checksum is not in the timed part's way: it runs on
// another thread than the progress thread, as an encoder's would.
double run_producer(const std::string& provider, double seconds, int from, int to) {
  NullEventSink events;
  DroppingObserver observer;
  Side side = open_side(provider, observer, events);
  const wire::Endpoint agent = hear(from, "agent");
  announce(to, *side.relay);
  const wire::Plan plan = make_plan(endpoint_of(*side.relay, "producer"), agent);
  if (!side.relay->enter(plan, NodeIndex{0})) std::exit(1);
  // Frames are prepared ahead: the same 32 slots would be refilled in a real stream, here they are
  // only numbered anew, which changes header and checksum.
  std::uint32_t sequence = 0;
  std::uint64_t frames = 0;
  const auto send_one = [&] {
    auto lease = side.pool->acquire(milliseconds(5000));
    if (!lease) std::exit(1);
    const auto room = lease->frame_room();
    const wire::FrameHeader header = fill_frame(room, plan, sequence, sequence < 64);
    ++sequence;
    SharedSlot frame = std::move(*lease).share(static_cast<std::uint32_t>(header.frame_bytes()));
    if (!side.relay->inject(ProducerIndex{0}, header, std::move(frame))) std::exit(1);
  };
  for (int i = 0; i < 64; ++i) send_one();
  static_cast<void>(side.relay->wait_drained(plan.refit, milliseconds(10'000)));
  const auto start = SteadyClock::now();
  for (; seconds_since(start) < seconds; ++frames) send_one();
  static_cast<void>(side.relay->wait_drained(plan.refit, milliseconds(10'000)));
  const double rate =
      static_cast<double>(frames * kFrameBytes) / seconds_since(start) / double(kGiB);
  const std::byte end{};
  static_cast<void>(write(to, &end, 1) == 1);
  side.relay->leave(plan.refit);
  static_cast<void>(side.relay->close(milliseconds(2000)));
  side.relay.reset();
  return rate;
}

// Both sides in processes of their own: this one never opens a rail.
double measure_relay(const std::string& provider, double seconds) {
  std::array<int, 2> down{};
  std::array<int, 2> up{};
  std::array<int, 2> result{};
  if (pipe(down.data()) != 0 || pipe(up.data()) != 0 || pipe(result.data()) != 0) std::exit(1);
  const pid_t agent = fork();
  if (agent == 0) run_agent(provider, down[0], up[1]);
  const pid_t producer = fork();
  if (producer == 0) {
    const double rate = run_producer(provider, seconds, up[0], down[1]);
    _exit(write(result[1], &rate, sizeof(rate)) == sizeof(rate) ? 0 : 1);
  }
  close(result[1]);
  double rate = 0;
  if (read(result[0], &rate, sizeof(rate)) != sizeof(rate)) rate = 0;
  int status = 0;
  waitpid(producer, &status, 0);
  waitpid(agent, &status, 0);
  for (const int end : {down[0], down[1], up[0], up[1], result[0]}) close(end);
  return rate;
}

struct Row {
  std::string name;
  std::function<double()> measure;
  std::vector<double> rates;
};

int run(double seconds, int rounds) {
  std::vector<Row> rows{
      {"tcp stream, spinning", [=] { return measure_stream(seconds, false); }, {}},
      {"tcp stream + checksum", [=] { return measure_stream(seconds, true); }, {}},
      {"relay over net", [=] { return measure_relay("net", seconds); }, {}},
      {"relay over tcp;ofi_rxm", [=] { return measure_relay("tcp;ofi_rxm", seconds); }, {}}};
  for (int round = 0; round < rounds; ++round) {
    for (Row& row : rows) row.rates.push_back(row.measure());
  }
  std::printf("one hop, frames of %u bytes, %d rounds of %.1f s, %u cores\n", kFrameBytes, rounds,
              seconds, std::thread::hardware_concurrency());
  std::printf("%-24s %8s %8s %8s %8s\n", "", "median", "min", "max", "ratio");
  const double reference = bench::median(rows[0].rates);
  for (const Row& row : rows) {
    const auto [least, most] = std::minmax_element(row.rates.begin(), row.rates.end());
    std::printf("%-24s %8.2f %8.2f %8.2f %8.2f\n", row.name.c_str(), bench::median(row.rates),
                *least, *most, bench::median(row.rates) / reference);
  }
  return 0;
}

}  // namespace
}  // namespace weft::transport

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 1.0;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 3;
  return weft::transport::run(seconds, std::max(1, rounds));
}
