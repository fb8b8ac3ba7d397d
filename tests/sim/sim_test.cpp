// SPDX-License-Identifier: Apache-2.0
// A bounded set of seeds over the shipping roles, and proof that the checker can fail.
#include <gtest/gtest.h>

#include <cstdint>
#include <ostream>
#include <string>

#include "sim/world.hpp"

namespace weft::sim {
namespace {

std::string repeat_with(std::uint64_t seed, PlantedBug bug) {
  return "repeat with: weft_sim --seed " + std::to_string(seed) + " --trace --bug " +
         std::string(kPlantedBugNames[static_cast<std::size_t>(bug)]);
}

SimReport run_seed(std::uint64_t seed, PlantedBug bug) {
  SimOptions options;
  options.seed = seed;
  options.bug = bug;
  World world(options);
  return world.run();
}

TEST(FleetSimulation, HoldsItsInvariantsAndRecoversOverManySeeds) {
  constexpr std::uint64_t kSeeds = 500;
  SimReport sum;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const SimReport report = run_seed(seed, PlantedBug::kNone);
    ASSERT_TRUE(report.violation.empty()) << report.violation << "\n"
                                          << report.setting << "\n"
                                          << repeat_with(seed, PlantedBug::kNone);
    sum.events += report.events;
    sum.kills += report.kills;
    sum.commits += report.commits;
    sum.aborts += report.aborts;
    sum.reseeds += report.reseeds;
  }
  // A run in which nothing happens proves nothing.
  EXPECT_GT(sum.commits, 2 * kSeeds);
  EXPECT_GT(sum.aborts, kSeeds / 4);
  EXPECT_GT(sum.kills, kSeeds);
  EXPECT_GT(sum.reseeds, 0U);
}

TEST(FleetSimulation, IsTheSameRunForTheSameSeed) {
  const SimReport first = run_seed(7, PlantedBug::kNone);
  const SimReport second = run_seed(7, PlantedBug::kNone);
  EXPECT_EQ(first.events, second.events);
  EXPECT_EQ(first.kills, second.kills);
  EXPECT_EQ(first.commits, second.commits);
}

class PlantedBugs : public ::testing::TestWithParam<PlantedBug> {};

TEST_P(PlantedBugs, AreFoundWithinABoundedNumberOfSeeds) {
  constexpr std::uint64_t kSeeds = 3000;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    if (!run_seed(seed, GetParam()).violation.empty()) return;
  }
  FAIL() << "no seed up to " << kSeeds << " finds it; " << repeat_with(1, GetParam());
}

std::string bug_name(const ::testing::TestParamInfo<PlantedBug>& info) {
  return std::string(kPlantedBugNames[static_cast<std::size_t>(info.param)]);
}

INSTANTIATE_TEST_SUITE_P(
    Each, PlantedBugs,
    ::testing::Values(PlantedBug::kApplyBeforeDecision, PlantedBug::kBaselineAtEncode,
                      PlantedBug::kVoteBeforeSync, PlantedBug::kAbortWhileUndecided,
                      PlantedBug::kVoteOfOldAttempt, PlantedBug::kApplyBeforeCommitSync,
                      PlantedBug::kTornBlocksTrusted, PlantedBug::kAbortPresumedTooEarly),
    bug_name);

}  // namespace
}  // namespace weft::sim
