// SPDX-License-Identifier: Apache-2.0
// Protocol bugs that the hosts of the simulation can add to the shipping roles, to show that the
// checker finds each of them. They live here only.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace weft::sim {

enum class PlantedBug : std::uint8_t {
  kNone,
  kApplyBeforeDecision,    // weights are written when the vote is told
  kBaselineAtEncode,       // the baseline moves when encoding ends
  kVoteBeforeSync,         // YES is told before PREPARED is durable
  kAbortWhileUndecided,    // a query about the open refit is answered with ABORT
  kVoteOfOldAttempt,       // a YES for an earlier attempt counts for the retry
  kApplyBeforeCommitSync,  // weights are written before the COMMIT record is durable
  kTornBlocksTrusted,      // after a power cut the written chunks are not hashed
  kAbortPresumedTooEarly,  // the decision log forgets a COMMIT that is not acknowledged
};

inline constexpr std::array<std::string_view, 9> kPlantedBugNames = {
    "none",
    "apply_before_decision",
    "baseline_at_encode",
    "vote_before_sync",
    "abort_while_undecided",
    "vote_of_old_attempt",
    "apply_before_commit_sync",
    "torn_blocks_trusted",
    "abort_presumed_too_early",
};

}  // namespace weft::sim
