// SPDX-License-Identifier: Apache-2.0
// What goes into and comes out of ProducerRole. The roof turns every completion into an event and
// carries out every action, in the order given; exactly one completion per action that names one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "apply/commit/commit_ids.hpp"
#include "apply/commit/producer_log.hpp"
#include "weft/base/clock.hpp"
#include "weft/base/error.hpp"
#include "weft/base/event_sink.hpp"
#include "weft/base/ids.hpp"
#include "weft/base/result.hpp"
#include "weft/wire/manifest.hpp"
#include "weft/wire/messages.hpp"

namespace weft::apply {

namespace producer {

// --- events ---

// Once, first.
struct Start {};

// At least every 100 ms.
struct Tick {};

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

// Move the fleet to a new version. One at a time: another one while one runs is answered kBusy.
struct Publish {
  std::uint64_t request = 0;  // random and new; its retries count on from it
  Version target_version;
  std::string shape;  // empty: the coordinator's
  std::uint64_t model_bytes = 0;
  bool full = false;
  std::uint32_t retries = 1;
  Duration busy_timeout{};                             // how long another open refit is waited for
  Duration begin_timeout = std::chrono::seconds(60);   // until the plan
  Duration commit_timeout = std::chrono::minutes(10);  // from the seal until the decision
};
// The caller gives up. Before the seal was reported the attempt ends; after it the answer is still
// waited for.
struct Cancel {
  Error error;
};

// Completions of AppendRecord.
struct LogSynced {
  LogToken token;
};
struct LogFailed {
  LogToken token;
  Error error;
};

// Completions of StartEncode. Encoded: every frame has been injected and is kept, the new values
// are pending and durable (where the baseline is).
struct Encoded {
  RefitId refit;
  wire::ProducerSeal seal;
};
struct EncodeFailed {
  RefitId refit;
  Error error;
};
struct EncodeProgressed {
  RefitId refit;
  std::uint64_t frames = 0;
  std::uint64_t bytes = 0;
};
struct LinkLost {
  RefitId refit;
  std::string member_id;
};

// Completions of MoveBaseline. Failed: the pending values stay and PublishDone gives the error; it
// is tried again at intervals.
struct BaselineMoved {
  RefitId refit;
};
struct BaselineFailed {
  RefitId refit;
  Error error;
};
// Completion of DropPending.
struct PendingDropped {
  RefitId refit;
};

// Completion of ComputeTargetPart. An error: the target is not at hand (kUnsupported), ...
struct TargetPart {
  Result<Digest> part;
};

}  // namespace producer

using ProducerEvent =
    std::variant<producer::Start, producer::Tick, producer::SessionOpened, producer::SessionClosed,
                 producer::CoordinatorSaid, producer::Publish, producer::Cancel,
                 producer::LogSynced, producer::LogFailed, producer::Encoded,
                 producer::EncodeFailed, producer::EncodeProgressed, producer::LinkLost,
                 producer::BaselineMoved, producer::BaselineFailed, producer::PendingDropped,
                 producer::TargetPart>;

namespace producer {

// --- actions ---

struct Send {
  SessionId session;
  wire::MemberMessage message;
};
// Close the connection and make a new one, with back-off.
struct CloseSession {
  SessionId session;
  Error reason;
};

// Append to the producer's state file and sync; then LogSynced or LogFailed, in the order of the
// actions. A producer without durable state (two checkpoints on disk) answers LogSynced at once.
struct AppendRecord {
  LogToken token;
  ProducerRecord record;
};

// Enter the plan's trees; scan, encode and inject everything; keep every frame until DropPending or
// MoveBaseline for this refit; keep the new values beside the baseline, durable where the baseline
// is, and do not touch the baseline. Then Encoded or EncodeFailed.
struct StartEncode {
  wire::Plan plan;
};
// The trees have changed (higher revision). No completion.
struct UpdatePlan {
  wire::Plan plan;
};

// COMMIT: leave the trees, release the frames, move the pending values into the baseline
// (idempotent). Then BaselineMoved or BaselineFailed.
struct MoveBaseline {
  RefitId refit;
  Content content;
};
// ABORT: stop encoding (no completion of StartEncode is needed any more), leave the trees, release
// the frames, delete the pending values. Then PendingDropped.
struct DropPending {
  RefitId refit;
};

// The target version is the committed one: compute the part digest of the target, if it is at hand.
// Then TargetPart.
struct ComputeTargetPart {};

// The answer to a Publish. `status`: ok when the version is committed (`already`: it was before).
// kInDoubt: no decision by the deadline; the pending values stay and the next Publish asks first.
struct PublishDone {
  std::uint64_t request = 0;
  Status status;
  bool already = false;
  std::uint32_t attempts = 1;
  Content content;                            // the baseline now
  std::optional<wire::RefitOutcome> outcome;  // of the last attempt
};
// Members go on acknowledging after PublishDone; `outcome.settled` is set in the last of these.
struct ShowOutcome {
  wire::RefitOutcome outcome;
};

struct Note {
  Severity severity = Severity::kInfo;
  const char* name = "";
  std::string detail;
};

struct Stop {
  Error error;
};

}  // namespace producer

using ProducerAction =
    std::variant<producer::Send, producer::CloseSession, producer::AppendRecord,
                 producer::StartEncode, producer::UpdatePlan, producer::MoveBaseline,
                 producer::DropPending, producer::ComputeTargetPart, producer::PublishDone,
                 producer::ShowOutcome, producer::Note, producer::Stop>;

}  // namespace weft::apply
