// SPDX-License-Identifier: Apache-2.0
// The actions of one refit that take time: open, prove, apply, forget.
#include <algorithm>
#include <thread>
#include <utility>

#include "agent/lib/fault_point.hpp"
#include "agent/lib/node_agent_body.hpp"

namespace weft::agent {
namespace {

constexpr std::chrono::seconds kLatticeTimeout{60};

std::optional<NodeIndex> find_self(const wire::Plan& plan, const std::string& member_id,
                                   ProcessId process) {
  for (std::uint32_t i = plan.producer_count; i < plan.nodes.size(); ++i) {
    if (plan.nodes[i].member_id == member_id && plan.nodes[i].process == process) {
      return NodeIndex{i};
    }
  }
  return std::nullopt;
}

}  // namespace

void NodeAgent::Body::act(apply::agent::ComputeTable& action) {
  const Digest digest = action.lattice;
  ++tables_under_way_;
  jobs_.start([this, digest] {
    const auto lattice = find_lattice(digest);
    auto table = lattice ? state_->compute_table(**lattice,
                                                 std::max(1U, std::thread::hardware_concurrency()))
                         : Result<TablePointer>(lattice.error());
    Status adopted = table ? state_->adopt_table(**lattice, *table) : Status(table.error());
    --tables_under_way_;
    if (!adopted) {
      post(apply::agent::TableFailed{adopted.error()});
      return;
    }
    scrubber_->note_verified();
    post(apply::agent::TableComputed{(*lattice)->digest(), (*table)->root(**lattice),
                                     state_->boot(), state_->stamps()});
  });
}

// Its body is fetched once per run. Zero: the default lattice.
Result<const codec::Lattice*> NodeAgent::Body::find_lattice(const Digest& digest) {
  LatticeStore& lattices = state_->lattices();
  if (digest.is_zero()) return &lattices.default_lattice();
  if (auto found = lattices.find(digest); found) return *found;
  transport::ControlCallOptions call;
  call.coordinator = config_.coordinator;
  call.tls = config_.tls;
  call.timeout = kLatticeTimeout;
  WEFT_TRY(const auto body, transport::fetch_lattice(call, digest));
  return lattices.add(digest, body);
}

void NodeAgent::Body::act(apply::agent::OpenRefit& action) {
  state_->make_room();
  auto plan = std::make_shared<const wire::Plan>(std::move(action.plan));
  auto run = std::make_shared<RefitRun>(plan);
  run->enter();
  runs_.with([&](Runs& runs) { runs[plan->refit] = run; });
  const bool resolve = action.resolve;
  jobs_.start([this, plan, run, resolve] {
    const Status opened = open_refit(*run, resolve);
    run->leave();
    if (opened) {
      post(apply::agent::RefitOpened{plan->refit});
    } else {
      post(apply::agent::RefitFailed{plan->refit, opened.error()});
    }
  });
}

Status NodeAgent::Body::open_refit(RefitRun& run, bool resolve) {
  WEFT_TRY_STATUS(resolve ? open_resolver(run) : open_spool(run));
  return enter_trees(run);
}

Status NodeAgent::Body::check_schema(const wire::Plan& plan) const {
  if (plan.schema == state_->schema().digest()) return ok();
  return failure(ErrorCode::kSchemaChanged, Stage::kResolve,
                 "the plan's schema " + to_hex(plan.schema) + " is not that of these files, " +
                     to_hex(state_->schema().digest()));
}

// The base is still being applied: what comes is kept as it is until StartResolve.
Status NodeAgent::Body::open_spool(RefitRun& run) {
  const RefitRun::PlanPointer plan = run.plan();
  WEFT_TRY_STATUS(check_schema(*plan));
  WEFT_TRY(const codec::Lattice* const lattice, find_lattice(plan->base.lattice));
  const apply::ResolverStorage storage = state_->storage();
  WEFT_TRY(auto spool, apply::Spool::open(*storage.spool, plan->refit, lattice->producer_count(),
                                          *storage.budget));
  codec::FrameExpected expected;
  expected.fleet = plan->fleet;
  expected.refit = plan->refit;
  expected.lattice = lattice;
  run.set_spool(std::move(spool), expected);
  return ok();
}

void NodeAgent::Body::act(apply::agent::StartResolve& action) {
  const auto run = find_run(action.refit);
  if (run == nullptr || !run->enter()) return;
  jobs_.start([this, run] {
    const Status started = run->start_resolve([&] { return open_resolver(*run); });
    if (started) refetch_unresolved(*run);
    run->leave();
    if (!started) post(apply::agent::RefitFailed{run->refit(), started.error()});
  });
}

// What was kept and does not resolve counts as received at the relay: it is asked for again.
void NodeAgent::Body::refetch_unresolved(RefitRun& run) {
  const std::uint32_t producer_count = run.plan()->producer_count;
  for (std::uint32_t p = 0; p < producer_count; ++p) {
    const ProducerIndex producer{p};
    for (const FrameSequence sequence : run.resolver().spool()->sequences(producer)) {
      if (!run.resolver().holds(producer, sequence)) {
        relay_->refetch(run.refit(), producer, sequence);
      }
    }
  }
}

Status NodeAgent::Body::open_resolver(RefitRun& run) {
  const RefitRun::PlanPointer first = run.plan();
  const wire::Plan& plan = *first;
  WEFT_TRY_STATUS(check_schema(plan));
  TablePointer table = state_->table();
  if (table == nullptr || plan.base.lattice != state_->lattice().digest()) {
    return failure(ErrorCode::kBaseMismatch, Stage::kResolve,
                   "no digest table under the plan's lattice " + to_hex(plan.base.lattice));
  }
  apply::ResolverBase base;
  base.fleet = plan.fleet;
  base.refit = plan.refit;
  base.base = plan.base;
  base.lattice = &state_->lattice();
  auto checkpoint = state_->checkpoint();
  base.checkpoint = checkpoint.get();
  base.table = table.get();
  base.open_targets = [this] { return state_->prepare_targets(); };
  // What an earlier process of this node has spooled of the refit is not asked for again.
  WEFT_TRY(auto resolver, apply::Resolver::open(base, state_->storage(), true));
  run.set_resolver(std::move(resolver), std::move(table), std::move(checkpoint));
  return ok();
}

// By the newest plan, whatever comes meanwhile.
Status NodeAgent::Body::enter_trees(RefitRun& run) {
  while (true) {
    const RefitRun::PlanPointer plan = run.plan();
    const auto self = find_self(*plan, state_->agent_id(), process_);
    if (!self) {
      return failure(ErrorCode::kProtocol, Stage::kRelay, "the plan has no place for this process");
    }
    WEFT_TRY_STATUS(relay_->enter(*plan, *self));
    for (std::uint32_t p = 0; p < plan->producer_count; ++p) {
      auto held = run.held_frames(ProducerIndex{p});
      if (!held.empty()) relay_->mark_held(plan->refit, ProducerIndex{p}, std::move(held));
    }
    if (run.entered(plan->revision)) return ok();
  }
}

// On a worker thread.
void NodeAgent::Body::resolved(RefitRun& run, const apply::FrameId& frame,
                               const Result<apply::Accepted>& outcome) {
  const bool corrupt = !outcome && outcome.error().code == ErrorCode::kCorruptPayload;
  if (corrupt && !run.cancelled() && run.refetch_once(frame)) {
    events_.report(Severity::kWarning, "frame_fetched_again",
                   std::vector<EventField>{{"refit", to_string(run.refit())},
                                           {"error", outcome.error().message()}});
    relay_->refetch(run.refit(), frame.producer, frame.sequence);
    return;
  }
  if (!outcome) {
    if (!run.cancelled()) post(apply::agent::RefitFailed{run.refit(), outcome.error()});
    return;
  }
  if (!run.has_resolver()) return;  // only kept
  const apply::ResolveProgress progress = run.resolver().progress();
  post(apply::agent::RefitProgressed{run.refit(), progress.frames, progress.wire_bytes});
}

void NodeAgent::Body::act(apply::agent::Prove& action) {
  const RefitId refit = action.manifest.refit;
  auto run = find_run(refit);
  if (run == nullptr) {
    next_events_.push_back(apply::agent::ProveFailed{
        refit, failure(ErrorCode::kInternal, Stage::kPrepare, "the refit is not open")});
    return;
  }
  auto manifest = std::make_shared<const wire::Manifest>(std::move(action.manifest));
  std::vector<std::uint32_t> frame_counts;
  for (const wire::ProducerSeal& seal : manifest->producers) {
    frame_counts.push_back(seal.frame_count);
  }
  relay_->set_goal(refit, std::move(frame_counts));
  const TimePoint deadline = action.deadline;
  jobs_.start([this, run, manifest, deadline] {
    const auto begun = std::chrono::steady_clock::now();
    if (auto proved = prove(*run, *manifest, deadline); proved) {
      const double seconds =
          std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
      snapshot_.with([&](NodeSnapshot& shown) { shown.times.prove_seconds = seconds; });
      kill_point("agent.before_vote");
      post(apply::agent::Proved{run->refit()});
    } else {
      post(apply::agent::ProveFailed{run->refit(), proved.error()});
    }
  });
}

Status NodeAgent::Body::prove(RefitRun& run, const wire::Manifest& manifest, TimePoint deadline) {
  WEFT_TRY_STATUS(run.wait_complete(manifest, deadline));
  if (!run.enter()) {
    return failure(ErrorCode::kBusy, Stage::kPrepare, to_string(run.refit()) + " has ended");
  }
  Status proved = run.resolver().prove(manifest);
  run.leave();
  return proved;
}

void NodeAgent::Body::act(apply::agent::ForgetRefit& action) {
  const RefitId refit = action.refit;
  relay_->leave(refit);
  auto run = take_run(refit);
  if (run != nullptr) run->cancel();
  jobs_.start([this, run, refit] {
    if (run != nullptr) {
      run->wait_idle();
      relay_->leave(refit);  // an opening that was under way may have entered since
      run->close_spool();
    }
    const Status forgotten =
        run != nullptr && run->has_resolver() ? run->resolver().forget() : state_->forget(refit);
    if (!forgotten) {
      events_.report(Severity::kWarning, "refit_not_deleted",
                     std::vector<EventField>{{"refit", to_string(refit)},
                                             {"error", forgotten.error().message()}});
    }
    post(apply::agent::RefitForgotten{refit});
  });
}

}  // namespace weft::agent
