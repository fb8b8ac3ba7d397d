// SPDX-License-Identifier: Apache-2.0
// The coordinator's durable state: the truth about what was decided (docs/formats/commit-logs.md).
// Pure: the record log of apply/store keeps the bytes, and its lock the second coordinator out.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "apply/store/record_log.hpp"
#include "weft/base/ids.hpp"
#include "weft/base/result.hpp"
#include "weft/wire/messages.hpp"

namespace weft::apply {

inline constexpr std::uint32_t kDecisionLogKind = 0x4744'4657;  // "WFDG"

struct FleetRecord {
  FleetId fleet;
  auto operator<=>(const FleetRecord&) const = default;
};

// One coordinator start. A COMMIT or ABORT behind it with a lower epoch is void.
struct StartRecord {
  Epoch epoch;
  auto operator<=>(const StartRecord&) const = default;
};

// The committed content, when it did not come from a COMMIT in this log: the first base of a fresh
// fleet, the same version under another lattice, a log that was rewritten.
struct ContentRecord {
  Content content;
  auto operator<=>(const ContentRecord&) const = default;
};

// A decision. `planned` names everyone who has to acknowledge, producers too.
struct DecisionRecord {
  RefitId refit;
  wire::Verdict verdict = wire::Verdict::kAbort;
  Content base;
  Content target;  // of an abort before the seal: lattice and root are the base's, or zero
  std::vector<std::string> planned;
  std::optional<wire::Cause> cause;
  bool by_operator = false;  // `--resolve`: holds whatever START stands before it
  auto operator<=>(const DecisionRecord&) const = default;
};

struct AckedRecord {
  RefitId refit;
  std::string member_id;
  auto operator<=>(const AckedRecord&) const = default;
};

// Everyone has acknowledged: this refit need not be remembered.
struct ForgottenRecord {
  RefitId refit;
  auto operator<=>(const ForgottenRecord&) const = default;
};

using CoordinatorRecord = std::variant<FleetRecord, StartRecord, ContentRecord, DecisionRecord,
                                       AckedRecord, ForgottenRecord>;

LogRecord encode(const CoordinatorRecord& record);
// Errors: kFormat, whatever the bytes are: a record that passed its CRC and means nothing.
Result<CoordinatorRecord> decode_coordinator_record(const LogRecord& record);

struct FoldedDecision {
  DecisionRecord decision;
  std::set<std::string> acked;
  auto operator<=>(const FoldedDecision&) const = default;
};

struct DecisionFold {
  FleetId fleet;                        // zero: an empty log
  Epoch epoch;                          // of the highest START; number 0: none yet
  Content committed;                    // version 0: a fresh fleet
  std::vector<FoldedDecision> commits;  // valid, not forgotten, oldest first
  std::vector<DecisionRecord> aborts;   // by the operator only: all others are presumed
  auto operator<=>(const DecisionFold&) const = default;
};

// Errors: kFormat when two decisions for one refit contradict each other.
Result<DecisionFold> fold_decisions(std::span<const CoordinatorRecord> records);
// The fewest records with this fold; the START of a new epoch goes behind them.
std::vector<CoordinatorRecord> compact_decisions(const DecisionFold& fold);

// `weft coordinator --resolve REFIT commit|abort`: the records that the operator's word adds to the
// log; none when the log says so already. `refit` is what the PREPARED members report.
// Errors: kInDoubt when the log says otherwise; kConfig without a target to commit.
Result<std::vector<CoordinatorRecord>> resolve_by_operator(const DecisionFold& fold,
                                                           const wire::PreparedRefit& refit,
                                                           wire::Verdict verdict);

}  // namespace weft::apply
