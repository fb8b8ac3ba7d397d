// SPDX-License-Identifier: Apache-2.0
#include "bench/fabric_bench.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "bench/bench_processes.hpp"
#include "bench/fabric_nodes.hpp"
#include "bench/timing.hpp"
#include "weft/base/units.hpp"

namespace weft::bench {
namespace {

using NodeBody = int (*)(const BenchNode&, const PipeEnds&);

struct Case {
  FabricFigure figure;
  NodeBody body = nullptr;
  BenchNode node;
  std::vector<double> cpu = {};
};

Error failed(const Case& tried, const char* what, ErrorCode code = ErrorCode::kInternal) {
  return failure(code, Stage::kRelay,
                 "bench fabric: " + tried.figure.topology + ", " + tried.figure.method + " " +
                     tried.figure.provider + ": " + what);
}

// One measurement of one case.
Status measure(Case& one) {
  ProcessGroup group;
  for (std::uint32_t i = 0; i < one.node.count; ++i) {
    BenchNode node = one.node;
    node.index = i;
    if (!group.start([&](const PipeEnds& ends) { return one.body(node, ends); })) {
      return failed(one, "no process");
    }
  }
  std::vector<NodeCard> cards(one.node.count);
  for (std::uint32_t i = 0; i < one.node.count; ++i) {
    if (!group.ends(i).read_all(&cards[i], sizeof(NodeCard))) {
      return failed(one, "a process could not start (see above)", ErrorCode::kConfig);
    }
  }
  for (std::uint32_t i = 0; i < one.node.count; ++i) {
    if (!group.ends(i).write_all(cards.data(), cards.size() * sizeof(NodeCard))) {
      return failed(one, "a process ended");
    }
  }
  BenchSpan sent;
  if (!group.ends(0).read_all(&sent, sizeof(sent))) return failed(one, "the sender failed");
  double end = 0;
  for (std::uint32_t i = 1; i < one.node.count; ++i) {
    BenchSpan received;
    if (!group.ends(i).write_all(&sent, sizeof(sent)) ||
        !group.ends(i).read_all(&received, sizeof(received))) {
      return failed(one, "a receiver failed");
    }
    end = std::max(end, received.end);
  }
  const std::byte over{};
  for (std::uint32_t i = 0; i < one.node.count; ++i) {
    static_cast<void>(group.ends(i).write_all(&over, 1));
  }
  if (!group.wait()) return failed(one, "a process failed at its end");
  const double gib = static_cast<double>(sent.frames) * kBenchFrameBytes / double(kGiB);
  one.figure.gib_per_second.push_back(gib / (end - sent.start));
  one.cpu.push_back(group.cpu_seconds(1) / gib);
  return ok();
}

std::vector<Case> make_cases(const FabricBenchOptions& options) {
  std::vector<Case> cases;
  const auto add = [&](const char* topology, const char* method, const std::string& provider,
                       NodeBody body) {
    const bool hop = std::string(topology) == "hop";
    const bool chain = std::string(topology) == "chain";
    const std::uint32_t count = hop ? 2 : options.hops + 1;
    const BenchNode node{0,        count,           hop || chain ? 1 : options.hops,
                         provider, options.address, options.seconds};
    cases.push_back({{topology, method, provider, {}, 0, 0, 0, 0}, body, node});
  };
  for (const char* topology : {"hop", "chain", "fan-out"}) {
    add(topology, "tcp", "", run_socket_node);
    if (std::string(topology) == "hop") {
      add(topology, "tcp+hash", "", run_socket_node);
      cases.back().node.hashes = true;
    }
    for (const std::string& provider : options.providers) {
      if (std::string(topology) == "hop") add(topology, "writes", provider, run_writes_node);
      add(topology, "relay", provider, run_relay_node);
    }
  }
  return cases;
}

}  // namespace

Result<FabricReport> run_fabric_bench(const FabricBenchOptions& options) {
  std::vector<Case> cases = make_cases(options);
  const auto total = static_cast<std::uint32_t>(cases.size()) * options.rounds;
  std::uint32_t done = 0;
  // Rounds are interleaved: what else the machine does meets all of them.
  for (std::uint32_t round = 0; round < options.rounds; ++round) {
    for (Case& one : cases) {
      if (options.stop_requested && options.stop_requested()) {
        return failure(ErrorCode::kBusy, Stage::kRelay, "stopped by the caller");
      }
      WEFT_TRY_STATUS(measure(one));
      if (options.on_progress) options.on_progress(++done, total);
    }
  }
  FabricReport report;
  report.frame_bytes = kBenchFrameBytes;
  for (Case& one : cases) {
    one.figure.median = median(one.figure.gib_per_second);
    one.figure.cpu_per_gib = median(one.cpu);
    const auto reference = std::find_if(cases.begin(), cases.end(), [&](const Case& other) {
      return other.figure.topology == one.figure.topology && other.figure.method == "tcp";
    });
    one.figure.ratio = one.figure.median / reference->figure.median;
    one.figure.cpu_ratio = one.figure.cpu_per_gib / reference->figure.cpu_per_gib;
    report.figures.push_back(one.figure);
  }
  return report;
}

}  // namespace weft::bench
