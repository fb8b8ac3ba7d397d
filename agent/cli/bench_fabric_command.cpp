// SPDX-License-Identifier: Apache-2.0
#include "agent/cli/bench_fabric_command.hpp"

#include <algorithm>
#include <cstdio>
#include <string>

#include "agent/cli/progress.hpp"
#include "agent/cli/report.hpp"
#include "agent/lib/json_writer.hpp"
#include "bench/fabric_bench.hpp"

namespace weft::cli {
namespace {

std::string as_json(const BenchFabricOptions& options, const bench::FabricReport& report) {
  agent::JsonWriter json;
  json.begin_object().member("frame_bytes", report.frame_bytes);
  json.member("seconds", options.seconds).member("rounds", options.rounds);
  json.member("hops", options.hops).key("figures").begin_array();
  for (const bench::FabricFigure& figure : report.figures) {
    const auto [least, most] =
        std::minmax_element(figure.gib_per_second.begin(), figure.gib_per_second.end());
    json.begin_object().member("topology", figure.topology).member("method", figure.method);
    json.member("provider", figure.provider).member("gib_per_second", figure.median);
    json.member("least", *least).member("most", *most).member("ratio", figure.ratio);
    json.member("cpu_seconds_per_gib", figure.cpu_per_gib);
    json.member("cpu_ratio", figure.cpu_ratio).end_object();
  }
  return json.end_array().end_object().take();
}

std::string as_text(const BenchFabricOptions& options, const bench::FabricReport& report) {
  char line[160];
  std::snprintf(line, sizeof(line),
                "frames of %u bytes, medians of %u rounds of %.1f s, chain and fan-out of %u\n"
                "%-34s %8s %8s %8s %7s %9s %7s",
                report.frame_bytes, options.rounds, options.seconds, options.hops, "", "GiB/s",
                "least", "most", "ratio", "cpu s/GiB", "ratio");
  std::string text = line;
  for (const bench::FabricFigure& figure : report.figures) {
    const auto [least, most] =
        std::minmax_element(figure.gib_per_second.begin(), figure.gib_per_second.end());
    const std::string name = figure.topology + ", " + figure.method +
                             (figure.provider.empty() ? "" : " over " + figure.provider);
    std::snprintf(line, sizeof(line), "\n%-34s %8.2f %8.2f %8.2f %7.2f %9.2f %7.2f", name.c_str(),
                  figure.median, *least, *most, figure.ratio, figure.cpu_per_gib, figure.cpu_ratio);
    text += line;
  }
  return text +
         "\nratio: over plain TCP in the same topology (one hop spins, more block); cpu: of "
         "the first receiver, which forwards in a chain";
}

}  // namespace

int run_bench_fabric(const BenchFabricOptions& options, StopToken& stop) {
  Progress progress(options.common.json, "bench fabric");
  bench::FabricBenchOptions wanted;
  wanted.providers = options.providers;
  wanted.address = options.address;
  wanted.seconds = options.seconds;
  wanted.rounds = options.rounds;
  wanted.hops = options.hops;
  wanted.on_progress = [&](std::uint32_t done, std::uint32_t total) {
    progress.show(std::to_string(done) + " of " + std::to_string(total));
  };
  wanted.stop_requested = [&] { return stop.requested(); };
  const Result<bench::FabricReport> report = bench::run_fabric_bench(wanted);
  progress.clear();
  if (!report) return report_failure(report.error(), options.common);
  return report_result(options.common.json ? as_json(options, *report) : as_text(options, *report));
}

}  // namespace weft::cli
