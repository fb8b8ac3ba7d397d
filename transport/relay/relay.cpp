// SPDX-License-Identifier: Apache-2.0
#include "transport/relay/relay.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <deque>
#include <functional>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>
#include <time.h>

#include "transport/fabric/ofi_fabric.hpp"
#include "transport/relay/handover_queue.hpp"
#include "transport/relay/relay_core.hpp"
#include "weft/base/guarded.hpp"

namespace weft::transport {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr Duration kCallTimeout = std::chrono::seconds(10);
constexpr Duration kSpin = microseconds(50);
// With open refits each sleep is a share of the quiet so far: what comes next is late by at most
// that share of its distance, and a link of few frames costs few wake-ups.
constexpr Duration kSleepMin = microseconds(50);
constexpr Duration kSleepMax = microseconds(500);
constexpr int kSleepShare = 4;
constexpr Duration kSleepIdle = milliseconds(10);  // no open refit
constexpr std::size_t kInjectsPerTurn = 64;

void sleep_for(Duration time) {
  const timespec pause{0, static_cast<long>(time.count())};
  nanosleep(&pause, nullptr);
}

// The rail's address; changes when a provider cannot open it again at the same one.
using RailAddressBytes = Guarded<std::vector<std::byte>>;

// The port at the end of "fi_sockaddr_in://127.0.0.1:4711", 0 if there is none.
std::uint16_t port_of(const std::string& address) {
  std::uint16_t port = 0;
  const std::size_t colon = address.rfind(':');
  if (colon == std::string::npos) return 0;
  const char* const end = address.data() + address.size();
  const auto [stop, error] = std::from_chars(address.data() + colon + 1, end, port);
  return error == std::errc{} && stop == end ? port : std::uint16_t{0};
}

// The result of a call that the progress thread carries out.
// Threads: any.
template <typename T>
struct Answer {
  Guarded<std::optional<T>> value;
  void give(T result) {
    value.update([&](std::optional<T>& slot) { slot = std::move(result); });
  }
};

}  // namespace

// Body is the progress thread and what is handed over to it.
// Threads: any, except run() and what it calls.
class Relay::Body {
 public:
  Body(RelayOptions options, SlabPool& pool, std::unique_ptr<RelayCore> core, EventSink& events,
       std::shared_ptr<RailAddressBytes> address)
      : options_(std::move(options)),
        pool_(pool),
        core_(std::move(core)),
        events_(events),
        process_(core_->process()),
        facts_(core_->fabric().facts()),
        address_(std::move(address)),
        injected_(pool.slot_count()),
        provided_(pool.slot_count()) {}

  Status start() {
    try {
      thread_ = std::thread([this] { run(); });
    } catch (const std::system_error& error) {
      return failure(ErrorCode::kResourceLimit, Stage::kOpen,
                     std::string("progress thread: ") + error.what(), error.code().value());
    }
    return ok();
  }

  ProcessId process() const { return process_; }
  const FabricFacts& facts() const { return facts_; }
  std::vector<wire::RailAddress> rails() const {
    return address_->with([&](const std::vector<std::byte>& address) {
      return std::vector{wire::RailAddress{facts_.provider, facts_.protocol, address}};
    });
  }

  Status enter(const wire::Plan& plan, NodeIndex self) {
    auto answer = std::make_shared<Answer<Status>>();
    // The plan is copied: this call may give up before the thread gets to it.
    const bool taken = call([this, plan = std::make_shared<const wire::Plan>(plan), self, answer] {
      answer->give(core_->enter(*plan, self));
    });
    if (!taken) return failure(ErrorCode::kProtocol, Stage::kRelay, "the relay is closed");
    return wait(*answer, "enter");
  }

