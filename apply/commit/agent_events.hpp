// SPDX-License-Identifier: Apache-2.0
// What goes into and comes out of AgentRole. The roof turns every completion into an event and
// carries out every action, in the order given.
//
// What carrying out means, for all actions: exactly one completion event per action that names one
// (never zero, never two), unless the process ends; completions of different actions may come in
// any order. Work may run on any thread; events are given to step() one at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "apply/commit/commit_ids.hpp"
#include "apply/commit/state_log.hpp"
#include "weft/base/clock.hpp"
#include "weft/base/error.hpp"
#include "weft/base/event_sink.hpp"
#include "weft/base/ids.hpp"
#include "weft/wire/manifest.hpp"
#include "weft/wire/messages.hpp"

namespace weft::apply {

namespace agent {

// --- events ---

// Once, first. `schema` is that of the weight files.
struct Start {
  Digest schema;
};

// At least every 100 ms.
struct Tick {};

// A control connection to the coordinator is up; nothing was said on it yet.
struct SessionOpened {
  SessionId session;
};
struct SessionClosed {
  SessionId session;
};
struct CoordinatorSaid {
  SessionId session;
  wire::CoordinatorMessage message;
};

// Completions of AppendRecord. LogFailed: the record may or may not be durable, and the log takes
// no more records until a Probe succeeds.
struct LogSynced {
  LogToken token;
};
struct LogFailed {
  LogToken token;
  Error error;
};

// Completions of ComputeTable. The stamps were taken before the first read and were the same after
// the last.
struct TableComputed {
  Digest lattice;
  Digest root;
  BootId boot;
  std::vector<FileIdentity> files;
};
struct TableFailed {
  Error error;
};

// Completions of OpenRefit.
struct RefitOpened {
  RefitId refit;
};
// Also at any later time before Prove completes: a frame does not decode (kBaseMismatch,
// kCorruptPayload, kPayloadConflict), spool or journal cannot be written (kNoSpace, kIoFailed), ...
struct RefitFailed {
  RefitId refit;
  Error error;
};
// Frames received and resolved so far. Whenever it suits; the role limits what it tells.
struct RefitProgressed {
  RefitId refit;
  std::uint64_t frames = 0;
  std::uint64_t bytes = 0;
};
// A link of this refit's trees was declared lost.
struct LinkLost {
  RefitId refit;
  std::string member_id;
};

// Completions of Prove.
struct Proved {
  RefitId refit;
};
struct ProveFailed {
  RefitId refit;
  Error error;
};

// Completions of ApplyJournal. Applied: every byte is written and synced (durability "disk"), the
// digest table of the target is the current one, readers have been told.
struct Applied {
  RefitId refit;
  BootId boot;
  std::vector<FileIdentity> files;
};
// kNoSpace, kBusy, kTimeout, kResourceLimit: nothing is lost, it is tried again. Any other code:
// the files cannot be trusted, the node needs a reseed. `untouched`: not one byte was written (a
// reader held the lock until apply.lock_timeout): the node is lagging, and what it serves is whole;
// not ready any more when before_apply has failed for hook.give_up.
struct ApplyFailed {
  RefitId refit;
  Error error;
  bool untouched = false;
  bool by_hook = false;  // before_apply failed: an apply that may not begin yet
};

// Completion of ForgetRefit: nothing runs for the refit any more, spool and journal are deleted (a
// failure to delete is logged and counts as done: the next start removes what no record names).
struct RefitForgotten {
  RefitId refit;
};

// Completion of CallAfterApply.
struct HookDone {
  RefitId refit;
  Status status;
};

// Completion of Probe.
struct Probed {
  Status status;
};

// An anchor has been received: the files are this content, synced.
struct Reseeded {
  Content content;
  BootId boot;
  std::vector<FileIdentity> files;
};

// The files changed under us, or a scrub found a chunk that is not the table's.
struct WeightsDamaged {
  Error error;
};

}  // namespace agent

using AgentEvent =
    std::variant<agent::Start, agent::Tick, agent::SessionOpened, agent::SessionClosed,
                 agent::CoordinatorSaid, agent::LogSynced, agent::LogFailed, agent::TableComputed,
                 agent::TableFailed, agent::RefitOpened, agent::RefitFailed, agent::RefitProgressed,
                 agent::LinkLost, agent::Proved, agent::ProveFailed, agent::Applied,
                 agent::ApplyFailed, agent::RefitForgotten, agent::HookDone, agent::Probed,
                 agent::Reseeded, agent::WeightsDamaged>;

namespace agent {

// --- actions ---

// To the coordinator on this session; if it is closed by now the message is dropped.
struct Send {
  SessionId session;
  wire::MemberMessage message;
};

// Close the connection and make a new one, with back-off. SessionClosed may or may not follow.
struct CloseSession {
  SessionId session;
  Error reason;
};

// Append to the state log and sync. Then LogSynced or LogFailed; in the order of the actions.
struct AppendRecord {
  LogToken token;
  StateRecord record;
};

// Compute the digest table of the weight files under this lattice (zero: the default lattice of
// their schema), reading every byte; keep it as the current one. Then TableComputed or TableFailed
// (kUnsupported: the lattice's body is not known here).
struct ComputeTable {
  Digest lattice;
};

// Make (or, after a restart, reopen: keep the spooled frames that check) the spool and journal of
// the plan's refit, enter its trees and grant credits; then RefitOpened or RefitFailed. Frames are
// relayed and spooled from then on; they are resolved only when `resolve` is set, else from
// StartResolve on (the weights are not the plan's base yet).
struct OpenRefit {
  wire::Plan plan;
  bool resolve = true;
};
struct StartResolve {
  RefitId refit;
};
// The trees have changed (higher revision): take the new place. No completion.
struct UpdatePlan {
  wire::Plan plan;
};

// 1. Wait until every frame of the manifest is held and resolved (what is missing is requested from
//    holders); check frame counts and the digests of frame checksums against the manifest.
// 2. Open every weight file that will be written, for writing, and keep it open.
// 3. Check that the table with the new chunk digests folds to the manifest's target root.
// 4. Sync spool, journal and new table, and the directories they stand in.
// Not one weight byte is written. Then Proved or ProveFailed, by `deadline` (kTimeout: what is
// missing). The refit stays open and relays either way.
struct Prove {
  wire::Manifest manifest;
  TimePoint deadline;
};

// The COMMIT record is durable. Take the readers' lock, write the journal into the weight files
// from its start (idempotent), tell readers, sync the data; `check_written`: afterwards hash every
// chunk that was written against the new table. Then Applied or ApplyFailed.
struct ApplyJournal {
  RefitId refit;
  Content target;
  bool check_written = false;
  bool restarted = false;  // another process may have begun to apply it
};

// Stop whatever runs for the refit (streams, resolver, Prove), leave its trees, delete spool and
// journal. Works for a refit that was never opened in this process. Then RefitForgotten.
struct ForgetRefit {
  RefitId refit;
};
// The refit is applied: leave its trees, keep spool and journal as the newest retained ones and
// delete what is beyond `retain_refits`. No completion.
struct RetireRefit {
  RefitId refit;
};

// Call the after_apply hook. Then HookDone. Failing for hook.give_up makes the node not ready.
struct CallAfterApply {
  RefitId refit;
  Content content;
};

// Try whether the node is able again: free space for spool and journal, and a state log that takes
// records (if it is closed for writing: open it again and rewrite it with compact_state()). Then
// Probed.
struct Probe {
  wire::Cause cause;
};

// What the node is now: for status, /readyz, metrics and the readers' page. Given when it changes.
struct ShowState {
  wire::MemberState state = wire::MemberState::kStarting;
  std::optional<wire::Cause> cause;
  Content content;    // durable; version 0: unknown
  Content committed;  // the fleet's, as far as known
  bool ready = false;
};

// One log line and counter. `name` is a literal.
struct Note {
  Severity severity = Severity::kInfo;
  const char* name = "";
  std::string detail;
};

// End the process with this error: going on would be wrong.
struct Stop {
  Error error;
};

}  // namespace agent

using AgentAction =
    std::variant<agent::Send, agent::CloseSession, agent::AppendRecord, agent::ComputeTable,
                 agent::OpenRefit, agent::StartResolve, agent::UpdatePlan, agent::Prove,
                 agent::ApplyJournal, agent::ForgetRefit, agent::RetireRefit, agent::CallAfterApply,
                 agent::Probe, agent::ShowState, agent::Note, agent::Stop>;

}  // namespace weft::apply
