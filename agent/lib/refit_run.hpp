// SPDX-License-Identifier: Apache-2.0
// One open refit at an agent: its resolver, and who is still at work on it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "agent/lib/node_state.hpp"
#include "apply/journal/resolver.hpp"
#include "apply/spool/spool.hpp"
#include "codec/frame/frame_view.hpp"
#include "weft/base/clock.hpp"
#include "weft/base/guarded.hpp"
#include "weft/base/lease.hpp"
#include "weft/base/result.hpp"

namespace weft::agent {

// RefitRun counts who is at work on a refit (opening it, resolving a frame, proving it), so that
// Prove starts when every frame is done and Forget when nobody is at work any more.
// While its base is still being applied here it has no resolver: accept() only keeps the frames,
// and start_resolve() takes them up. Threads: any; the resolver is set once.
class RefitRun {
 public:
  using PlanPointer = std::shared_ptr<const wire::Plan>;

  explicit RefitRun(PlanPointer plan) : refit_(plan->refit), plan_(PlanState{std::move(plan)}) {}

  const RefitId& refit() const { return refit_; }
  // The newest one. True: the trees have been entered already, and must be entered anew.
  bool renew_plan(PlanPointer plan);
  PlanPointer plan() const;
  // The trees were entered by this plan. False: a newer one has come meanwhile.
  bool entered(std::uint32_t revision);
  // True the first time: a frame that does not decode is fetched once more.
  bool refetch_once(const apply::FrameId& frame);
  void set_resolver(std::unique_ptr<apply::Resolver> resolver, TablePointer base_table,
                    std::shared_ptr<apply::CheckpointDir> checkpoint) {
    base_table_ = std::move(base_table);
    checkpoint_ = std::move(checkpoint);
    resolver_ = std::move(resolver);
    ready_.store(resolver_.get());
  }
  bool has_resolver() const { return ready_.load() != nullptr; }
  apply::Resolver& resolver() { return *ready_.load(); }
  // Instead of a resolver, before the trees are entered.
  void set_spool(std::unique_ptr<apply::Spool> spool, const codec::FrameExpected& expected);
  // `open` sets the resolver, which reads the kept frames again; frames that come meanwhile wait.
  Status start_resolve(const std::function<Status()>& open);
  void close_spool();
  // Resolves the frame, or keeps it. Errors: those of Resolver::accept.
  Result<apply::Accepted> accept(std::span<const std::byte> frame, apply::ResolveScratch& scratch);
  // Frames of the producer that need not be sent again; none while start_resolve() is at work.
  std::vector<FrameSequence> held_frames(ProducerIndex producer);

  // False when the run has ended: the work is not wanted.
  bool enter();
  void leave();
  // From now on nobody enters and every wait ends.
  void cancel();
  bool cancelled() const;
  // Until nobody is at work; after cancel() that takes one frame's time.
  void wait_idle();
  // Until every frame of the manifest is resolved, with a resolver that may yet come. Errors:
  // kTimeout (names what is missing), kBusy (cancelled).
  Status wait_complete(const wire::Manifest& manifest, TimePoint deadline);

 private:
  struct Activity {
    std::uint32_t at_work = 0;
    std::uint64_t finished = 0;
    bool cancelled = false;
  };

  struct PlanState {
    PlanPointer plan;
    bool entered = false;
  };

  const RefitId refit_;
  mutable Guarded<PlanState> plan_;
  Guarded<std::set<apply::FrameId>> refetched_;
  // Both outlive the resolver, which reads them.
  TablePointer base_table_;
  std::shared_ptr<apply::CheckpointDir> checkpoint_;
  std::unique_ptr<apply::Resolver> resolver_;
  std::atomic<apply::Resolver*> ready_{nullptr};  // the same, once it is whole
  std::mutex spooling_;
  std::unique_ptr<apply::Spool> spool_;  // under spooling_, with what its frames must be
  codec::FrameExpected expected_;
  mutable Guarded<Activity> activity_;
};

// FrameWorkers resolves frames on a few threads, each with a scratch of its own.
// Threads: any for push; the callback runs on the workers.
// Limits:  the queue is bounded by the slots that the frames hold.
class FrameWorkers {
 public:
  struct Work {
    std::shared_ptr<RefitRun> run;
    SharedSlot frame;
  };
  using Done = std::function<void(RefitRun& run, const apply::FrameId& frame,
                                  const Result<apply::Accepted>& outcome)>;

  FrameWorkers(std::uint32_t thread_count, Done done);
  ~FrameWorkers();
  void push(Work work);

 private:
  struct Queue {
    std::deque<Work> works;
    bool closed = false;
  };
  void run_worker();

  Done done_;
  Guarded<Queue> queue_;
  std::vector<std::thread> threads_;
};

}  // namespace weft::agent
