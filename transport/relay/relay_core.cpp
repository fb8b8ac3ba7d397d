// SPDX-License-Identifier: Apache-2.0
#include "transport/relay/relay_core.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>

#include <sys/random.h>

namespace weft::transport {
namespace {

constexpr Duration kReopenInterval = std::chrono::seconds(1);
constexpr std::uint32_t kSendReserveMin = 2;

ProcessId draw_process() {
  ProcessId process;
  while (process.value == 0) {
    if (getrandom(&process.value, sizeof(process.value), 0) != sizeof(process.value)) {
      process.value = 0;
    }
  }
  return process;
}

}  // namespace

RelayCore::RelayCore(const RelayOptions& options, std::unique_ptr<Fabric> fabric,
                     const Environment& environment, std::uint32_t reserve_first)
    : options_(options),
      fabric_(std::move(fabric)),
      pool_(environment.pool),
      observer_(environment.observer),
      events_(environment.events),
      clock_(environment.clock),
      environment_reopen_(environment.reopen),
      address_(fabric_->local_address()),
      process_(options.process.value == 0 ? draw_process() : options.process),
      reserve_first_(reserve_first),
      desk_(reserve_first, options.send_reserve),
      now_(environment.clock.now()),
      next_scan_(now_),
      last_scan_(now_),
      next_flush_(now_),
      link_of_slot_(pool_.slot_count(), nullptr),
      quarantine_(pool_.slot_count(), 0),
      writes_(fabric_->facts().writes_in_flight_max) {
  for (std::uint32_t i = 0; i < writes_.size(); ++i) idle_writes_.push_back(i);
}

RelayCore::~RelayCore() { close(); }

Result<std::unique_ptr<RelayCore>> RelayCore::open(const RelayOptions& options,
                                                   std::unique_ptr<Fabric> fabric,
                                                   const Environment& environment) {
  if (fabric->facts().write_bytes_max < environment.pool.slot_bytes()) {
    return failure(ErrorCode::kConfig, Stage::kOpen,
                   "slots of " + std::to_string(environment.pool.slot_bytes()) +
                       " bytes; provider " + fabric->facts().provider + " writes at most " +
                       std::to_string(fabric->facts().write_bytes_max));
  }
  RelayOptions checked = options;
  checked.send_reserve = std::max(options.send_reserve, kSendReserveMin);
  RelayTimes& times = checked.times;
  if (times.suspect == Duration::zero()) {
    times.suspect = std::min(times.lost, std::max(times.lost / 2, times.heartbeat * 3));
  }
  const auto reserve = environment.pool.take_range(checked.send_reserve);
  if (!reserve) {
    return failure(ErrorCode::kResourceLimit, Stage::kOpen,
                   "no " + std::to_string(checked.send_reserve) +
                       " neighbouring free slots for slots.send_reserve in a slab of " +
                       std::to_string(environment.pool.slot_count()) + ": raise its slot count");
  }
  std::unique_ptr<RelayCore> core(new RelayCore(checked, std::move(fabric), environment, *reserve));
  WEFT_TRY_STATUS(core->register_slab());
  return core;
}

Status RelayCore::register_slab() {
  WEFT_TRY(slab_memory_, fabric_->register_memory(pool_.memory(), MemoryAccess::kLocal));
  const std::size_t slot_bytes = pool_.slot_bytes();
  const auto reserve =
      pool_.memory().subspan(reserve_first_ * slot_bytes, options_.send_reserve * slot_bytes);
  WEFT_TRY(reserve_memory_, fabric_->register_memory(reserve, MemoryAccess::kRemoteRead));
  return ok();
}

void RelayCore::adopt_thread() {
  owner_.adopt();
  fabric_->adopt_thread();
}

RelayCore::OpenRefit* RelayCore::find(const RefitId& refit) {
  for (const auto& open : refits_) {
    if (open->identity.refit == refit) return open.get();
  }
  return nullptr;
}

UpstreamLink* RelayCore::find_upstream(std::uint64_t link) {
  for (const auto& refit : refits_) {
    for (const auto& upstream : refit->upstream) {
      if (upstream->place().link == link) return upstream.get();
    }
  }
  return nullptr;
}

bool RelayCore::turn() {
  owner_.check();
  now_ = clock_.now();
  bool busy = drain_events();
  busy |= collect_returned();
  busy |= pump();
  busy |= load_wanted();
  busy |= send_control_due();
  if (now_ >= next_scan_) scan();
  if (requests_due_) send_requests();
  if (now_ >= next_reopen_ && wants_recycling()) recycle();
  return busy;
}

void RelayCore::inject(const InjectedFrame& injected) {
  owner_.check();
  OpenRefit* const refit = find(injected.refit);
  if (refit == nullptr || refit->leaving || injected.producer.value >= refit->ledgers.size()) {
    observer_.on_fault(injected.refit, options_.member_id,
                       failure(ErrorCode::kProtocol, Stage::kRelay,
                               "frame injected into refit " + to_string(injected.refit) +
                                   ", which is not open here"));
    return;
  }
  wire::FrameHeader header;
  std::memcpy(&header, injected.frame.frame().data(), sizeof(header));
  refit->ledgers[injected.producer.value].note(FrameSequence{header.sequence}, header.checksum_low);
  forward(*refit, tree_of(*refit, injected.producer, FrameSequence{header.sequence}),
          injected.frame);
}

bool RelayCore::drained(const RefitId& refit) const {
  for (const auto& open : refits_) {
    if (open->identity.refit != refit) continue;
    return std::all_of(open->downstream.begin(), open->downstream.end(),
                       [](const auto& link) { return !link->demoted && link->untaken() == 0; });
  }
  return true;
}

void RelayCore::leave(const RefitId& refit) {
  owner_.check();
  now_ = clock_.now();
  OpenRefit* const open = find(refit);
  if (open == nullptr || open->leaving) return;
  open->leaving = true;
  desk_.end(refit);
  for (const auto& link : open->upstream) close_upstream(*link);
  for (const auto& link : open->downstream) {
    if (link->phase == LinkPhase::kEnded) continue;
    link->drop_all();
    // A child that is still to connect is told as well, or it would wait for writes.
    link->phase = LinkPhase::kClosing;
    link->deadline = now_ + options_.times.settle;
    link->next_message = now_;
  }
}

void RelayCore::leave_all() {
  for (const auto& refit : refits_) leave(refit->identity.refit);
}

void RelayCore::close() {
  if (fabric_ == nullptr) return;
  now_ = clock_.now();
  fabric_->close();
  for (const auto& refit : refits_) {
    for (const auto& link : refit->downstream) link->drop_all();
    for (const auto& link : refit->upstream) {
      for (std::uint32_t i = 0; i < link->place().slot_count; ++i) {
        const std::uint32_t slot = link->place().first_slot + i;
        if (link_of_slot_[slot] != link.get()) continue;
        pool_.release(slot, link->state(slot) == GrantState::kTaken);
        link_of_slot_[slot] = nullptr;
      }
    }
  }
  refits_.clear();
  end_quarantine();
  release_reserve();
  flush_counters();
  fabric_.reset();
}

// The endpoint is closed: nothing can be written or completed any more.
void RelayCore::end_quarantine() {
  for (std::uint32_t slot = 0; slot < quarantine_.size(); ++slot) {
    if (quarantine_[slot] != 0) pool_.release(slot, false);
    quarantine_[slot] = 0;
  }
  quarantined_ = 0;
  idle_writes_.clear();
  for (std::uint32_t i = 0; i < writes_.size(); ++i) {
    WriteUnderWay& write = writes_[i];
    counters_.frames_abandoned += write.busy ? 1 : 0;
    const std::uint32_t round = write.round;
    write = WriteUnderWay{};
    write.round = round;
    idle_writes_.push_back(i);
  }
  for (ReadUnderWay& read : reads_) {
    const std::uint32_t round = read.round;
    read = ReadUnderWay{};
    read.round = round;
  }
  desk_.clear();
  peers_.clear();
}

bool RelayCore::wants_recycling() const {
  if (!refits_.empty() || !environment_reopen_) return false;
  const auto reads = static_cast<std::size_t>(std::count_if(
      reads_.begin(), reads_.end(), [](const ReadUnderWay& read) { return read.busy; }));
  const std::size_t stuck = writes_.size() - idle_writes_.size() + reads;
  return recycling_ || (quarantined_ + stuck) * 4 > pool_.slot_count();
}

// A closed endpoint is the only event after which stuck memory is ours again.
void RelayCore::recycle() {
  if (!recycling_) {
    const EventField fields[] = {{"quarantined", std::to_string(quarantined_)},
                                 {"slots", std::to_string(pool_.slot_count())}};
    events_.report(Severity::kWarning, "rail_recycled", fields);
    fabric_->close();
    end_quarantine();
    recycling_ = true;
  }
  next_reopen_ = now_ + kReopenInterval;
  auto fabric = environment_reopen_();
  if (fabric) {
    const std::vector<std::byte> old_address = address_;
    fabric_ = std::move(*fabric);
    fabric_->adopt_thread();
    address_ = fabric_->local_address();
    const Status registered = register_slab();
    recycling_ = !registered;
    if (registered && address_ != old_address) observer_.on_rails_changed();
    if (registered) return;
  }
  const std::string why = fabric ? "registration failed" : fabric.error().message();
  const EventField fields[] = {{"error", why}};
  events_.report(Severity::kError, "rail_not_reopened", fields);
}

}  // namespace weft::transport