  Status inject(ProducerIndex producer, const wire::FrameHeader& header, SharedSlot frame) {
    const bool ours = frame && frame.owner() == &pool_;
    if (!ours || header.producer != producer.value ||
        frame.frame().size() != header.frame_bytes()) {
      return failure(ErrorCode::kProtocol, Stage::kRelay,
                     "injected frame is not in a slot of this relay's pool or not the header's");
    }
    InjectedFrame handed{header.refit(), producer, std::move(frame)};
    if (!injected_.try_push(handed)) {
      return failure(ErrorCode::kBusy, Stage::kRelay, "more frames injected than there are slots");
    }
    return ok();
  }

  void provide(SharedSlot frame) {
    if (!frame || frame.owner() != &pool_) return;
    // As many as there are reserve slots, so that it is never full.
    static_cast<void>(provided_.try_push(frame));
  }

  void mark_held(const RefitId& refit, ProducerIndex producer,
                 std::vector<FrameSequence> sequences) {
    call([this, refit, producer, sequences = std::move(sequences)] {
      core_->mark_held(refit, producer, sequences);
    });
  }

  void set_goal(const RefitId& refit, std::vector<std::uint32_t> frame_counts) {
    call([this, refit, counts = std::move(frame_counts)] { core_->set_goal(refit, counts); });
  }

  void finish(const RefitId& refit, ProducerIndex producer, std::uint32_t frame_count) {
    call([this, refit, producer, frame_count] { core_->finish(refit, producer, frame_count); });
  }

  void refetch(const RefitId& refit, ProducerIndex producer, FrameSequence sequence) {
    call([this, refit, producer, sequence] { core_->refetch(refit, producer, sequence); });
  }

  Status wait_drained(const RefitId& refit, Duration timeout) {
    auto answer = std::make_shared<Answer<bool>>();
    if (!call([this, refit, answer] { drains_.push_back({refit, answer}); })) return ok();
    const bool drained = answer->value.wait_for(
        timeout, [](const std::optional<bool>& slot) { return slot.has_value(); },
        [](const std::optional<bool>&, bool given) { return given; });
    if (drained) return ok();
    call([this, answer] {
      std::erase_if(drains_, [&](const Drain& drain) { return drain.answer == answer; });
    });
    return failure(ErrorCode::kTimeout, Stage::kRelay,
                   "children have not taken every frame of refit " + to_string(refit));
  }

  std::vector<LinkStatus> links() const {
    return links_.with([](const std::vector<LinkStatus>& links) { return links; });
  }

  void leave(const RefitId& refit) {
    call([this, refit] {
      take_all_injected();  // in the order of the calls
      show_links();
      core_->leave(refit);
    });
  }

  Status close(Duration timeout) {
    if (!thread_.joinable()) return ok();
    close_deadline_ = std::chrono::steady_clock::now() + timeout;
    closing_ = true;
    thread_.join();
    if (closed_in_time_) return ok();
    return failure(ErrorCode::kTimeout, Stage::kRelay,
                   "links had not ended when the relay was closed");
  }

 private:
  struct Drain {
    RefitId refit;
    std::shared_ptr<Answer<bool>> answer;
  };
  struct Calls {
    std::deque<std::function<void()>> waiting;
    bool closed = false;
  };

  // False once the progress thread has ended.
  bool call(std::function<void()> action) {
    const bool taken = calls_.with([&](Calls& calls) {
      if (!calls.closed) calls.waiting.push_back(std::move(action));
      return !calls.closed;
    });
    calls_waiting_ = true;
    return taken;
  }

  Status wait(Answer<Status>& answer, const char* what) {
    return answer.value.wait_for(
        kCallTimeout, [](const std::optional<Status>& slot) { return slot.has_value(); },
        [&](std::optional<Status>& slot, bool given) -> Status {
          if (given) return std::move(*slot);
          return failure(ErrorCode::kTimeout, Stage::kRelay,
                         std::string("the progress thread did not answer: ") + what);
        });
  }

