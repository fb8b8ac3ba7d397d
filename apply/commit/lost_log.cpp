// SPDX-License-Identifier: Apache-2.0
#include "apply/commit/lost_log.hpp"

#include <algorithm>
#include <optional>
#include <utility>

namespace weft::apply {

namespace {

// What the members add up to.
struct Testimony {
  FleetId fleet;
  Epoch epoch;      // the highest
  Content content;  // of the agent that is furthest
  std::optional<wire::PreparedRefit> prepared;
};

Error denied(const std::string& detail) {
  return make_error(ErrorCode::kDenied, Stage::kDecide, detail);
}

Status hear_prepared(Testimony& all, const wire::Hello& hello, const RefitId& refit) {
  if (!hello.prepared || hello.prepared->refit != refit) return ok();
  if (all.prepared && *all.prepared != *hello.prepared) {
    return failure(ErrorCode::kInDoubt, Stage::kDecide,
                   hello.endpoint.member_id + " is PREPARED for another content of " +
                       to_string(refit) + " than others are");
  }
  all.prepared = hello.prepared;
  return ok();
}

Result<Testimony> hear(const DecisionFold& fold, std::span<const wire::Hello> hellos,
                       const RefitId& refit) {
  Testimony all;
  all.fleet = fold.fleet;
  for (const wire::Hello& hello : hellos) {
    const std::string& id = hello.endpoint.member_id;
    if (hello.role != wire::Role::kAgent || hello.fleet.is_zero()) continue;
    if (all.fleet.is_zero()) all.fleet = hello.fleet;
    if (hello.fleet != all.fleet) {
      return denied(id + " is of fleet " + to_hex(hello.fleet) + ", not of " + to_hex(all.fleet));
    }
    all.epoch = std::max(all.epoch, hello.epoch);
    if (hello.prepared) all.epoch = std::max(all.epoch, hello.prepared->refit.epoch);
    if (all.content.version < hello.content.version) all.content = hello.content;
    WEFT_TRY_STATUS(hear_prepared(all, hello, refit));
  }
  const bool anyone = std::any_of(hellos.begin(), hellos.end(), [](const wire::Hello& hello) {
    return hello.role == wire::Role::kAgent && !hello.fleet.is_zero();
  });
  if (!anyone) {
    return failure(ErrorCode::kPeerLost, Stage::kDecide, "no agent of the fleet has come");
  }
  return all;
}

}  // namespace

Result<std::vector<CoordinatorRecord>> rebuild_lost_log(const DecisionFold& fold,
                                                        std::span<const wire::Hello> hellos,
                                                        const RefitId& refit,
                                                        wire::Verdict verdict) {
  // What a coordinator leaves that was started without the log: it has decided nothing.
  const bool empty =
      fold.committed.version.value == 0 && fold.commits.empty() && fold.aborts.empty();
  const DecisionFold left = empty ? DecisionFold{} : fold;
  WEFT_TRY(const Testimony all, hear(left, hellos, refit));
  const bool commits = verdict == wire::Verdict::kCommit;
  if (commits && !all.prepared) {
    return failure(ErrorCode::kPeerLost, Stage::kDecide,
                   "no agent that has come is PREPARED for " + to_string(refit) +
                       ": what it would commit is not known");
  }
  const bool applied = all.prepared && all.content == all.prepared->target;
  if (!commits && applied) {
    return failure(ErrorCode::kInDoubt, Stage::kDecide,
                   "an agent has applied " + to_string(refit) + ": it was committed");
  }
  const wire::PreparedRefit known =
      all.prepared.value_or(wire::PreparedRefit{refit, all.content, {}});
  WEFT_TRY(auto added, resolve_by_operator(left, known, verdict));

  std::vector<CoordinatorRecord> records = compact_decisions(left);
  if (left.fleet.is_zero()) records.insert(records.begin(), FleetRecord{all.fleet});
  records.insert(records.end(), added.begin(), added.end());
  const Version decided = commits ? known.target.version : known.base.version;
  if (std::max(left.committed.version, decided) < all.content.version) {
    records.push_back(ContentRecord{all.content});
  }
  if (left.epoch < all.epoch && refit.epoch < all.epoch) {
    records.push_back(StartRecord{all.epoch});
  }
  return records;
}

}  // namespace weft::apply
