// SPDX-License-Identifier: Apache-2.0
// The producer's side of a refit, as a pure step machine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apply/commit/producer_events.hpp"
#include "apply/commit/producer_log.hpp"
#include "weft/base/clock.hpp"
#include "weft/wire/messages.hpp"

namespace weft::apply {

struct ProducerOptions {
  wire::Endpoint endpoint;  // the producer's name, this process, rails
  ProducerIndex producer;
  std::uint32_t producer_count = 1;
  Digest schema;
  Duration heartbeat_period = std::chrono::seconds(1);
  Duration hello_period = std::chrono::seconds(5);  // Hello again, though nothing has changed
  Duration coordinator_lost_after = std::chrono::seconds(5);
  Duration progress_period = std::chrono::milliseconds(200);
  Duration repeat_period = std::chrono::seconds(1);
  Duration ack_timeout = std::chrono::seconds(5);  // for AckReceived, before PublishDone
};

// Where a producer starts: its fold, or what the roof has computed from the base checkpoint.
struct ProducerRecovery {
  FleetId fleet;
  Epoch epoch;
  Content content;  // of the baseline
  Digest part;
  std::optional<PendingRecord> pending;
};

// A life: Publish -> begin -> encode -> seal -> decision -> baseline moved or pending dropped ->
// done. Invariant: MoveBaseline only after a COMMIT for that refit_id; DropPending after a reported
// seal
//            only after an ABORT for it.
// Threads:   one at a time.
class ProducerRole {
 public:
  ProducerRole(ProducerOptions options, ProducerRecovery recovery);

  std::vector<ProducerAction> step(const ProducerEvent& event, TimePoint now);

  const Content& content() const { return content_; }

 private:
  enum class Phase : std::uint8_t {
    kIdle,
    kBeginning,       // Begin is told until a plan comes
    kTargetPart,      // ComputeTargetPart runs
    kEncoding,        // StartEncode runs
    kRecording,       // PENDING is being synced
    kSealed,          // the decision is waited for
    kMoving,          // MoveBaseline runs, or has failed
    kRecordingMoved,  // BASELINE is being synced
    kDropping,        // DropPending runs
    kRecordingDrop,   // DROPPED is being synced
    kAcknowledging,   // AckReceived is waited for
  };
  struct Session {
    SessionId id;
    bool accepted = false;
    Epoch epoch;
    FleetId fleet;
    TimePoint heard_at;
    TimePoint sent_at;
  };
  enum class Purpose : std::uint8_t { kEpoch, kPending, kMoved, kDropped };
  struct PendingLog {
    LogToken token;
    Purpose purpose = Purpose::kEpoch;
    Epoch epoch;    // of kEpoch
    FleetId fleet;  // of kEpoch
  };

  // producer_role.cpp: dispatch, state file
  void on(const producer::Start& event);
  void on(const producer::Tick& event);
  void on(const producer::LogSynced& event);
  void on(const producer::LogFailed& event);
  void append(Purpose purpose, ProducerRecord record);
  void note(Severity severity, const char* name, std::string detail);

  // producer_session.cpp: the coordinator
  void on(const producer::SessionOpened& event);
  void on(const producer::SessionClosed& event);
  void on(const producer::CoordinatorSaid& event);
  template <typename Message>
  void heard(const Message& message);  // those that say nothing to a producer
  void heard(const wire::Welcome& message);
  void heard(const wire::SessionRefused& message);
  void heard(const wire::Plan& message);
  void heard(const wire::Seal& message);
  void heard(const wire::Decision& message);
  void heard(const wire::BeginRefused& message);
  void heard(const wire::RefitOutcome& message);
  void heard(const wire::AckReceived& message);
  void accept_session();
  void close_session(Error reason);
  void say(wire::MemberMessage message);
  void say_hello();
  void tick_session();

  // producer_refit.cpp: one refit
  void on(const producer::Publish& event);
  void on(const producer::Cancel& event);
  void on(const producer::Encoded& event);
  void on(const producer::EncodeFailed& event);
  void on(const producer::EncodeProgressed& event);
  void on(const producer::LinkLost& event);
  void on(const producer::BaselineMoved& event);
  void on(const producer::BaselineFailed& event);
  void on(const producer::PendingDropped& event);
  void on(const producer::TargetPart& event);
  void begin();
  void say_begin();
  void sealed();
  void give_up(Error error);
  void drop(Error error, bool retry);
  void move(const Content& target);
  void moved();
  void dropped();
  void resolved(Status status);
  void finish(Status status, bool already);
  void tick_refit();

  ProducerOptions options_;
  TimePoint now_{};
  std::vector<ProducerAction> out_;

  FleetId fleet_;
  Epoch epoch_;
  Content content_;  // of the baseline
  Digest part_;
  std::optional<Session> session_;
  std::vector<PendingLog> logging_;
  std::uint64_t next_token_ = 1;
  bool stopped_ = false;

  Phase phase_ = Phase::kIdle;
  std::optional<producer::Publish> publish_;
  std::uint64_t requests_ = 0;  // Begins of this Publish
  std::uint32_t attempts_ = 0;
  std::optional<Digest> target_part_;
  std::optional<wire::Cause> refusal_;  // what ComputeTargetPart may turn into success
  TimePoint busy_until_;

  // The refit that is under way. `earlier_`: it is not publish_'s but one before it, whose decision
  // comes first.
  std::optional<RefitId> refit_;
  std::optional<RefitId> newest_;
  bool earlier_ = false;
  std::optional<wire::Plan> plan_;
  std::optional<wire::ProducerSeal> seal_;
  std::optional<PendingRecord> pending_;
  bool seal_heard_ = false;
  bool move_failed_ = false;
  bool retry_ = false;
  std::optional<Error> abort_error_;
  Content moving_to_;
  std::optional<wire::RefitOutcome> outcome_;
  TimePoint deadline_;
  TimePoint repeat_at_;
  TimePoint retry_at_;  // of a baseline that could not be moved
  TimePoint progress_at_{};
  TimePoint hello_at_{};
};

}  // namespace weft::apply
