// SPDX-License-Identifier: Apache-2.0
// The operator's way out of a decision log that was lost: what the members say and the operator's
// word on the refit that is in doubt make a new one. Pure.
#pragma once

#include <span>
#include <vector>

#include "apply/commit/decision_log.hpp"

namespace weft::apply {

// `fold` is what is left of the log (nothing, an older copy, or what a coordinator without the log
// began: that is dropped), `hellos` the last Hello of every
// member that could be reached: who is not among them must not know a later epoch or version. The
// records are a whole log of that fleet: its id, what is committed, the operator's decision, and a
// START so high that the next coordinator start is believed by everybody.
// Errors: kPeerLost (no agent of the fleet is there; or, to commit, none is PREPARED for it),
// kDenied (members of several fleets, or of another than the log's), kInDoubt (the log, or a member
// that has applied the refit, says otherwise; two members are PREPARED for different targets).
Result<std::vector<CoordinatorRecord>> rebuild_lost_log(const DecisionFold& fold,
                                                        std::span<const wire::Hello> hellos,
                                                        const RefitId& refit,
                                                        wire::Verdict verdict);

}  // namespace weft::apply