  void run() {
    pthread_setname_np(pthread_self(), "weft-relay");
    prctl(PR_SET_TIMERSLACK, 1'000UL);  // else each short sleep takes 50 us more
    pin();
    core_->adopt_thread();
    auto last_event = std::chrono::steady_clock::now();
    while (!finished()) {
      bool busy = take_calls();
      busy |= take_injected();
      busy |= take_provided();
      busy |= core_->turn();
      answer_drains();
      const auto now = std::chrono::steady_clock::now();
      if (busy) last_event = now;
      if (now >= next_show_) show_links();
      rest(now - last_event);
    }
    calls_.with([](Calls& calls) { calls.closed = true; });
    take_calls();
    core_->close();
    while (injected_.try_pop()) {
    }
    while (provided_.try_pop()) {
    }
    for (const Drain& drain : drains_) drain.answer->give(true);
  }

  // At heartbeat rate: what a page shows costs the frames nothing.
  void show_links() {
    next_show_ = std::chrono::steady_clock::now() + options_.times.heartbeat;
    std::vector<LinkStatus> links;
    if (!core_->idle()) links = core_->links();
    links_.with([&](std::vector<LinkStatus>& shown) {
      if (!core_->idle()) return shown.swap(links);
      for (LinkStatus& link : shown) {
        link.phase = "ended";
        link.credits = link.waiting = 0;
        link.suspect = link.demoted = false;
      }
    });
  }

  void rest(Duration quiet) {
    if (quiet < kSpin) return;
    if (core_->idle() && !closing_) return sleep_for(kSleepIdle);
    sleep_for(std::clamp(quiet / kSleepShare, kSleepMin, kSleepMax));
  }

  bool finished() {
    if (!closing_) return false;
    core_->leave_all();
    closed_in_time_ = core_->idle();
    return closed_in_time_ || std::chrono::steady_clock::now() >= close_deadline_;
  }

  bool take_calls() {
    if (!calls_waiting_.exchange(false)) return false;
    std::deque<std::function<void()>> taken;
    calls_.with([&](Calls& calls) { taken.swap(calls.waiting); });
    for (const auto& action : taken) action();
    return true;
  }

  bool take_injected() {
    std::size_t taken = 0;
    while (taken < kInjectsPerTurn) {
      auto frame = injected_.try_pop();
      if (!frame) break;
      core_->inject(std::move(*frame));
      ++taken;
    }
    return taken > 0;
  }

  bool take_provided() {
    bool taken = false;
    while (auto frame = provided_.try_pop()) {
      core_->provide(std::move(*frame));
      taken = true;
    }
    return taken;
  }

  void take_all_injected() {
    while (take_injected()) {
    }
  }

  void answer_drains() {
    if (drains_.empty()) return;
    take_all_injected();  // what was injected before the question counts
    std::erase_if(drains_, [&](const Drain& drain) {
      const bool done = core_->drained(drain.refit);
      if (done) drain.answer->give(true);
      return done;
    });
  }

  void pin() {
    if (options_.core < 0) return;
    cpu_set_t cores;
    CPU_ZERO(&cores);
    CPU_SET(static_cast<std::size_t>(options_.core), &cores);
    if (const int error = pthread_setaffinity_np(pthread_self(), sizeof(cores), &cores);
        error != 0) {
      const EventField fields[] = {{"core", std::to_string(options_.core)},
                                   {"error", std::strerror(error)}};
      events_.report(Severity::kWarning, "relay_not_pinned", fields);
    }
  }

  RelayOptions options_;
  SlabPool& pool_;
  std::unique_ptr<RelayCore> core_;
  EventSink& events_;
  ProcessId process_;
  FabricFacts facts_;
  std::shared_ptr<RailAddressBytes> address_;
  HandoverQueue<InjectedFrame> injected_;
  HandoverQueue<SharedSlot> provided_;
  Guarded<Calls> calls_;
  std::atomic<bool> calls_waiting_{false};
  std::atomic<bool> closing_{false};
  std::chrono::steady_clock::time_point close_deadline_;
  bool closed_in_time_ = true;
  std::vector<Drain> drains_;
  Guarded<std::vector<LinkStatus>> links_;
  std::chrono::steady_clock::time_point next_show_;
  std::thread thread_;
};

Relay::Relay(std::unique_ptr<Body> body) : body_(std::move(body)) {}

Result<std::unique_ptr<Relay>> Relay::open(RelayOptions options, SlabPool& pool,
                                           RelayObserver& observer, EventSink& events) {
  // What pinning providers count: the slab, and at most all of it again as receive ranges.
  options.fabric.pinned_bytes = 2 * pool.memory().size();
  options.fabric.doorbells_max = pool.slot_count();
  WEFT_TRY(auto fabric, open_fabric(options.fabric, events));
  // Opened again with the provider that was chosen, at the port it has: peers keep their plans.
  FabricOptions again = options.fabric;
  again.provider = fabric->facts().provider;
  again.port = port_of(fabric->facts().address);
  const auto reopen = [again, &events] { return open_fabric(again, events); };
  return open_with(std::move(fabric), std::move(options), {pool, observer, events, reopen});
}

Result<std::unique_ptr<Relay>> Relay::open_on(std::unique_ptr<Fabric> fabric, RelayOptions options,
                                              SlabPool& pool, RelayObserver& observer,
                                              EventSink& events) {
  return open_with(std::move(fabric), std::move(options), {pool, observer, events, {}});
}

Result<std::unique_ptr<Relay>> Relay::open_with(std::unique_ptr<Fabric> fabric,
                                                RelayOptions options, const Borrowed& borrowed) {
  static const MonotonicClock clock;
  auto address = std::make_shared<RailAddressBytes>(fabric->local_address());
  RelayCore::Environment environment{borrowed.pool, borrowed.observer, borrowed.events, clock};
  if (borrowed.reopen) {
    environment.reopen = [reopen = borrowed.reopen, address] {
      auto reopened = reopen();
      const auto note = [&](std::vector<std::byte>& kept) { kept = (*reopened)->local_address(); };
      if (reopened) address->with(note);
      return reopened;
    };
  }
  WEFT_TRY(auto core, RelayCore::open(options, std::move(fabric), environment));
  auto body = std::make_unique<Body>(std::move(options), borrowed.pool, std::move(core),
                                     borrowed.events, std::move(address));
  WEFT_TRY_STATUS(body->start());
  return std::unique_ptr<Relay>(new Relay(std::move(body)));
}

Relay::~Relay() { static_cast<void>(body_->close(std::chrono::seconds(1))); }

ProcessId Relay::process() const { return body_->process(); }
const FabricFacts& Relay::facts() const { return body_->facts(); }
std::vector<wire::RailAddress> Relay::rails() const { return body_->rails(); }
Status Relay::enter(const wire::Plan& plan, NodeIndex self) { return body_->enter(plan, self); }
Status Relay::inject(ProducerIndex producer, const wire::FrameHeader& header, SharedSlot frame) {
  return body_->inject(producer, header, std::move(frame));
}
void Relay::provide(SharedSlot frame) { body_->provide(std::move(frame)); }
void Relay::mark_held(const RefitId& refit, ProducerIndex producer,
                      std::vector<FrameSequence> sequences) {
  body_->mark_held(refit, producer, std::move(sequences));
}
void Relay::set_goal(const RefitId& refit, std::vector<std::uint32_t> frame_counts) {
  body_->set_goal(refit, std::move(frame_counts));
}
void Relay::finish(const RefitId& refit, ProducerIndex producer, std::uint32_t frame_count) {
  body_->finish(refit, producer, frame_count);
}
void Relay::refetch(const RefitId& refit, ProducerIndex producer, FrameSequence sequence) {
  body_->refetch(refit, producer, sequence);
}
Status Relay::wait_drained(const RefitId& refit, Duration timeout) {
  return body_->wait_drained(refit, timeout);
}
std::vector<LinkStatus> Relay::links() const { return body_->links(); }
void Relay::leave(const RefitId& refit) { body_->leave(refit); }
Status Relay::close(Duration timeout) { return body_->close(timeout); }

}  // namespace weft::transport
