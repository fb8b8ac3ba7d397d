// SPDX-License-Identifier: Apache-2.0
// The relay without its thread: everything that happens on one rail, one turn at a time.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "transport/buffer/slab_pool.hpp"
#include "transport/fabric/fabric.hpp"
#include "transport/relay/downstream_link.hpp"
#include "transport/relay/frame_check.hpp"
#include "transport/relay/frame_ledger.hpp"
#include "transport/relay/link_status.hpp"
#include "transport/relay/relay.hpp"
#include "transport/relay/repair_desk.hpp"
#include "transport/relay/repair_reader.hpp"
#include "transport/relay/upstream_link.hpp"
#include "weft/base/clock.hpp"
#include "weft/base/thread_owner.hpp"

namespace weft::transport {

inline constexpr std::size_t kOpenRefitsMax = 8;
inline constexpr std::size_t kReadsMax = 16;
inline constexpr std::uint32_t kReadCookie = 0x8000'0000;  // in the low half of a read's cookie

// Another process that is a parent or child in some open refit. Known by its process id, never by
// its address.
// Threads: one at a time.
struct Peer {
  ProcessId process;
  std::string member_id;
  PeerHandle handle;
  std::uint32_t links = 0;       // reasons to know it
  std::uint32_t beats = 0;       // of these, links with a heartbeat
  std::uint32_t operations = 0;  // writes to it and reads from it that are not locally over
  bool suspect = false;
  bool refusing = false;  // posts to it are not accepted, since `refusing_since`
  TimePoint refusing_since;
  TimePoint last_heard;
};

struct InjectedFrame {
  RefitId refit;
  ProducerIndex producer;
  SharedSlot frame;
};

struct RelayCounters {
  std::uint64_t frames_received = 0;
  std::uint64_t frames_posted = 0;
  std::uint64_t bytes_posted = 0;
  std::uint64_t frames_completed = 0;  // writes that came back, well or failed
  std::uint64_t frames_abandoned = 0;  // writes still out when the rail was closed
  std::uint64_t frames_repeated = 0;
  std::uint64_t frames_refused = 0;
  std::uint64_t frames_healed = 0;  // taken without a doorbell
  std::uint64_t frames_read = 0;    // repaired: read from a holder
  std::uint64_t reads_posted = 0;
  std::uint64_t reads_completed = 0;  // well or failed
  std::uint64_t reads_refused = 0;    // what was read is not the frame that was offered
  std::uint64_t frames_offered = 0;   // loaded for a reader
  std::uint64_t demotions = 0;
  std::uint64_t doorbells_stray = 0;
  std::uint64_t messages_stray = 0;
  std::uint64_t fabric_troubles = 0;
  std::uint64_t links_lost = 0;
};

// RelayCore moves frames: events in, observer calls and posts out. turn() never blocks and nothing
// in it waits without a deadline.
// Owns:    the rail, the receive ranges, one reference to each frame that is queued or under way.
// Threads: owner (the progress thread, or a test).
class RelayCore {
 public:
  struct Environment {
    SlabPool& pool;
    RelayObserver& observer;
    EventSink& events;
    const Clock& clock;
    // Opens the rail again, at the same address if the provider can; none: never recycled.
    std::function<Result<std::unique_ptr<Fabric>>()> reopen = {};
  };
  // Registers the slab. Errors: kResourceLimit.
  static Result<std::unique_ptr<RelayCore>> open(const RelayOptions& options,
                                                 std::unique_ptr<Fabric> fabric,
                                                 const Environment& environment);
  ~RelayCore();
  RelayCore(const RelayCore&) = delete;
  RelayCore& operator=(const RelayCore&) = delete;

  void adopt_thread();
  ProcessId process() const { return process_; }
  Fabric& fabric() { return *fabric_; }
  const RelayCounters& counters() const { return counters_; }
  std::uint32_t quarantined() const { return quarantined_; }
  // Of the open refits.
  std::vector<LinkStatus> links() const;
  // Slots that are never granted.
  std::uint32_t reserved() const { return options_.send_reserve; }

  Status enter(const wire::Plan& plan, NodeIndex self);
  void inject(const InjectedFrame& injected);
  void provide(SharedSlot frame);
  void mark_held(const RefitId& refit, ProducerIndex producer,
                 std::span<const FrameSequence> sequences);
  void set_goal(const RefitId& refit, std::span<const std::uint32_t> frame_counts);
  void refetch(const RefitId& refit, ProducerIndex producer, FrameSequence sequence);
  // This producer, whose frames are injected here, has sent its last one.
  void finish(const RefitId& refit, ProducerIndex producer, std::uint32_t frame_count);
  // Every frame injected so far has been taken by every child that is not lost.
  bool drained(const RefitId& refit) const;
  void leave(const RefitId& refit);
  void leave_all();
  bool idle() const { return refits_.empty(); }
  // True if anything happened.
  bool turn();
  // Closes the rail; what was under way is abandoned.
  void close();

