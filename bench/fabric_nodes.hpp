// SPDX-License-Identifier: Apache-2.0
// The processes of `weft bench fabric`: what each one does. Node 0 sends, node i > 0 hangs below
// (i - 1) / degree.
#pragma once

#include <cstdint>
#include <string>

#include "bench/bench_processes.hpp"
#include "weft/base/limits.hpp"

namespace weft::bench {

inline constexpr std::uint32_t kBenchFrameBytes = limits::kFrameBytesMax;

struct BenchNode {
  std::uint32_t index = 0;
  std::uint32_t count = 2;   // nodes
  std::uint32_t degree = 1;  // 1: a chain; count - 1: a fan-out
  std::string provider;
  std::string address;
  double seconds = 1;
  bool hashes = false;  // receivers of plain sockets hash each frame, as a relay does
};

// What node 0 reports and the others are told; times of CLOCK_MONOTONIC.
struct BenchSpan {
  double start = 0;
  double end = 0;
  std::uint64_t frames = 0;
};

// Each says something about itself first (NodeCard), hears the cards of all, works, and reports a
// BenchSpan: node 0 when it has sent everything, the others, told how many frames there were, when
// they have them. They end when their input does. The value is the exit status.
struct NodeCard {
  std::uint64_t process = 0;
  std::uint64_t memory_address = 0;
  std::uint64_t memory_key = 0;
  std::uint32_t protocol = 0;
  std::uint32_t address_bytes = 0;
  std::byte address[limits::kFabricAddressBytesMax] = {};
};

int run_socket_node(const BenchNode& node, const PipeEnds& ends);
int run_writes_node(const BenchNode& node, const PipeEnds& ends);  // one hop only
int run_relay_node(const BenchNode& node, const PipeEnds& ends);

double monotonic_seconds();

}  // namespace weft::bench
