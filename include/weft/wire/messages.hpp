// SPDX-License-Identifier: Apache-2.0
// Control messages between coordinator, producers and agents, as plain values: the step machines
// speak these, transport/control carries them over gRPC (control.proto has the same fields under
// the same names). All are idempotent: receiving one twice has no second effect.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "weft/base/error.hpp"
#include "weft/base/ids.hpp"
#include "weft/wire/manifest.hpp"

namespace weft::wire {

enum class Role : std::uint8_t { kAgent = 1, kProducer = 2 };

// What a member says of itself; `ready` for readers follows from it (commit-and-apply.md
// "Readers").
enum class MemberState : std::uint8_t {
  kStarting = 1,     // computing its digest table
  kClean = 2,        // all bytes equal one committed version
  kStreaming = 3,    // clean at the base, receiving a refit
  kPrepared = 4,     // has voted YES, serves the base, waits for the decision
  kApplying = 5,     // committed, weight files are changing
  kLagging = 6,      // clean, but behind or unable; the cause says why
  kNeedsReseed = 7,  // refuses deltas until a full reseed
  kLost = 8,         // coordinator's word only: heartbeats are missing
  kUnversioned = 9,  // its digest table is known, its version is not: waits for Welcome or Plan
  kRehashing = 10,   // clean, computing its digest table under another lattice
};

constexpr const char* to_string(Role role) { return role == Role::kAgent ? "agent" : "producer"; }

constexpr const char* to_string(MemberState state) {
  switch (state) {
    case MemberState::kStarting:
      return "starting";
    case MemberState::kClean:
      return "clean";
    case MemberState::kStreaming:
      return "streaming";
    case MemberState::kPrepared:
      return "prepared";
    case MemberState::kApplying:
      return "applying";
    case MemberState::kLagging:
      return "lagging";
    case MemberState::kNeedsReseed:
      return "needs_reseed";
    case MemberState::kLost:
      return "lost";
    case MemberState::kUnversioned:
      return "unversioned";
    case MemberState::kRehashing:
      return "rehashing";
  }
  return "unknown";
}

// One rail of a node: what a peer needs to reach it.
struct RailAddress {
  std::string provider;            // as libfabric names it, e.g. "tcp;ofi_rxm"
  std::uint32_t protocol = 0;      // ep_attr->protocol
  std::vector<std::byte> address;  // opaque, at most kFabricAddressBytesMax
  auto operator<=>(const RailAddress&) const = default;
};

struct Endpoint {
  std::string member_id;  // agent.id, or a producer's name
  ProcessId process;
  std::string region;
  std::vector<RailAddress> rails;
  auto operator<=>(const Endpoint&) const = default;
};

struct Cause {
  ErrorCode code = ErrorCode::kInternal;
  std::string detail;
  auto operator<=>(const Cause&) const = default;
};

// A refit whose PREPARED record is durable at a member: it asks for this decision, and obeys only
// one that names the same refit and the same target root.
struct PreparedRefit {
  RefitId refit;
  Content base;
  Content target;
  auto operator<=>(const PreparedRefit&) const = default;
};

// --- member -> coordinator ---

// First message of every session, again once the epoch of the Welcome is stored (only then does the
// member take part), and again whenever state or content changes.
struct Hello {
  Role role = Role::kAgent;
  Endpoint endpoint;
  FleetId fleet;  // zero: has never joined one
  Epoch epoch;    // the highest this member has stored
  MemberState state = MemberState::kStarting;
  std::optional<Cause> cause;  // of kLagging and kNeedsReseed; why an apply does not go on
  Digest schema;               // of its weight files
  Content content;             // version 0 when unknown; lattice and root of its digest table
  std::optional<PreparedRefit> prepared;  // waits for this decision (a producer: sealed it)
  std::optional<RefitId> begun;           // an agent's refit with a BEGIN record and no vote
  bool ready = false;                     // readers may use its weights
  auto operator<=>(const Hello&) const = default;
};

// A producer wants to move the fleet from base to target. Repeated, it is answered the same way.
struct Begin {
  ProducerIndex producer;
  std::uint32_t producer_count = 1;
  std::uint64_t request = 0;  // random, names this attempt of the publisher
  Content base;               // what this producer's baseline is
  Version target_version;
  Digest schema;
  Digest base_part;
  // Of the target, zero when not known yet. It is asked for when target_version is the committed
  // one: equal content is then "already committed", other content is payload_conflict.
  Digest target_part;
  std::uint64_t model_bytes = 0;
  bool full = false;  // every chunk is sent as raw
  std::string shape;  // relay tree; empty: the coordinator's default
  auto operator<=>(const Begin&) const = default;
};

// Everything of this producer has been injected; the new values are pending and durable.
struct SealReport {
  RefitId refit;
  ProducerIndex producer;
  ProducerSeal seal;
  auto operator<=>(const SealReport&) const = default;
};

struct Progress {
  RefitId refit;
  std::uint64_t frames = 0;  // received and resolved, all producers
  std::uint64_t bytes = 0;
  std::string lost_peer;  // member id of a link that was declared lost; empty: none
  auto operator<=>(const Progress&) const = default;
};

struct Vote {
  RefitId refit;
  bool yes = false;
  std::optional<Cause> cause;  // of a NO
  Digest manifest;             // of a YES
  Digest target_root;          // of a YES
  auto operator<=>(const Vote&) const = default;
};

// After APPLIED (agents), or after the baseline has moved (producers); after an ABORT has been
// carried out.
struct Ack {
  RefitId refit;
  Content content;
  std::optional<Cause> cause;  // set: could not (lagging, needs_reseed)
  auto operator<=>(const Ack&) const = default;
};

// A member that is PREPARED (or a producer that has sealed) asks; the answer is a Decision. The
// coordinator gives base and target back in an abort of a refit that it knows nothing of.
struct DecisionQuery {
  PreparedRefit prepared;
  auto operator<=>(const DecisionQuery&) const = default;
};

// A producer gives up before the decision. Without a plan yet it withdraws its Begin: then only
// `request` is set.
struct AbortRequest {
  RefitId refit;
  std::uint64_t request = 0;
  Cause cause;
  auto operator<=>(const AbortRequest&) const = default;
};

// What an agent's scrubber has done: how old the proof is that its files are what they should be.
struct ScrubReport {
  // Since every chunk was last verified, by a whole pass or for another reason; none: never yet.
  std::optional<std::uint64_t> age_ms;
  std::uint64_t passes = 0;          // finished since the agent's start
  std::uint64_t chunks_checked = 0;  // of the pass under way
  std::uint64_t chunk_count = 0;     // 0: it has not begun, or is off
  std::uint64_t damaged_chunks = 0;
  auto operator<=>(const ScrubReport&) const = default;
};

struct Heartbeat {
  std::optional<ScrubReport> scrub;  // an agent's
  auto operator<=>(const Heartbeat&) const = default;
};

using MemberMessage = std::variant<Hello, Begin, SealReport, Progress, Vote, Ack, DecisionQuery,
                                   AbortRequest, Heartbeat>;

// --- coordinator -> member ---

// The answer to the first Hello of a session, again whenever the committed content changes, and the
// coordinator's heartbeat.
struct Welcome {
  FleetId fleet;
  Epoch epoch;
  Content committed;  // version 0: a fresh fleet
  auto operator<=>(const Welcome&) const = default;
};

// A place in one producer's tree. Indices point into Plan::nodes.
struct TreeNode {
  std::optional<NodeIndex> parent;  // none: the producer itself
  std::vector<NodeIndex> children;
  auto operator<=>(const TreeNode&) const = default;
};

// Compute the digest table under this lattice; the answer is a Hello with the content under it, or
// one that is kLagging with its cause. Weights and version do not change.
struct Rehash {
  RefitId refit;  // the attempt that needs it
  Digest schema;
  Digest lattice;
  auto operator<=>(const Rehash&) const = default;
};

// The relay trees of one refit: producers first, then agents; trees[p].nodes[i] is the place of
// nodes[i].
struct Plan {
  RefitId refit;
  std::uint32_t revision = 0;  // grows when trees change within the refit; an older one is ignored
  FleetId fleet;
  Content base;
  Version target_version;
  Digest schema;
  std::string shape;
  std::uint32_t producer_count = 1;
  std::vector<std::uint64_t> requests;  // Begin::request of each producer; place = ProducerIndex
  std::vector<Endpoint> nodes;
  struct Tree {
    std::vector<TreeNode> nodes;
    auto operator<=>(const Tree&) const = default;
  };
  std::vector<Tree> trees;  // place = ProducerIndex
  // Trees for which an agent has slots at once; producers take turns in their order. 0: all.
  std::uint32_t trees_open_max = 0;
  auto operator<=>(const Plan&) const = default;
};

// All producers have reported: the manifest. Also the request to prepare and vote by the deadline.
struct Seal {
  Manifest manifest;
  std::uint32_t prepare_timeout_ms = 0;
  auto operator<=>(const Seal&) const = default;
};

enum class Verdict : std::uint8_t { kCommit = 1, kAbort = 2, kUndecided = 3 };

constexpr const char* to_string(Verdict verdict) {
  switch (verdict) {
    case Verdict::kCommit:
      return "commit";
    case Verdict::kAbort:
      return "abort";
    case Verdict::kUndecided:
      return "undecided";
  }
  return "unknown";
}

// Sent after the decision is durable, repeated until acknowledged; also the answer to a
// DecisionQuery.
struct Decision {
  RefitId refit;
  Verdict verdict = Verdict::kUndecided;
  Content base;
  Content target;
  std::optional<Cause> cause;  // of an abort: what a publisher shows
  auto operator<=>(const Decision&) const = default;
};

// The coordinator has taken the ack (commit or abort is recorded): the member may forget the refit.
struct AckReceived {
  RefitId refit;
  auto operator<=>(const AckReceived&) const = default;
};

// The answer to a Begin that starts nothing.
struct BeginRefused {
  std::uint64_t request = 0;
  bool already_committed = false;  // same version, same root: success without effect
  Cause cause;
  Content committed;
  auto operator<=>(const BeginRefused&) const = default;
};

// The publisher's outcome: sent to producers after the decision, and again when `applied` has
// reached its last value (every planned member has acknowledged or cannot).
struct RefitOutcome {
  RefitId refit;
  Verdict verdict = Verdict::kUndecided;
  std::uint32_t planned = 0;
  std::uint32_t prepared = 0;    // durable YES votes
  std::uint32_t lost = 0;        // evicted before they voted
  std::uint32_t applied = 0;     // acknowledged so far
  bool settled = false;          // nothing more is waited for
  std::uint64_t prepare_ns = 0;  // begin until the last member was PREPARED
  std::optional<Cause> cause;
  auto operator<=>(const RefitOutcome&) const = default;
};

// Refused for good in this session (wrong fleet, fenced, denied): the member must not retry as it
// is.
struct SessionRefused {
  Cause cause;
  auto operator<=>(const SessionRefused&) const = default;
};

using CoordinatorMessage = std::variant<Welcome, Rehash, Plan, Seal, Decision, AckReceived,
                                        BeginRefused, RefitOutcome, SessionRefused, Heartbeat>;

}  // namespace weft::wire
