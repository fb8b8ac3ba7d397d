// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "agent/cli/options.hpp"
#include "agent/cli/stop_token.hpp"

namespace weft::cli {

// weft bench fabric
struct BenchFabricOptions {
  CommonOptions common;
  std::vector<std::string> providers{"net", "tcp;ofi_rxm"};
  std::string address = "127.0.0.1";
  double seconds = 1.0;
  std::uint32_t rounds = 3;
  std::uint32_t hops = 3;
};

int run_bench_fabric(const BenchFabricOptions& options, StopToken& stop);

}  // namespace weft::cli
