// SPDX-License-Identifier: Apache-2.0
// The coordinator's side of a refit, as a pure step machine.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "apply/commit/coordinator_events.hpp"
#include "apply/commit/decision_log.hpp"
#include "apply/commit/fleet_view.hpp"
#include "apply/commit/tree_planner.hpp"
#include "weft/base/clock.hpp"
#include "weft/wire/messages.hpp"

namespace weft::apply {

struct CoordinatorOptions {
  double quorum = 1.0;        // YES / (planned - lost), at least
  double min_fraction = 0.5;  // YES / planned, at least
  std::uint32_t members_min = 1;
  std::uint32_t members_expected = 0;  // a begin waits for so many, up to settle_timeout
  std::string shape = "kary(2)";       // when a Begin names none
  std::uint32_t trees_open_max = 8;    // an agent's at once; more producers take turns
  bool replan = true;                  // re-parenting: a lost relay or a rejoin gives new trees
  bool leaf_while_applying = false;    // members that still apply the base take part as leaves
  Duration member_lost_after = std::chrono::seconds(3);  // without a message
  Duration heartbeat_period = std::chrono::seconds(1);
  Duration start_grace = std::chrono::seconds(2);      // for members to come back after a start
  Duration begin_timeout = std::chrono::seconds(30);   // for the other producers' Begin
  Duration settle_timeout = std::chrono::seconds(30);  // for members that start, apply or clean up
  Duration rehash_timeout = std::chrono::minutes(10);
  Duration stall_timeout = std::chrono::seconds(60);  // streaming without any progress
  Duration prepare_timeout = std::chrono::seconds(60);
  Duration repeat_period = std::chrono::seconds(1);  // of what was not answered
  std::uint32_t decided_max = 1024;                  // decisions remembered
};

// 1. Start: rewrites the log with a START of a higher epoch, then serves.
// 2. Members say Hello, get Welcome, say Hello again with our epoch: from then on they take part.
// 3. begin -> settle (rehash) -> plan, stream -> seal, prepare -> decide -> tell until
// acknowledged. Invariant: at most one refit is undecided; a decision is told only after LogSynced
// for it; nothing
//            is sent after Stop.
// Threads:   one at a time.
// Limits:    kMembersMax members; `decided_max` decisions.
class CoordinatorRole {
 public:
  // `new_fleet` is used when the log is empty. `planner` must be pure.
  CoordinatorRole(CoordinatorOptions options, DecisionFold fold, ProcessId process,
                  FleetId new_fleet, TreePlanner planner);

  std::vector<CoordinatorAction> step(const CoordinatorEvent& event, TimePoint now);

  FleetView view() const;
  const Content& committed() const { return committed_; }

 private:
  struct Member {
    std::string id;
    wire::Hello hello;  // the last one
    SessionId session;  // 0: none
    bool in = false;    // has stored our epoch
    bool lost = false;  // silent for too long
    TimePoint heard_at;
    TimePoint sent_at;
    std::optional<wire::ScrubReport> scrub;
    TimePoint scrub_at;                   // when it was told
    std::optional<wire::Cause> excluded;  // left out of plans until it says it is clean
  };
  enum class Phase : std::uint8_t {
    kGathering,  // not all producers have called begin
    kSettling,   // members start, apply or clean up
    kRehashing,  // members compute their tables under the new lattice
    kFounding,   // the base becomes the committed content: a fresh fleet's first, or a new lattice
    kStreaming,
    kPreparing,
    kDeciding,  // the decision is being synced
  };
  struct Slot {  // one producer of the open refit
    std::string member_id;
    ProcessId process;
    wire::Begin begin;
    std::optional<wire::ProducerSeal> seal;
    std::uint64_t frames = 0;
    TimePoint repeat_at;
  };
  struct Planned {  // one agent of the open refit
    ProcessId process;
    bool lost = false;
    bool late_leaf = false;  // was still applying the base when planned
    bool heard = false;      // has the plan
    std::optional<bool> vote;
    std::optional<wire::Cause> cause;
    std::uint64_t frames = 0;
    std::uint64_t bytes = 0;
    TimePoint repeat_at;
  };
  struct Open {
    RefitId refit;
    Phase phase = Phase::kGathering;
    TimePoint begun_at;
    TimePoint deadline;
    Content base;
    Version target_version;
    std::map<std::uint32_t, Slot> slots;  // by producer index
    std::uint32_t producer_count = 1;
    bool rehash_done = false;
    TimePoint repeat_at;  // of Rehash
    std::map<std::string, Planned> planned;
    wire::Plan plan;
    wire::Manifest manifest;
    wire::Verdict verdict = wire::Verdict::kUndecided;
    std::optional<wire::Cause> cause;
    std::uint64_t prepare_ns = 0;
  };
  struct Decided {
    DecisionRecord decision;
    std::set<std::string> waiting;  // have not acknowledged
    std::map<std::string, TimePoint> repeat_at;
    std::set<std::string> producers;
    wire::RefitOutcome outcome;
    bool settled = false;  // nobody who is there is waited for
  };
  struct Tally {
    std::uint32_t planned = 0;
    std::uint32_t lost = 0;
    std::uint32_t yes = 0;
    std::uint32_t no = 0;
    std::uint32_t late = 0;  // of the silent: leaves that were still catching up
    std::uint32_t silent() const { return planned - lost - yes - no; }
  };
  enum class Purpose : std::uint8_t { kStart, kContent, kDecision };
  struct PendingLog {
    LogToken token;
    Purpose purpose = Purpose::kStart;
  };

