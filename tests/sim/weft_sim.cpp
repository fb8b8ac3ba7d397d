// SPDX-License-Identifier: Apache-2.0
// weft_sim: replays one seed of the fleet simulation, or looks for a seed that violates an
// invariant.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "sim/world.hpp"

namespace {

constexpr const char* kHelp =
    "weft_sim --seed N [--trace] [--bug NAME]    replay one seed\n"
    "weft_sim --seeds FIRST COUNT [--bug NAME]   run many, stop at the first violation\n"
    "Bugs: none, apply_before_decision, baseline_at_encode, vote_before_sync,\n"
    "      abort_while_undecided, vote_of_old_attempt, apply_before_commit_sync,\n"
    "      torn_blocks_trusted, abort_presumed_too_early\n";

weft::sim::PlantedBug bug_of(std::string_view name) {
  for (std::size_t i = 0; i < weft::sim::kPlantedBugNames.size(); ++i) {
    if (weft::sim::kPlantedBugNames[i] == name) return static_cast<weft::sim::PlantedBug>(i);
  }
  std::fprintf(stderr, "weft_sim: no such bug: %.*s\n", static_cast<int>(name.size()), name.data());
  std::exit(2);
}

// True: no violation.
bool run_one(std::uint64_t seed, weft::sim::PlantedBug bug, bool trace) {
  weft::sim::SimOptions options;
  options.seed = seed;
  options.bug = bug;
  if (trace) options.trace = [](const std::string& line) { std::puts(line.c_str()); };
  weft::sim::World world(options);
  const weft::sim::SimReport report = world.run();
  if (trace || !report.violation.empty()) {
    std::printf("seed %llu: %s\n  %s\n  events %llu, kills %llu, commits %llu, aborts %llu\n",
                static_cast<unsigned long long>(seed),
                report.violation.empty() ? "no violation" : report.violation.c_str(),
                report.setting.c_str(), static_cast<unsigned long long>(report.events),
                static_cast<unsigned long long>(report.kills),
                static_cast<unsigned long long>(report.commits),
                static_cast<unsigned long long>(report.aborts));
  }
  return report.violation.empty();
}

}  // namespace

int main(int argc, char** argv) {
  std::uint64_t first = 1;
  std::uint64_t count = 1;
  bool trace = false;
  auto bug = weft::sim::PlantedBug::kNone;
  for (int i = 1; i < argc; ++i) {
    const std::string_view option = argv[i];
    if (option == "--seed" && i + 1 < argc) {
      first = std::strtoull(argv[++i], nullptr, 10);
    } else if (option == "--seeds" && i + 2 < argc) {
      first = std::strtoull(argv[++i], nullptr, 10);
      count = std::strtoull(argv[++i], nullptr, 10);
    } else if (option == "--bug" && i + 1 < argc) {
      bug = bug_of(argv[++i]);
    } else if (option == "--trace") {
      trace = true;
    } else {
      std::fputs(kHelp, option == "--help" ? stdout : stderr);
      return option == "--help" ? 0 : 2;
    }
  }
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    if (!run_one(seed, bug, trace)) return 1;
  }
  if (!trace) {
    std::printf("%llu seeds from %llu: no violation\n", static_cast<unsigned long long>(count),
                static_cast<unsigned long long>(first));
  }
  return 0;
}
