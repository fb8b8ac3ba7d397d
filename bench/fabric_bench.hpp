// SPDX-License-Identifier: Apache-2.0
// What `weft bench fabric` runs: relays over real libfabric beside plain TCP, in one run.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "weft/base/result.hpp"

namespace weft::bench {

struct FabricBenchOptions {
  std::vector<std::string> providers = {"net", "tcp;ofi_rxm"};
  std::string address = "127.0.0.1";
  double seconds = 1.0;  // of one measurement
  std::uint32_t rounds = 3;
  std::uint32_t hops = 3;  // of the chain; children of the fan-out
  std::function<void(std::uint32_t done, std::uint32_t total)> on_progress = {};
  std::function<bool()> stop_requested = {};
};

// One way of moving frames of 1 MiB through one topology.
struct FabricFigure {
  std::string topology;  // "hop", "chain", "fan-out"
  std::string method;    // "tcp" (plain sockets), "tcp+hash" (each frame is hashed on arrival, as a
                         // relay does), "writes" (bare writes with data), "relay"
  std::string provider;  // empty for plain sockets
  std::vector<double> gib_per_second;  // of the last receiver, by round
  double median = 0;
  double ratio = 0;        // over plain sockets in the same topology
  double cpu_per_gib = 0;  // seconds of the first receiver, which forwards in a chain
  double cpu_ratio = 0;    // over plain sockets in the same topology
};

struct FabricReport {
  std::uint32_t frame_bytes = 0;
  std::vector<FabricFigure> figures;
};

// Everything runs in processes of its own; this one opens no rail. Errors: kConfig (a provider is
// not there), kInternal (a process failed), kBusy (stopped).
Result<FabricReport> run_fabric_bench(const FabricBenchOptions& options);

}  // namespace weft::bench
