// SPDX-License-Identifier: Apache-2.0
// The agent's side of a refit, as a pure step machine.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "apply/commit/agent_events.hpp"
#include "apply/commit/state_log.hpp"
#include "weft/base/clock.hpp"
#include "weft/wire/messages.hpp"

namespace weft::apply {

struct AgentOptions {
  wire::Endpoint endpoint;  // agent.id, this process, region, rails
  bool hooks = false;       // after_apply is configured
  bool in_place = true;     // readers are kept out while weights change
  std::uint64_t ready_lag_max = 1;
  Duration heartbeat_period = std::chrono::seconds(1);
  Duration coordinator_lost_after = std::chrono::seconds(5);
  Duration progress_period = std::chrono::milliseconds(200);
  Duration query_period = std::chrono::seconds(1);     // asks for a decision it waits for
  Duration in_doubt_after = std::chrono::seconds(30);  // PREPARED that long: not ready
  Duration retry_period = std::chrono::seconds(2);     // apply, hook, probe; doubled up to 16 times
};

// A life: Start (carries out the row of the recovery) -> sessions come and go -> per refit
// BEGIN -> open -> prove -> PREPARED, vote -> decision -> COMMIT, apply, APPLIED or ABORT, forget.
// Invariant: no ApplyJournal before a LogSynced for its COMMIT record; no YES before a LogSynced
// for
//            its PREPARED record; `content` changes only with a LogSynced for an APPLIED record.
// Threads:   one at a time.
// Limits:    two refits at once: one being applied and the next being spooled.
class AgentRole {
 public:
  AgentRole(AgentOptions options, AgentRecovery recovery);

  std::vector<AgentAction> step(const AgentEvent& event, TimePoint now);

  const Content& content() const { return content_; }
  wire::MemberState state() const;

 private:
  enum class Phase : std::uint8_t {
    kRestored,           // BEGIN of an earlier process: waits for a plan or for its end
    kRecordingBegin,     // BEGIN is being synced
    kOpening,            // OpenRefit runs
    kStreaming,          // frames arrive
    kProving,            // Prove runs
    kRefused,            // has voted NO
    kRecordingPrepared,  // PREPARED is being synced
    kPrepared,           // has voted YES: waits for the decision, never decides alone
    kRecordingCommit,    // COMMIT is being synced
    kApplying,           // ApplyJournal runs, or waits to be tried again
    kRecordingApplied,   // APPLIED is being synced
    kRecordingAbort,     // ABORT is being synced
    kForgetting,         // ForgetRefit runs
  };
  struct Refit {
    RefitId id;
    Phase phase = Phase::kRecordingBegin;
    Content base;
    Version target_version;
    Content target;  // of the manifest
    Digest manifest_digest;
    std::optional<wire::Plan> plan;
    std::optional<wire::Manifest> manifest;
    std::optional<Content> commit;  // decided, cannot be acted on yet
    std::optional<wire::Cause> refusal;
    bool held = false;  // spooled only: the base is still being applied
    bool left_out = false;
    bool check_written = false;
    TimePoint prove_deadline;
    TimePoint query_at;
    TimePoint prepared_at;
    bool restarted = false;
    std::optional<TimePoint> retry_at;
    int retries = 0;
    std::vector<FileStamp> files;  // of the apply, for APPLIED
    BootId boot;
  };
  enum class Purpose : std::uint8_t {
    kEpoch,
    kBegin,
    kPrepared,
    kCommit,
    kApplied,
    kAbort,
    kContent,
    kHooked,
    kReseed
  };
  struct Pending {
    LogToken token;
    Purpose purpose = Purpose::kEpoch;
    RefitId refit;
  };
  struct Hook {
    RefitId refit;
    std::optional<TimePoint> retry_at;
    bool running = false;
    int retries = 0;
  };
  struct Session {
    SessionId id;
    bool accepted = false;  // its epoch is stored
    Epoch epoch;            // of its Welcome
    FleetId fleet;
    TimePoint heard_at;
    TimePoint sent_at;
  };