  // coordinator_role.cpp: dispatch, log
  void on(const coordinator::Start& event);
  void on(const coordinator::Tick& event);
  void on(const coordinator::MemberSaid& event);
  void on(const coordinator::SessionClosed& event);
  void on(const coordinator::LogSynced& event);
  void on(const coordinator::LogFailed& event);
  void on(const coordinator::OperatorResolve& event);
  void append(Purpose purpose, CoordinatorRecord record);
  void append_unsynced(CoordinatorRecord record);
  void stop(Error error);
  void note(Severity severity, const char* name, std::string detail);

  // coordinator_members.cpp: who is there
  void greet(SessionId session, const wire::Hello& hello);
  std::optional<wire::Cause> refusal(SessionId session, const wire::Hello& hello) const;
  std::optional<Error> outdated(const wire::Hello& hello) const;
  void catch_up(Member& member, bool new_session);
  void lose(const std::string& member_id, const std::string& why);
  void tick_members();
  Member* member_of(SessionId session);
  Member* find_member(const std::string& member_id);
  bool is_live(const Member& member) const;
  void send(Member& member, wire::CoordinatorMessage message);
  void broadcast_committed();

  // coordinator_begin.cpp: from begin to plan
  void said(Member& member, const wire::Begin& begin);
  void said(Member& member, const wire::AbortRequest& request);
  std::optional<wire::Cause> objection(const wire::Begin& begin) const;
  bool joins(const wire::Begin& begin) const;
  void gather(Member& member, const wire::Begin& begin);
  void gathered();
  void judge_again();
  void refuse(Member& member, std::uint64_t request, wire::Cause cause, bool already);
  void refuse_all(const wire::Cause& cause, bool already);
  std::vector<Digest> parts(bool of_target) const;

  // coordinator_plan.cpp: which members take part, and the trees over them
  void advance();
  bool settled() const;
  bool rehashed() const;
  bool needs_rehash(const Member& member) const;
  void rehash();
  void found();
  void plan();
  bool plannable(const Member& member) const;
  bool applying_base(const Member& member) const;
  std::string why_nobody() const;
  Status make_plan(const std::set<std::string>& leaves);
  void send_plan(Member& member);

  // coordinator_vote.cpp: from the stream to the decision
  void said(Member& member, const wire::SealReport& report);
  void said(Member& member, const wire::Progress& progress);
  void said(Member& member, const wire::Vote& vote);
  void seal();
  std::optional<wire::Cause> seal_objection() const;
  void evict(const std::string& member_id, const std::string& why);
  void rejoin(Member& member);
  void replan();
  Tally tally(bool deadline) const;
  void count_votes(bool deadline);
  wire::Cause abort_cause() const;
  void decide(wire::Verdict verdict, std::optional<wire::Cause> cause);
  void decided();
  void exclude_absent();
  void tick_open();
  void repeat_open();
  bool is_interior(const std::string& member_id) const;
  bool cuts_off(const std::string& member_id) const;
  Slot* slot_of(const std::string& member_id);

  // coordinator_decided.cpp: telling it
  void said(Member& member, const wire::Ack& ack);
  void said(Member& member, const wire::DecisionQuery& query);
  void said(Member& member, const wire::Heartbeat& heartbeat);
  void said(Member& member, const wire::Hello& hello);
  void answer(Member& member, const wire::PreparedRefit& prepared);
  void tell(Decided& entry, Member& member);
  void acknowledged(Decided& entry, const std::string& member_id, bool could);
  void settle_decided(Decided& entry);
  void trim_decided();
  void tick_decided();
  void report_outcome(Decided& entry);
  Decided* find_decided(RefitId refit);

  CoordinatorOptions options_;
  DecisionFold fold_;
  TreePlanner planner_;
  TimePoint now_{};
  std::vector<CoordinatorAction> out_;

  bool serving_ = false;
  bool stopped_ = false;
  TimePoint served_at_{};
  FleetId fleet_;
  Epoch epoch_;
  Content committed_;
  std::uint32_t attempts_ = 0;
  std::uint64_t next_token_ = 1;

  std::map<std::string, Member> members_;
  std::map<std::uint64_t, std::string> sessions_;  // SessionId -> member
  std::optional<Open> open_;
  std::vector<PendingLog> pending_;
  std::deque<Decided> decided_;  // oldest first
};

}  // namespace weft::apply
