// SPDX-License-Identifier: Apache-2.0
// Relay: this node's place in every open refit's trees: receives frames from parents, checks them,
// hands them to the observer and forwards the very memory to its children.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "transport/buffer/slab_pool.hpp"
#include "transport/fabric/fabric.hpp"
#include "transport/fabric/fabric_options.hpp"
#include "transport/relay/link_status.hpp"
#include "weft/base/clock.hpp"
#include "weft/base/event_sink.hpp"
#include "weft/base/lease.hpp"
#include "weft/base/result.hpp"
#include "weft/wire/frame.hpp"
#include "weft/wire/messages.hpp"

namespace weft::transport {

struct RelayTimes {
  Duration heartbeat = std::chrono::milliseconds(200);
  // Silence until a link is called suspect. 0: half of `lost`, but three heartbeats if that is
  // more.
  Duration suspect = Duration::zero();
  Duration lost = std::chrono::seconds(3);      // silence, or no post accepted, until it is lost
  Duration connect = std::chrono::seconds(10);  // until a parent or child of a plan must be there
  Duration stall = std::chrono::seconds(10);    // data waits and the child grants nothing
  Duration settle = std::chrono::seconds(1);    // for operations under way when a link ends
};

struct RelayOptions {
  std::string member_id = {};  // agent.id, or a producer's name
  ProcessId process = {};      // zero: a random one is made
  FabricOptions fabric = {};
  RelayTimes times = {};
  std::uint32_t slots_per_link = 8;  // receive range of one tree, 3..64; shrinks to fit the pool
  std::uint32_t send_reserve = 2;    // slots that serve repair and are never granted, at least 2
  std::uint32_t low_percent = 25;    // of slots left: a child that holds back others is demoted
  std::int32_t core = -1;            // the progress thread's core; -1: not pinned
};

// A reader asks for a frame that went through here. The node fills the room from its spool and
// calls Relay::provide(), or drops it: then the reader asks again, or somebody else.
struct FrameWanted {
  RefitId refit;
  ProducerIndex producer;
  FrameSequence sequence;
  Lease room;
};

// What a relay tells its node.
// Threads: called on the progress thread only; must not block and must not call Relay.
class RelayObserver {
 public:
  virtual ~RelayObserver() = default;
  // A frame of an entered refit whose header and checksum hold, each (producer, sequence) once.
  // Holding the slot holds back the parent.
  virtual void on_frame(const RefitId& refit, ProducerIndex producer, FrameSequence sequence,
                        SharedSlot frame) = 0;
  // A parent or child is gone for this refit; the error (kPeerLost, kTimeout) names it.
  virtual void on_link_lost(const RefitId& refit, std::string_view member_id,
                            const Error& error) = 0;
  // A frame was refused (kCorruptPayload, kProtocol, kPayloadConflict); the peer that sent it is
  // named. Corrupt frames are asked for again; the link stays.
  virtual void on_fault(const RefitId& refit, std::string_view member_id, const Error& error) = 0;
  virtual void on_frame_wanted(FrameWanted wanted) { wanted.room.drop(); }
  // The rail was opened again at another address: Relay::rails() must be announced anew.
  virtual void on_rails_changed() {}
};

// Relay owns one rail and its progress thread.
// Life: open -> (enter -> inject* / frames -> leave)* -> close.
// Owns:    rail, thread, receive ranges; pool, observer and sink must outlive it.
// Threads: any, except open and the destructor; calls are handed to the progress thread.
class Relay {
 public:
  // Errors: kConfig (provider, interface or address not there; names what is), kResourceLimit.
  static Result<std::unique_ptr<Relay>> open(RelayOptions options, SlabPool& pool,
                                             RelayObserver& observer, EventSink& events);
  // On a rail that is open already; it is never opened again.
  static Result<std::unique_ptr<Relay>> open_on(std::unique_ptr<Fabric> fabric,
                                                RelayOptions options, SlabPool& pool,
                                                RelayObserver& observer, EventSink& events);
  ~Relay();  // close(times.settle) unless closed
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  ProcessId process() const;
  const FabricFacts& facts() const;
  // For wire::Endpoint.
  std::vector<wire::RailAddress> rails() const;

  // As they were at the last heartbeat; with no refit open those of the last one, at its end.
  std::vector<LinkStatus> links() const;

  // Takes this node's place in every tree of the plan; plan.nodes[self] must be this process.
  // Repeated for an entered refit: no effect, or, with a higher revision, the new place: links that
  // are in both plans stay. Errors: kProtocol (a plan that does not fit), kResourceLimit (slots),
  // kUnsupported (no common protocol with a neighbour), kBusy (too many open refits), kTimeout.
  Status enter(const wire::Plan& plan, NodeIndex self);
  // A frame of this producer for all its children. Never waits: the slot leases are the bound.
  // Errors: kProtocol (slot of another pool, header that is not this frame's), kBusy (queue full).
  Status inject(ProducerIndex producer, const wire::FrameHeader& header, SharedSlot frame);
  // All of a producer's frames have been injected: its places at the agents can be given on.
  void finish(const RefitId& refit, ProducerIndex producer, std::uint32_t frame_count);
  // Answers on_frame_wanted: the lease of its room, shared.
  void provide(SharedSlot frame);
  // Held since before this process started: not taken again, and served.
  void mark_held(const RefitId& refit, ProducerIndex producer,
                 std::vector<FrameSequence> sequences);
  // How many frames each producer has sent: what is missing is asked for from now on.
  void set_goal(const RefitId& refit, std::vector<std::uint32_t> frame_counts);
  // The frame is bad although its checksum holds: asks somebody else than the parent for it.
  void refetch(const RefitId& refit, ProducerIndex producer, FrameSequence sequence);
  // Until every child that is not lost has taken every frame injected so far. Errors: kTimeout.
  Status wait_drained(const RefitId& refit, Duration timeout);
  // Ends all links of the refit; frames still queued are dropped. Unknown refit: no effect.
  void leave(const RefitId& refit);
  // Leaves everything, closes the rail. Slots that frames still hold return to the pool later.
  // Errors: kTimeout (closed all the same).
  Status close(Duration timeout);

 private:
  class Body;
  struct Borrowed {
    SlabPool& pool;
    RelayObserver& observer;
    EventSink& events;
    std::function<Result<std::unique_ptr<Fabric>>()> reopen;
  };
  static Result<std::unique_ptr<Relay>> open_with(std::unique_ptr<Fabric> fabric,
                                                  RelayOptions options, const Borrowed& borrowed);
  explicit Relay(std::unique_ptr<Body> body);
  std::unique_ptr<Body> body_;
};

}  // namespace weft::transport