 private:
  // Where a producer's trees are in the queue for this node's slots.
  enum class TreeStage : std::uint8_t {
    kWaiting = 1,   // no range here yet: the producer holds its frames back
    kOpen = 2,      // has a range, or reads because it has lost its parent
    kComplete = 3,  // every frame is here, the range has been given back
  };
  struct ProducerTrees {
    TreeStage stage = TreeStage::kWaiting;
    std::optional<std::uint32_t> frame_count;  // of its whole stream, once known
  };
  struct OpenRefit {
    FrameIdentity identity;  // without the producer
    wire::Plan plan;         // the newest
    NodeIndex self;
    std::vector<std::unique_ptr<UpstreamLink>> upstream;
    std::vector<std::unique_ptr<DownstreamLink>> downstream;
    std::uint32_t stripes = 1;                           // trees of one producer
    std::uint32_t producers_open_max = 1;                // whose trees have ranges here at once
    std::vector<ProducerTrees> producers;                // by producer
    std::vector<std::vector<DownstreamLink*>> children;  // by tree
    std::vector<FrameLedger> ledgers;                    // by producer
    std::vector<RepairReader> readers;                   // by producer
    std::vector<Peer*> repair_peers;                     // that are known for repair's sake
    std::vector<std::string> lost_members;
    std::vector<ProcessId> lost_processes;
    bool leaving = false;
  };
  // A read that is not locally over.
  struct ReadUnderWay {
    Lease room;
    Peer* peer = nullptr;
    RefitId refit;
    ProducerIndex producer;
    FrameOffer offer;
    std::uint32_t round = 0;
    bool busy = false;
    TimePoint since;
  };
  // A write that is not locally over: holds its memory whatever becomes of the link.
  struct WriteUnderWay {
    SharedSlot frame;
    DownstreamLink* link = nullptr;  // none: the link has ended
    Peer* peer = nullptr;
    std::uint32_t place = 0;
    std::uint32_t generation = 0;
    std::uint32_t round = 0;  // part of the cookie: a late event meets no successor
    bool busy = false;
    TimePoint since;
  };

  RelayCore(const RelayOptions& options, std::unique_ptr<Fabric> fabric,
            const Environment& environment, std::uint32_t reserve_first);
  Status register_slab();
  void end_quarantine();
  bool wants_recycling() const;
  void recycle();

  // relay_core_enter.cpp
  Status check_plan(const wire::Plan& plan, NodeIndex self) const;
  Result<std::uint32_t> choose_range_slots(std::uint32_t ranges) const;
  std::uint32_t range_slots(std::uint32_t ranges) const;
  std::uint32_t room_for_parents();
  Status update(OpenRefit& refit, const wire::Plan& plan, NodeIndex self);
  Status add_links(OpenRefit& refit);
  void end_other_links(OpenRefit& refit);
  void prune_links(OpenRefit& refit);
  static UpstreamLink* live_upstream(OpenRefit& refit, TreeIndex tree);
  static DownstreamLink* live_downstream(OpenRefit& refit, TreeIndex tree, ProcessId child);
  Status add_upstream(const wire::Endpoint& parent, TreeIndex tree, std::uint32_t slots,
                      OpenRefit& refit);
  Status add_downstream(const wire::Endpoint& child, TreeIndex tree, OpenRefit& refit);
  Result<Peer*> join_peer(const wire::Endpoint& endpoint);
  void unjoin_peer(Peer* peer);
  void unjoin_link(Peer* peer);
  void unjoin_child(const DownstreamLink& link);
  Peer* repair_peer(OpenRefit& refit, ProcessId process);
  void forget_links(OpenRefit& refit);

  // relay_core_trees.cpp
  static bool takes_turns(const OpenRefit& refit);
  static bool is_open(const OpenRefit& refit, TreeIndex tree);
  static bool holds_ranges(const OpenRefit& refit, ProducerIndex producer);
  std::uint32_t trees_without_parent(OpenRefit& refit);
  void note_end(OpenRefit& refit, ProducerIndex producer, std::uint32_t frame_count);
  void take_turns(OpenRefit& refit);
  void close_complete(OpenRefit& refit);
  bool open_trees(OpenRefit& refit, ProducerIndex producer);
  void welcome(DownstreamLink& link);
  void prune_complete(OpenRefit& refit);
  static void add_waiting(const OpenRefit& refit, std::vector<LinkStatus>& links);

  // relay_core_receive.cpp
  bool drain_events();
  void on_doorbell(std::uint32_t immediate);
  void on_message(std::span<const std::byte> bytes);
  void on_child_message(const ControlMessage& message);
  bool on_new_child(const ControlMessage& message);
  void on_child_table(OpenRefit& refit, DownstreamLink& link, const ControlMessage& message);
  void on_parent_message(const ControlMessage& message);
  void open_upstream(UpstreamLink& link);
  void on_operation(const FabricEvent& event);
  void on_trouble(const FabricEvent& event);
  enum class Arrival : std::uint8_t { kTaken, kRefused, kNothingYet };
  Arrival receive(UpstreamLink& link, std::uint32_t slot, bool final);
  void deliver(OpenRefit& refit, UpstreamLink& link, std::uint32_t slot,
               const wire::FrameHeader& header);
  void take_frame(OpenRefit& refit, const wire::FrameHeader& header, SharedSlot frame,
                  const Peer& from, bool by_read);
  void refuse(OpenRefit& refit, UpstreamLink& link, std::uint32_t slot, const Error& error);
  bool collect_returned();
  void clear_magic(std::uint32_t slot);