  // agent_role.cpp: dispatch, records, state
  void on(const agent::Start& event);
  void on(const agent::Tick& event);
  void on(const agent::LogSynced& event);
  void on(const agent::LogFailed& event);
  void on(const agent::TableComputed& event);
  void on(const agent::TableFailed& event);
  void on(const agent::Probed& event);
  void on(const agent::Reseeded& event);
  void on(const agent::WeightsDamaged& event);
  void append(Purpose purpose, RefitId refit, StateRecord record);
  std::optional<Pending> take_pending(LogToken token);
  void resume_records();
  void need_reseed(wire::Cause cause);
  void adopt(const Content& content);
  void compare_with_committed();
  void learn_committed(const Content& committed);
  void show();
  bool ready() const;
  std::optional<wire::Cause> cause() const;
  void note(Severity severity, const char* name, std::string detail);

  // agent_session.cpp: the coordinator
  void on(const agent::SessionOpened& event);
  void on(const agent::SessionClosed& event);
  void on(const agent::CoordinatorSaid& event);
  void heard(const wire::Welcome& message);
  void heard(const wire::Rehash& message);
  void heard(const wire::Plan& message);
  void heard(const wire::Seal& message);
  void heard(const wire::Decision& message);
  void heard(const wire::SessionRefused& message);
  void say(wire::MemberMessage message);
  void say_hello();
  void say_vote(const Refit& refit);
  void tick_session();

  // agent_refit.cpp: one refit until its vote
  void on(const agent::RefitOpened& event);
  void on(const agent::RefitFailed& event);
  void on(const agent::RefitProgressed& event);
  void on(const agent::LinkLost& event);
  void on(const agent::Proved& event);
  void on(const agent::ProveFailed& event);
  void begin(const wire::Plan& plan);
  void open(Refit& refit);
  void prove(Refit& refit);
  void refuse(Refit& refit, const Error& error);

  // agent_apply.cpp: one refit from its decision
  void on(const agent::Applied& event);
  void on(const agent::ApplyFailed& event);
  void on(const agent::RefitForgotten& event);
  void on(const agent::HookDone& event);
  void commit(Refit& refit, const Content& target);
  void abort(Refit& refit, bool left_out);
  void apply(Refit& refit);
  void record_applied(Refit& refit);
  void finish_applied(Refit& refit);
  void drop(RefitId id);
  void acknowledge(RefitId refit, std::optional<wire::Cause> cause);
  void call_hooks();
  void tick_refits();
  Duration back_off(int retries) const;

  Refit* find(RefitId id);

  AgentOptions options_;
  AgentRecovery recovery_;
  TimePoint now_{};
  std::vector<AgentAction> out_;

  bool started_ = false;
  Digest schema_;
  FleetId fleet_;
  Epoch epoch_;
  Content content_;  // durable; version 0: unknown
  Content table_;    // what the current digest table says; version 0: not named yet
  BootId boot_;
  std::vector<FileStamp> files_;
  bool computing_ = false;
  Digest wanted_lattice_;     // of the table that is being computed
  bool verify_first_ = true;  // content_ is believed only after the table has been computed
  bool level_seen_ = false;   // has been at the committed version since the start
  Content committed_;
  std::optional<wire::Cause> reseed_;
  std::optional<wire::Cause> unable_;
  bool log_closed_ = false;
  bool probing_ = false;
  std::optional<TimePoint> probe_at_;
  int probes_ = 0;

  std::optional<Session> session_;
  std::optional<RefitId> newest_;
  std::deque<Refit> refits_;  // oldest first, at most two
  std::deque<Hook> hooks_;
  std::deque<Pending> pending_;
  std::uint64_t next_token_ = 1;
  std::optional<agent::ShowState> shown_;
  std::optional<wire::Hello> told_;
  TimePoint progress_at_{};
};

}  // namespace weft::apply
