// SPDX-License-Identifier: Apache-2.0
#include "transport/relay/relay_core.hpp"

#include <algorithm>

#include <sys/random.h>

namespace weft::transport {
namespace {

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
                     const Environment& environment)
    : options_(options),
      fabric_(std::move(fabric)),
      pool_(environment.pool),
      observer_(environment.observer),
      events_(environment.events),
      clock_(environment.clock),
      process_(options.process.value == 0 ? draw_process() : options.process),
      now_(environment.clock.now()),
      next_scan_(now_),
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
  std::unique_ptr<RelayCore> core(new RelayCore(options, std::move(fabric), environment));
  WEFT_TRY_STATUS(core->register_slab());
  return core;
}

Status RelayCore::register_slab() {
  WEFT_TRY(slab_memory_, fabric_->register_memory(pool_.memory(), MemoryAccess::kLocal));
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
  busy |= send_control_due();
  if (now_ >= next_scan_) scan();
  return busy;
}

void RelayCore::inject(InjectedFrame injected) {
  owner_.check();
  OpenRefit* const refit = find(injected.refit);
  if (refit == nullptr || refit->leaving || injected.producer.value >= refit->children.size()) {
    observer_.on_fault(injected.refit, options_.member_id,
                       failure(ErrorCode::kProtocol, Stage::kRelay,
                               "frame injected into refit " + to_string(injected.refit) +
                                   ", which is not open here"));
    return;
  }
  forward(*refit, injected.producer, injected.frame);
}

bool RelayCore::drained(const RefitId& refit) const {
  for (const auto& open : refits_) {
    if (open->identity.refit != refit) continue;
    return std::all_of(open->downstream.begin(), open->downstream.end(),
                       [](const auto& link) { return link->untaken() == 0; });
  }
  return true;
}

void RelayCore::leave(const RefitId& refit) {
  owner_.check();
  now_ = clock_.now();
  OpenRefit* const open = find(refit);
  if (open == nullptr || open->leaving) return;
  open->leaving = true;
  for (const auto& link : open->upstream) close_upstream(*link);
  for (const auto& link : open->downstream) {
    if (link->phase == LinkPhase::kEnded) continue;
    link->drop_all();
    const bool connected = link->phase == LinkPhase::kOpen;
    link->phase = LinkPhase::kClosing;
    link->deadline = now_ + (connected ? options_.times.settle : Duration{0});
    link->next_message = now_;
  }
}

void RelayCore::leave_all() {
  for (const auto& refit : refits_) leave(refit->identity.refit);
}

void RelayCore::close() {
  if (fabric_ == nullptr) return;
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
  // The endpoint is gone: nothing can be written any more, so that quarantine ends too.
  for (std::uint32_t slot = 0; slot < quarantine_.size(); ++slot) {
    if (quarantine_[slot] != 0) pool_.release(slot, false);
    quarantine_[slot] = 0;
  }
  quarantined_ = 0;
  for (WriteUnderWay& write : writes_) {
    counters_.frames_abandoned += write.busy ? 1 : 0;
    write = {};
  }
  flush_counters();
  peers_.clear();
  fabric_.reset();
}

}  // namespace weft::transport
