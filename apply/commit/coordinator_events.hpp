// SPDX-License-Identifier: Apache-2.0
// What goes into and comes out of CoordinatorRole. The roof turns every completion into an event
// and carries out every action, in the order given; exactly one completion per action that names
// one.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "apply/commit/commit_ids.hpp"
#include "apply/commit/decision_log.hpp"
#include "weft/base/error.hpp"
#include "weft/base/event_sink.hpp"
#include "weft/base/ids.hpp"
#include "weft/base/result.hpp"
#include "weft/wire/messages.hpp"

namespace weft::apply {

namespace coordinator {

// --- events ---

// Once, first.
struct Start {};

// At least every 100 ms.
struct Tick {};

// A member's message on its connection. The first one of a session must be a Hello.
struct MemberSaid {
  SessionId session;
  wire::MemberMessage message;
};
struct SessionClosed {
  SessionId session;
};

// Completions of RewriteLog and of AppendRecord with `sync`. LogFailed: the record may or may not
// be durable.
struct LogSynced {
  LogToken token;
};
struct LogFailed {
  LogToken token;
  Error error;
};

// The operator's word on a refit that members report as PREPARED. Answered by OperatorAnswer.
struct OperatorResolve {
  std::uint64_t request = 0;
  RefitId refit;
  wire::Verdict verdict = wire::Verdict::kAbort;
};

}  // namespace coordinator

using CoordinatorEvent =
    std::variant<coordinator::Start, coordinator::Tick, coordinator::MemberSaid,
                 coordinator::SessionClosed, coordinator::LogSynced, coordinator::LogFailed,
                 coordinator::OperatorResolve>;

namespace coordinator {

// --- actions ---

// To the member on this session; if it is closed by now the message is dropped.
struct Send {
  SessionId session;
  wire::CoordinatorMessage message;
};

// After what was sent before it has gone out. SessionClosed may or may not follow.
struct CloseSession {
  SessionId session;
};

// Replace the whole log: new file, sync, rename, sync of the directory. Then LogSynced or
// LogFailed.
struct RewriteLog {
  LogToken token;
  std::vector<CoordinatorRecord> records;
};

// `sync`: then LogSynced or LogFailed, in the order of the actions. Without: no completion, and the
// record may be lost (a later synced record makes it durable too). When the log is half full the
// roof rewrites it with compact_decisions() of its fold before it appends.
struct AppendRecord {
  LogToken token;
  CoordinatorRecord record;
  bool sync = true;
};

// The log is ours and this start is recorded: accept members.
struct Serve {
  FleetId fleet;
  Epoch epoch;
  Content committed;
};

struct OperatorAnswer {
  std::uint64_t request = 0;
  Status status;
};

// One log line and counter. `name` is a literal.
struct Note {
  Severity severity = Severity::kInfo;
  const char* name = "";
  std::string detail;
};

// End the process with this error and tell nobody: a decision may or may not be durable, or a
// member knows more than our log. Nothing may be sent or written after it.
struct Stop {
  Error error;
};

}  // namespace coordinator

using CoordinatorAction =
    std::variant<coordinator::Send, coordinator::CloseSession, coordinator::RewriteLog,
                 coordinator::AppendRecord, coordinator::Serve, coordinator::OperatorAnswer,
                 coordinator::Note, coordinator::Stop>;

}  // namespace weft::apply
