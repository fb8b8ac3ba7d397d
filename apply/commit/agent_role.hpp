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
  Duration hook_give_up = std::chrono::minutes(10);  // a hook that fails that long: not ready
  Duration heartbeat_period = std::chrono::seconds(1);
  Duration hello_period = std::chrono::seconds(5);  // Hello again, though nothing has changed
  Duration coordinator_lost_after = std::chrono::seconds(5);
  Duration progress_period = std::chrono::milliseconds(200);
  Duration query_period = std::chrono::seconds(1);     // asks for a decision it waits for
  Duration in_doubt_after = std::chrono::seconds(30);  // PREPARED that long: not ready
  Duration retry_period = std::chrono::seconds(2);     // apply, hook, probe: doubled up to 32-fold
  Duration abandon_after = std::chrono::minutes(10);   // not voted, and no coordinator
};

// A life: Start (carries out the row of the recovery) -> sessions come and go -> per refit
// BEGIN -> open -> prove -> PREPARED, vote -> decision -> COMMIT, apply, APPLIED or ABORT, forget.
// Invariant: ApplyJournal comes after LogSynced for its COMMIT record, a YES after LogSynced for
// its
//            PREPARED record; `content` changes only with LogSynced for an APPLIED record.
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
    bool held = false;       // spooled only: the base is still being applied
    bool resolving = false;  // frames are resolved, not only spooled
    bool left_out = false;   // the fleet committed it without this node
    bool check_written = false;
    bool touched = false;                   // an attempt to apply may have written something
    bool untouched = false;                 // none has, and none runs
    std::optional<TimePoint> hook_failing;  // before_apply, since then
    TimePoint prove_deadline;
    TimePoint query_at;
    TimePoint prepared_at;
    bool restarted = false;
    std::optional<TimePoint> retry_at;
    int retries = 0;
    std::vector<FileIdentity> files;  // of the apply, for APPLIED
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
    std::optional<AppliedRecord> applied;  // of kContent
    std::optional<EpochRecord> epoch;      // of kEpoch
  };
  struct Hook {
    RefitId refit;
    std::optional<TimePoint> retry_at;
    bool running = false;
    int retries = 0;
    std::optional<TimePoint> failing{};  // since then
    std::optional<wire::Cause> cause{};
  };
  struct Session {
    SessionId id;
    bool accepted = false;  // its epoch is stored
    Epoch epoch;            // of its Welcome
    FleetId fleet;
    Content committed;
    TimePoint heard_at;
    TimePoint sent_at;
  };

  // agent_role.cpp: dispatch, the node's state
  void on(const agent::Start& event);
  void on(const agent::Tick& event);
  void on(const agent::Probed& event);
  void on(const agent::Reseeded& event);
  void on(const agent::WeightsDamaged& event);
  void need_reseed(const wire::Cause& cause);
  void be_unable(const Error& error);
  void show();
  bool ready() const;
  std::optional<wire::Cause> cause() const;
  void note(Severity severity, const char* name, std::string detail);
  Duration back_off(int retries) const;
  Refit* find(RefitId id);
  bool is_open(Phase phase) const;

  // agent_content.cpp: what the weight files are
  void on(const agent::TableComputed& event);
  void on(const agent::TableFailed& event);
  void compute_table(const Digest& lattice);
  void record_content(const Content& content);
  void learn_committed(const Content& committed);
  void compare_with_committed();

  // agent_records.cpp: the state log
  void on(const agent::LogSynced& event);
  void on(const agent::LogFailed& event);
  void append(Purpose purpose, RefitId refit, StateRecord record);
  void synced(const Pending& pending);
  void failed(const Pending& pending, const Error& error);
  bool is_pending(Purpose purpose, RefitId refit) const;
  void resume_records();

  // agent_session.cpp: the coordinator
  void on(const agent::SessionOpened& event);
  void on(const agent::SessionClosed& event);
  void on(const agent::CoordinatorSaid& event);
  template <typename Message>
  void heard(const Message& message);  // those that say nothing to an agent
  void heard(const wire::Welcome& message);
  void heard(const wire::Rehash& message);
  void heard(const wire::Plan& message);
  void heard(const wire::Seal& message);
  void heard(const wire::Decision& message);
  void heard(const wire::SessionRefused& message);
  void accept_session();
  void close_session(Error reason);
  void say(wire::MemberMessage message);
  void say_hello(bool always);
  wire::Hello hello() const;
  void tick_session();

  // agent_refit.cpp: one refit until its vote
  void on(const agent::RefitOpened& event);
  void on(const agent::RefitFailed& event);
  void on(const agent::RefitProgressed& event);
  void on(const agent::LinkLost& event);
  void on(const agent::Proved& event);
  void on(const agent::ProveFailed& event);
  bool may_begin(const wire::Plan& plan);
  void begin(const wire::Plan& plan);
  void known_plan(Refit& refit, const wire::Plan& plan);
  void open(Refit& refit);
  void prove(Refit& refit);
  void refuse(Refit& refit, const Error& error);  // may clear refits_
  void say_vote(const Refit& refit);

  // agent_apply.cpp: one refit from its decision
  void on(const agent::Applied& event);
  void on(const agent::ApplyFailed& event);
  void on(const agent::RefitForgotten& event);
  void on(const agent::HookDone& event);
  void decided_commit(Refit& refit, const Content& target);
  void decided_abort(Refit& refit, const Content& target);
  void commit(Refit& refit, const Content& target);
  void abort(Refit& refit, bool left_out);
  void apply(Refit& refit);
  void record_applied(Refit& refit);
  void finish_applied(RefitId id);
  void release_held();
  void acknowledge(RefitId refit, std::optional<wire::Cause> cause);
  void call_hooks();
  void tick_refits();
  bool has_failed_long(const std::optional<TimePoint>& since) const {
    return since && now_ - *since > options_.hook_give_up;
  }

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
  std::vector<FileIdentity> files_;
  bool computing_ = false;

  bool verify_first_ = true;  // content_ is believed only after the table has been computed
  bool level_seen_ = false;   // has been at the committed version since the start
  Content committed_;
  std::optional<wire::Cause> reseed_;
  bool reseed_recorded_ = false;
  std::optional<wire::Cause> unable_;
  bool log_closed_ = false;
  bool probing_ = false;
  std::optional<TimePoint> probe_at_;
  int probes_ = 0;

  std::optional<Session> session_;
  bool stopped_ = false;
  TimePoint accepted_at_{};  // a coordinator that we follow was last heard
  std::optional<RefitId> newest_;
  std::deque<Refit> refits_;  // oldest first, at most two
  std::deque<Hook> hooks_;
  std::deque<Pending> pending_;
  std::uint64_t next_token_ = 1;
  std::optional<agent::ShowState> shown_;
  std::optional<wire::Hello> told_;
  TimePoint hello_at_{};
  TimePoint progress_at_{};
};

}  // namespace weft::apply