  // relay_core_send.cpp
  bool pump();
  bool pump_link(DownstreamLink& link, std::uint32_t& budget);
  Posted post_frame(DownstreamLink& link, const DownstreamLink::Next& next);
  void forward(OpenRefit& refit, TreeIndex tree, const SharedSlot& frame);
  static TreeIndex tree_of(const OpenRefit& refit, ProducerIndex producer, FrameSequence sequence);
  bool send_control_due();
  bool send_upstream(UpstreamLink& link);
  bool send_downstream(const OpenRefit& refit, DownstreamLink& link);
  bool send(Peer& peer, ControlMessage& message);
  void note_post(Peer& peer, Posted posted);

  // relay_core_repair.cpp
  void on_repair_message(std::span<const std::byte> bytes);
  void on_request(OpenRefit& refit, const RepairMessage& message);
  void on_offer(OpenRefit& refit, const RepairMessage& message);
  void on_read(std::uint32_t index, bool failed);
  void start_read(OpenRefit& refit, ProducerIndex producer, Peer& holder, const FrameOffer& offer);
  bool is_reading(const RefitId& refit, ProducerIndex producer, const FrameOffer& offer) const;
  void send_offers(OpenRefit& refit, ProducerIndex producer, Peer& reader);
  void send_done(const ReadUnderWay& read);
  bool send_repair(Peer& peer, RepairMessage& message);
  void send_requests();
  bool load_wanted();
  static std::vector<ProcessId> holders_above(const OpenRefit& refit, std::uint32_t producer);
  void set_holders(OpenRefit& refit);
  void scan_orphans(OpenRefit& refit);
  void release_reserve();

  // relay_core_demote.cpp
  std::uint32_t slots_of(OpenRefit& refit, TreeIndex tree);
  bool is_short(OpenRefit& refit, TreeIndex tree);
  void set_windows(OpenRefit& refit);
  void relieve(OpenRefit& refit, Duration passed);
  void demote(OpenRefit& refit, DownstreamLink& link);
  void remind(DownstreamLink& link);
  void note_request(OpenRefit& refit, const RepairMessage& request);
  void end_demotion(OpenRefit& refit, const RepairMessage& offers);

  // relay_core_timers.cpp
  void scan();
  void scan_peers();
  void scan_upstream(OpenRefit& refit, UpstreamLink& link);
  void scan_downstream(OpenRefit& refit, DownstreamLink& link);
  std::optional<Error> peer_failure(const Peer& peer, TimePoint link_heard) const;
  void lose_upstream(OpenRefit& refit, UpstreamLink& link, const Error& error);
  void lose_downstream(OpenRefit& refit, DownstreamLink& link, const Error& error);
  void report_lost(OpenRefit& refit, const Peer& peer, const Error& error);
  void close_upstream(UpstreamLink& link);
  void settle_upstream(UpstreamLink& link, bool overdue);
  void end_upstream(UpstreamLink& link);
  void end_downstream(DownstreamLink& link);
  void detach_writes(DownstreamLink& link);
  bool try_finish(OpenRefit& refit);
  void flush_counters();

  OpenRefit* find(const RefitId& refit);
  UpstreamLink* find_upstream(std::uint64_t link);

  RelayOptions options_;
  std::unique_ptr<Fabric> fabric_;
  SlabPool& pool_;
  RelayObserver& observer_;
  EventSink& events_;
  const Clock& clock_;
  std::function<Result<std::unique_ptr<Fabric>>()> environment_reopen_;
  std::vector<std::byte> address_;
  bool recycling_ = false;  // the rail is closed and could not be opened again yet
  TimePoint next_reopen_;
  ThreadOwner owner_;
  ProcessId process_;
  MemoryHandle slab_memory_;
  MemoryHandle reserve_memory_;
  std::uint32_t reserve_first_;
  RepairDesk desk_;
  bool requests_due_ = false;
  TimePoint now_;
  TimePoint next_scan_;
  TimePoint last_scan_;
  TimePoint next_flush_;
  TimePoint next_probe_;
  std::vector<std::unique_ptr<Peer>> peers_;
  std::vector<std::unique_ptr<OpenRefit>> refits_;
  std::vector<UpstreamLink*> link_of_slot_;  // by slot; none: no open link
  std::vector<std::uint8_t> quarantine_;     // by slot
  std::vector<WriteUnderWay> writes_;
  std::vector<std::uint32_t> idle_writes_;
  std::array<ReadUnderWay, kReadsMax> reads_;
  std::array<FabricEvent, 64> event_room_;
  std::uint32_t quarantined_ = 0;
  std::uint8_t next_incarnation_ = 0;
  std::size_t pump_start_ = 0;
  RelayCounters counters_;
  RelayCounters flushed_;
};

}  // namespace weft::transport
