// SPDX-License-Identifier: Apache-2.0
// The agent's durable state: what its records are, how they fold, and what a start does about it
// (docs/formats/commit-logs.md). Pure: the record log of apply/store keeps the bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "apply/commit/commit_ids.hpp"
#include "apply/store/file.hpp"
#include "apply/store/record_log.hpp"
#include "weft/base/ids.hpp"
#include "weft/base/result.hpp"
#include "weft/wire/messages.hpp"

namespace weft::apply {

inline constexpr std::uint32_t kStateLogKind = 0x5453'4657;  // "WFST": RecordLogOptions::log_kind

// The coordinator's epoch (and its fleet) before anything it says is acted on.
struct EpochRecord {
  FleetId fleet;
  Epoch epoch;
  auto operator<=>(const EpochRecord&) const = default;
};

struct BeginRecord {
  RefitId refit;
  Content base;
  Version target_version;
  auto operator<=>(const BeginRecord&) const = default;
};

// Durable before a YES is told.
struct PreparedRecord {
  wire::PreparedRefit prepared;
  Digest manifest;
  auto operator<=>(const PreparedRecord&) const = default;
};

// Durable before the first weight byte is written.
struct CommitRecord {
  RefitId refit;
  Content target;
  auto operator<=>(const CommitRecord&) const = default;
};

// The weight files are `content`, synced. `refit` is unset when the content came another way: the
// first look at the files, another lattice, an anchor.
struct AppliedRecord {
  std::optional<RefitId> refit;
  Content content;
  BootId boot;
  std::vector<FileIdentity> files;  // place = file index of the schema
  auto operator<=>(const AppliedRecord&) const = default;
};

struct HookedRecord {
  RefitId refit;
  auto operator<=>(const HookedRecord&) const = default;
};

// Spool and journal of this refit are dropped here; the weights stay as they are. `left_out`: the
// fleet committed it without this node.
struct AbortRecord {
  RefitId refit;
  bool left_out = false;
  auto operator<=>(const AbortRecord&) const = default;
};

// The files are not any committed version: only a full copy helps.
struct ReseedRecord {
  wire::Cause cause;
  auto operator<=>(const ReseedRecord&) const = default;
};

using StateRecord = std::variant<EpochRecord, BeginRecord, PreparedRecord, CommitRecord,
                                 AppliedRecord, HookedRecord, AbortRecord, ReseedRecord>;

LogRecord encode(const StateRecord& record);
// Errors: kNeedsReseed, whatever the bytes are: a record that passed its CRC and means nothing.
Result<StateRecord> decode_state_record(const LogRecord& record);

// What the records of one refit add up to.
struct FoldedRefit {
  RefitId refit;
  bool begun = false;
  bool committed = false;
  bool applied = false;
  bool hooked = false;
  std::optional<PreparedRecord> prepared;
  Content base;            // of BEGIN or PREPARED
  Version target_version;  // of BEGIN, PREPARED or COMMIT
  Content target;          // of PREPARED or COMMIT
  auto operator<=>(const FoldedRefit&) const = default;
};

// Invariant: `refits` holds only what a start still has to deal with, oldest first.
struct StateFold {
  FleetId fleet;
  Epoch epoch;
  std::optional<AppliedRecord> applied;  // the last one
  std::vector<FoldedRefit> refits;       // no ABORT; no APPLIED, or APPLIED and no HOOKED
  std::optional<RefitId> newest;         // the highest refit_id seen in any record
  std::optional<wire::Cause> reseed;     // RESEED with no APPLIED behind it
  auto operator<=>(const StateFold&) const = default;
};

// `hooks`: an APPLIED refit without HOOKED is kept (after_apply is configured).
StateFold fold_state(std::span<const StateRecord> records, bool hooks);
// The fewest records with the same fold, for RecordLog::rewrite().
std::vector<StateRecord> compact_state(std::span<const StateRecord> records, bool hooks);

// What the roof has looked up before the role starts.
struct StateEvidence {
  Status log_readable;             // error: the state log cannot be read
  bool files_as_recorded = false;  // every FileIdentity and the boot id equal those of `applied`
  bool files_resized = false;      // a weight file is missing or not of the size in `applied`
  bool boot_changed = false;       // kernel boot id differs from that of `applied`
};

// The table of commit-and-apply.md "Agent's durable state", one row per value.
enum class StartRow : std::uint8_t {
  kNone = 1,       // version unknown: compute the table
  kClean = 2,      // APPLIED or ABORT, files as recorded
  kVerify = 3,     // APPLIED or ABORT, files not as recorded: compute the table first
  kBegun = 4,      // BEGIN: rejoin or forget
  kPrepared = 5,   // PREPARED: serve the base and ask
  kCommitted = 6,  // COMMIT: apply the journal from its start
  kReseed = 7,     // RESEED, or state that cannot be trusted
};

// Where an agent starts. `front` is the refit of the row (kBegun to kCommitted); `behind` is a
// later one that was spooled while `front` was still applied.
struct AgentRecovery {
  StartRow row = StartRow::kNone;
  FleetId fleet;
  Epoch epoch;
  Content content;  // of the last APPLIED; version 0: unknown
  BootId boot;
  std::vector<FileIdentity> files;
  bool verify_first = false;   // the table must be computed before the files are called `content`
  bool check_written = false;  // kCommitted: hash every chunk that the journal wrote
  std::optional<FoldedRefit> front;
  std::optional<FoldedRefit> behind;
  std::vector<RefitId> hooks_due;  // COMMIT and APPLIED without HOOKED, oldest first
  std::optional<RefitId> newest;
  std::optional<wire::Cause> cause;  // of kReseed
  bool record_cause = false;         // kReseed: no RESEED record stands in the log yet
  auto operator<=>(const AgentRecovery&) const = default;
};

AgentRecovery recover_agent(const StateFold& fold, const StateEvidence& evidence);

}  // namespace weft::apply
