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
  std::string shape = "kary(2)";     // when a Begin names none
  bool replan = false;               // re-parenting: a lost relay or a rejoin gives new trees
  bool leaf_while_applying = false;  // members that still apply the base take part as leaves
  Duration member_lost_after = std::chrono::seconds(3);  // without a message
  Duration heartbeat_period = std::chrono::seconds(1);
  Duration begin_timeout = std::chrono::seconds(30);   // for the other producers' Begin
  Duration settle_timeout = std::chrono::seconds(30);  // for members that start, apply or clean up
  Duration rehash_timeout = std::chrono::minutes(10);
  Duration stall_timeout = std::chrono::seconds(60);  // streaming without any progress
  Duration prepare_timeout = std::chrono::seconds(60);
  Duration repeat_period = std::chrono::seconds(1);  // of what was not answered
  std::uint32_t decided_max = 1024;  // decisions remembered behind the last that someone waits for
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
    std::optional<wire::Cause> excluded;  // left out of plans until it says it is clean
    std::optional<RefitId> aborting;      // voted in this aborted refit, has not acknowledged yet
  };
  enum class Phase : std::uint8_t {
    kGathering,  // not all producers have called begin
    kFounding,   // a fresh fleet's first base, or the base under a new lattice, is being synced
    kRehashing,  // members compute their tables under the new lattice
    kSettling,   // members start, apply or clean up
    kStreaming,
    kPreparing,
    kDeciding,  // the decision is being synced
  };
  struct Slot {  // one producer of the open refit
    std::string member_id;
    ProcessId process;
    wire::Begin begin;
    std::optional<wire::ProducerSeal> seal;
  };
  struct Planned {  // one agent of the open refit
    ProcessId process;
    bool lost = false;
    bool late_leaf = false;  // was still applying the base when planned
    std::optional<bool> vote;
    std::optional<wire::Cause> cause;
    std::uint64_t frames = 0;
    TimePoint repeat_at;
  };
  struct Open {
    RefitId refit;
    Phase phase = Phase::kGathering;
    TimePoint begun_at;
    TimePoint deadline;
    TimePoint progress_at;
    Content base;
    Version target_version;
    std::map<std::uint32_t, Slot> slots;  // by producer index
    std::uint32_t producer_count = 1;
    bool founding_written = false;
    std::map<std::string, Planned> planned;
    wire::Plan plan;
    wire::Manifest manifest;
    wire::Verdict verdict = wire::Verdict::kUndecided;
    std::optional<wire::Cause> cause;
    TimePoint last_yes_at;
    std::uint64_t prepare_ns = 0;
  };
  struct Decided {
    DecisionRecord decision;
    std::set<std::string> waiting;  // have not acknowledged
    std::set<std::string> failed;   // acknowledged that they could not
    std::map<std::string, TimePoint> repeat_at;
    std::map<std::string, std::uint32_t> producers;
    wire::RefitOutcome outcome;
    bool settled = false;
  };
  enum class Purpose : std::uint8_t { kStart, kContent, kDecision, kResolve };
  struct PendingLog {
    LogToken token;
    Purpose purpose = Purpose::kStart;
    RefitId refit;
    Content content;
    std::uint64_t request = 0;
  };

  // coordinator_role.cpp: dispatch, log
  void on(const coordinator::Start& event);
  void on(const coordinator::Tick& event);
  void on(const coordinator::MemberSaid& event);
  void on(const coordinator::SessionClosed& event);
  void on(const coordinator::LogSynced& event);
  void on(const coordinator::LogFailed& event);
  void on(const coordinator::OperatorResolve& event);
  LogToken append(CoordinatorRecord record, bool sync);
  void stop(Error error);
  void note(Severity severity, const char* name, std::string detail);

  // coordinator_members.cpp: who is there
  void said(SessionId session, const wire::Hello& hello);
  bool admit(SessionId session, const wire::Hello& hello);
  void welcome(Member& member);
  void catch_up(Member& member);
  void superseded(const std::string& member_id);
  void lose(Member& member);
  void tick_members();
  Member* member_of(SessionId session);
  void send(Member& member, wire::CoordinatorMessage message);
  void broadcast_committed();

  // coordinator_begin.cpp: from begin to plan
  void said(Member& member, const wire::Begin& begin);
  void said(Member& member, const wire::AbortRequest& request);
  std::optional<wire::BeginRefused> judge(const wire::Begin& begin) const;
  void gather(Member& member, const wire::Begin& begin);
  void gathered();
  void settle();
  void found();
  void plan();
  bool settled() const;
  bool rehashed();
  bool plannable(const Member& member) const;
  bool applying_base(const Member& member) const;
  void refuse_all(wire::Cause cause, bool already_committed);
  void refuse(Member& member, const wire::Begin& begin, wire::Cause cause, bool already_committed);
  Status make_plan(const std::set<std::string>& leaf_only);
  void send_plan(const std::string& member_id);

  // coordinator_vote.cpp: from the stream to the decision
  void said(Member& member, const wire::SealReport& report);
  void said(Member& member, const wire::Progress& progress);
  void said(Member& member, const wire::Vote& vote);
  void seal();
  void evict(const std::string& member_id, const std::string& why);
  void rejoin(Member& member);
  void count_votes(bool deadline);
  void decide(wire::Verdict verdict, std::optional<wire::Cause> cause);
  void decided();
  void tick_open();
  bool is_interior(const std::string& member_id) const;
  bool is_producer(const std::string& member_id) const;
  void repeat_open();

  // coordinator_decided.cpp: telling it
  void said(Member& member, const wire::Ack& ack);
  void said(Member& member, const wire::DecisionQuery& query);
  void answer(Member& member, const wire::PreparedRefit& prepared);
  void tell(Decided& entry, Member& member);
  void acknowledged(Decided& entry, const std::string& member_id, bool could);
  void forget_settled();
  void tick_decided();
  void report_outcome(Decided& entry);

  CoordinatorOptions options_;
  DecisionFold fold_;
  TreePlanner planner_;
  TimePoint now_{};
  std::vector<CoordinatorAction> out_;

  bool serving_ = false;
  bool stopped_ = false;
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
