// SPDX-License-Identifier: Apache-2.0
#include "agent/lib/refit_run.hpp"

#include <cstring>
#include <utility>

namespace weft::agent {
namespace {

constexpr Duration kWakeUp = std::chrono::milliseconds(100);

}  // namespace

bool RefitRun::renew_plan(PlanPointer plan) {
  return plan_.with([&](PlanState& state) {
    if (plan->revision > state.plan->revision) state.plan = std::move(plan);
    return state.entered;
  });
}

RefitRun::PlanPointer RefitRun::plan() const {
  return plan_.with([](const PlanState& state) { return state.plan; });
}

bool RefitRun::entered(std::uint32_t revision) {
  return plan_.with([&](PlanState& state) {
    state.entered = state.plan->revision <= revision;
    return state.entered;
  });
}

bool RefitRun::refetch_once(const apply::FrameId& frame) {
  return refetched_.with(
      [&](std::set<apply::FrameId>& refetched) { return refetched.insert(frame).second; });
}

void RefitRun::set_spool(std::unique_ptr<apply::Spool> spool,
                         const codec::FrameExpected& expected) {
  const std::lock_guard lock(spooling_);
  spool_ = std::move(spool);
  expected_ = expected;
}

Status RefitRun::start_resolve(const std::function<Status()>& open) {
  const std::lock_guard lock(spooling_);
  spool_.reset();  // the resolver opens it anew
  return open();
}

void RefitRun::close_spool() {
  const std::lock_guard lock(spooling_);
  spool_.reset();
}

Result<apply::Accepted> RefitRun::accept(std::span<const std::byte> frame,
                                         apply::ResolveScratch& scratch) {
  if (apply::Resolver* const resolver = ready_.load()) return resolver->accept(frame, scratch);
  const std::lock_guard lock(spooling_);
  if (apply::Resolver* const resolver = ready_.load()) return resolver->accept(frame, scratch);
  // Its resolver could not be opened: the vote is NO, nothing is kept any more.
  if (spool_ == nullptr) return apply::Accepted::kDuplicate;
  WEFT_TRY(const codec::FrameView view, codec::FrameView::open(frame, expected_));
  const wire::FrameHeader& header = view.header();
  WEFT_TRY_STATUS(spool_->append(ProducerIndex{header.producer}, FrameSequence{header.sequence},
                                 frame.first(static_cast<std::size_t>(header.frame_bytes()))));
  return apply::Accepted::kNew;
}

std::vector<FrameSequence> RefitRun::held_frames(ProducerIndex producer) {
  const std::unique_lock lock(spooling_, std::try_to_lock);
  if (!lock) return {};
  if (spool_ != nullptr) return spool_->sequences(producer);
  if (!has_resolver() || resolver().spool() == nullptr) return {};
  auto held = resolver().spool()->sequences(producer);
  std::erase_if(held,
                [&](FrameSequence sequence) { return !resolver().holds(producer, sequence); });
  return held;
}

bool RefitRun::enter() {
  return activity_.with([](Activity& activity) {
    if (activity.cancelled) return false;
    ++activity.at_work;
    return true;
  });
}

void RefitRun::leave() {
  activity_.update([](Activity& activity) {
    --activity.at_work;
    ++activity.finished;
  });
}

void RefitRun::cancel() {
  activity_.update([](Activity& activity) { activity.cancelled = true; });
}

bool RefitRun::cancelled() const {
  return activity_.with([](const Activity& activity) { return activity.cancelled; });
}

void RefitRun::wait_idle() {
  // Bounded: a worker holds a run for one frame at a time.
  bool idle = false;
  while (!idle) {
    idle = activity_.wait_for(
        kWakeUp, [](const Activity& activity) { return activity.at_work == 0; },
        [](const Activity&, bool was_idle) { return was_idle; });
  }
}

Status RefitRun::wait_complete(const wire::Manifest& manifest, TimePoint deadline) {
  std::uint64_t seen = ~std::uint64_t{0};
  while (true) {
    const bool resolving = has_resolver();
    const auto missing =
        resolving ? resolver().missing(manifest, 1) : std::vector<apply::FrameId>();
    const auto left = deadline - std::chrono::steady_clock::now();
    const bool idle = activity_.with([&](Activity& activity) {
      seen = activity.finished;
      return activity.at_work == 0;
    });
    if (cancelled()) {
      return failure(ErrorCode::kBusy, Stage::kPrepare, to_string(refit_) + " has ended");
    }
    if (resolving && missing.empty() && idle) return ok();
    if (left <= Duration::zero()) {
      if (!resolving) {
        return failure(ErrorCode::kTimeout, Stage::kPrepare,
                       "the base is still being applied at prepare_timeout");
      }
      return failure(ErrorCode::kTimeout, Stage::kPrepare,
                     missing.empty()
                         ? "frames are still being resolved at prepare_timeout"
                         : "frame " + std::to_string(missing.front().sequence.value) +
                               " of producer " + std::to_string(missing.front().producer.value) +
                               " is missing at prepare_timeout");
    }
    activity_.wait_for(
        std::min<Duration>(left, kWakeUp),
        [&](const Activity& activity) { return activity.finished != seen || activity.cancelled; },
        [](const Activity&, bool) {});
  }
}

FrameWorkers::FrameWorkers(std::uint32_t thread_count, Done done) : done_(std::move(done)) {
  for (std::uint32_t i = 0; i < thread_count; ++i) threads_.emplace_back([this] { run_worker(); });
}

FrameWorkers::~FrameWorkers() {
  queue_.update([](Queue& queue) { queue.closed = true; });
  for (std::thread& thread : threads_) thread.join();
}

void FrameWorkers::push(Work work) {
  queue_.update([&](Queue& queue) { queue.works.push_back(std::move(work)); });
}

void FrameWorkers::run_worker() {
  apply::ResolveScratch scratch;
  while (true) {
    Work work;
    const bool closed = queue_.wait_for(
        kWakeUp, [](const Queue& queue) { return queue.closed || !queue.works.empty(); },
        [&](Queue& queue, bool) {
          if (queue.works.empty()) return queue.closed;
          work = std::move(queue.works.front());
          queue.works.pop_front();
          return false;
        });
    if (closed) return;
    if (work.run == nullptr) continue;
    if (!work.run->cancelled()) {
      wire::FrameHeader header;
      std::memcpy(&header, work.frame.frame().data(), sizeof(header));
      done_(*work.run, {ProducerIndex{header.producer}, FrameSequence{header.sequence}},
            work.run->accept(work.frame.frame(), scratch));
    }
    work.frame.drop();
    work.run->leave();
  }
}

}  // namespace weft::agent
