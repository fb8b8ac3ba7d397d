// SPDX-License-Identifier: Apache-2.0
// A runtime's side of the weights, for system tests. Reads until its standard input ends, then
// prints one JSON object and leaves.
//   weft_weight_reader hash DIR     takes the lock, hashes every byte, compares with the root told
//   weft_weight_reader follow DIR   keeps a copy up to date from what changes, compares its root
//   weft_weight_reader gap DIR      polls every 0.1 ms: the longest time without the right to read
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "apply/patch/digest_directory.hpp"
#include "apply/store/checkpoint_dir.hpp"
#include "codec/project/lattice.hpp"
#include "weft/weight_view.hpp"
#include "weft/wire/digest.hpp"

namespace {

using namespace weft;  // NOLINT(google-build-using-namespace)
using namespace std::chrono_literals;

constexpr Duration kPatience = 60s;
NullEventSink no_events;

bool input_ended(int patience_ms) {
  pollfd ready{STDIN_FILENO, POLLIN, 0};
  char byte = 0;
  return ::poll(&ready, 1, patience_ms) == 1 && ::read(STDIN_FILENO, &byte, 1) <= 0;
}

// A time without the right to read, and what it was made of. Asleep and waiting include the time in
// which the reader could have run but was given no processor.
// Threads: a value; one at a time.
struct Gap {
  double begin_ms = 0;  // CLOCK_MONOTONIC, to find it in a trace of the kernel
  double end_ms = 0;
  double asleep_ms = 0;     // asked for 0.1
  double waiting_ms = 0;    // in WeightView::acquire
  double run_delay_ms = 0;  // ready to run, without a processor
  double length_ms() const { return end_ms - begin_ms; }
};

double now_ms() {
  return std::chrono::duration<double, std::milli>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// What the kernel tells of the calling thread's time without a processor, in milliseconds.
// Threads: one at a time.
class RunDelay {
 public:
  RunDelay() : file_(::open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC)) {}
  ~RunDelay() { ::close(file_); }
  RunDelay(const RunDelay&) = delete;
  RunDelay& operator=(const RunDelay&) = delete;

  // 0 where the kernel does not tell.
  double read_ms() const {
    std::array<char, 128> text{};
    if (::pread(file_, text.data(), text.size() - 1, 0) <= 0) return 0;
    char* rest = nullptr;
    std::strtoull(text.data(), &rest, 10);
    return static_cast<double>(std::strtoull(rest, nullptr, 10)) * 1e-6;
  }

 private:
  const int file_;
};

// Watches a processor with a real-time thread that wakes every 0.5 ms. When it comes late, nothing
// could run there: the machine's host took the processor away, or the kernel did not let go of it.
// Threads: started and joined by one; the rest is read after join.
class ProcessorWatch {
 public:
  explicit ProcessorWatch(int processor) : thread_([this, processor] { run(processor); }) {}
  void join() {
    stop_.store(true);
    if (thread_.joinable()) thread_.join();
  }
  bool allowed() const { return allowed_; }
  // How much of the time between the two was lost.
  double lost_ms(const Gap& gap) const {
    double sum = 0;
    for (const auto& [begin, end] : lost_) {
      sum += std::max(0.0, std::min(end, gap.end_ms) - std::max(begin, gap.begin_ms));
    }
    return sum;
  }

 private:
  static constexpr double kLateMs = 0.5;
  static constexpr std::size_t kLostMax = 100'000;

  void run(int processor) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(static_cast<std::size_t>(processor), &set);
    const sched_param lowest{1};
    allowed_ = ::sched_setaffinity(0, sizeof(set), &set) == 0 &&
               ::sched_setscheduler(0, SCHED_FIFO, &lowest) == 0;
    while (allowed_ && !stop_.load() && lost_.size() < kLostMax) {
      const double due = now_ms() + kLateMs;
      const timespec pause{0, static_cast<long>(kLateMs * 1e6)};
      ::ppoll(nullptr, 0, &pause, nullptr);
      const double woken = now_ms();
      if (woken - due > kLateMs) lost_.emplace_back(due, woken);
    }
  }

  std::atomic<bool> stop_{false};
  bool allowed_ = false;
  std::vector<std::pair<double, double>> lost_;
  std::thread thread_;
};

struct Outcome {
  std::uint64_t reads = 0;
  std::uint64_t mixtures = 0;
  std::uint64_t full_copies = 0;
  std::uint64_t elements = 0;
  Gap longest;            // of all gaps
  double machine_ms = 0;  // lost by the machine in the longest gap; -1: not known
  double own_gap_ms = 0;  // the longest gap without what the machine lost
  std::set<std::uint64_t> versions;
  std::string error;
};

apply::CheckpointDir open_dir(const std::string& path) {
  return *apply::CheckpointDir::open_path(
      path, apply::Access::kRead, {apply::Engine::kPosix, apply::Durability::kProcess}, no_events);
}

void hash(WeightView& view, Outcome& outcome) {
  while (!input_ended(0)) {
    const auto lock = view.acquire(kPatience);
    if (!lock) {
      outcome.error = lock.error().message();
      return;
    }
    const auto checkpoint = open_dir(lock->path());
    const auto lattice = *codec::Lattice::default_for(checkpoint.schema());
    const auto table = apply::digest_directory(checkpoint, lattice, 1);
    if (!table || table->root(lattice) != lock->content().root) ++outcome.mixtures;
    ++outcome.reads;
    outcome.versions.insert(lock->version().value);
  }
}

// The tensors in this process's memory, as an engine would have them on a device.
// Threads: one at a time.
class Copy {
 public:
  explicit Copy(const std::string& path)
      : schema_(open_dir(path).schema()), lattice_(*codec::Lattice::default_for(schema_)) {}

  void read_all(const std::string& path) {
    const auto checkpoint = open_dir(path);
    tensors_.clear();
    for (const codec::Tensor& tensor : schema_.tensors()) {
      tensors_.emplace_back(tensor.bytes);
      static_cast<void>(
          checkpoint.file(tensor.file_index).read(tensor.file_offset, tensors_.back()));
    }
  }
  void take(const TensorChange& change) {
    auto& bytes = tensors_[schema_.find(change.name)->value];
    for (std::size_t i = 0; i < change.offsets.size(); ++i) {
      std::memcpy(bytes.data() + change.offsets[i] * change.element_bytes,
                  change.values.data() + i * change.element_bytes, change.element_bytes);
    }
  }
  Digest root() const {
    codec::DigestTable table(lattice_.chunk_count());
    for (std::uint32_t i = 0; i < lattice_.chunk_count(); ++i) {
      const auto place = lattice_.place(ChunkIndex{i});
      table.set(
          ChunkIndex{i},
          wire::digest64(std::span(tensors_[place.tensor.value])
                             .subspan(place.first_element * place.element_bytes(), place.bytes())));
    }
    return table.root(lattice_);
  }

 private:
  codec::Schema schema_;
  codec::Lattice lattice_;
  std::vector<std::vector<std::byte>> tensors_;
};

void follow(WeightView& view, Outcome& outcome) {
  auto first = view.acquire(kPatience);
  if (!first) {
    outcome.error = first.error().message();
    return;
  }
  Copy copy(first->path());
  copy.read_all(first->path());
  Version version = first->version();
  { const WeightLock done = *std::move(first); }
  while (!input_ended(0)) {
    const auto step = view.wait(100ms);
    if (!step) continue;
    const auto summary =
        view.changes(version, step->to, [&](const TensorChange& change) { copy.take(change); });
    const auto lock = view.acquire(kPatience);
    if (!summary || !lock) {
      outcome.error = !summary ? summary.error().message() : lock.error().message();
      return;
    }
    if (summary->needs_full || lock->version() != step->to) {
      ++outcome.full_copies;
      copy.read_all(lock->path());
      version = lock->version();
      continue;
    }
    version = step->to;
    outcome.elements += summary->changed_elements;
    if (copy.root() != lock->content().root) ++outcome.mixtures;
    ++outcome.reads;
    outcome.versions.insert(version.value);
  }
}

// Of what the machine lost, the processor that lost most counts: the reader was on one of them.
double lost_ms(const std::vector<std::unique_ptr<ProcessorWatch>>& watches, const Gap& gap) {
  double most = 0;
  for (const auto& watch : watches) most = std::max(most, watch->lost_ms(gap));
  return std::min(most, gap.length_ms());
}

std::vector<std::unique_ptr<ProcessorWatch>> watch_processors() {
  std::vector<std::unique_ptr<ProcessorWatch>> watches;
  cpu_set_t mine;
  CPU_ZERO(&mine);
  ::sched_getaffinity(0, sizeof(mine), &mine);
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(static_cast<std::size_t>(i), &mine)) {
      watches.push_back(std::make_unique<ProcessorWatch>(i));
    }
  }
  return watches;
}

std::vector<Gap> poll_weights(WeightView& view, Outcome& outcome) {
  std::vector<Gap> gaps;  // those worth a look
  const RunDelay run_delay;
  double last = now_ms();
  double delay_before = run_delay.read_ms();
  while (!input_ended(0)) {
    const double asked = now_ms();
    auto lock = view.acquire(kPatience);
    if (!lock) {
      outcome.error = lock.error().message();
      break;
    }
    const double now = now_ms();
    const double delay = run_delay.read_ms();
    const Gap gap{last, now, asked - last, now - asked, delay - delay_before};
    if (outcome.reads != 0 && gap.length_ms() > 1) gaps.push_back(gap);
    if (outcome.reads != 0 && gap.length_ms() > outcome.longest.length_ms()) outcome.longest = gap;
    delay_before = delay;
    last = now;
    ++outcome.reads;
    outcome.versions.insert(lock->version().value);
    { const WeightLock done = *std::move(lock); }
    const timespec pause{0, 100'000};
    ::ppoll(nullptr, 0, &pause, nullptr);
  }
  return gaps;
}

void measure_gap(WeightView& view, Outcome& outcome) {
  const auto watches = watch_processors();
  const std::vector<Gap> gaps = poll_weights(view, outcome);
  for (const auto& watch : watches) watch->join();
  const bool known = std::all_of(watches.begin(), watches.end(),
                                 [](const auto& watch) { return watch->allowed(); });
  outcome.machine_ms = known ? lost_ms(watches, outcome.longest) : -1;
  for (const Gap& gap : gaps) {
    outcome.own_gap_ms = std::max(outcome.own_gap_ms, gap.length_ms() - lost_ms(watches, gap));
  }
  if (gaps.empty()) outcome.own_gap_ms = outcome.longest.length_ms();
}

int finish(const Outcome& outcome) {
  std::string versions;
  for (const std::uint64_t version : outcome.versions) {
    versions += (versions.empty() ? "" : ",") + std::to_string(version);
  }
  std::printf(
      "{\"reads\":%llu,\"mixtures\":%llu,\"full_copies\":%llu,\"elements\":%llu,"
      "\"longest_gap_ms\":%.3f,\"asleep_ms\":%.3f,\"waiting_ms\":%.3f,\"run_delay_ms\":%.3f,"
      "\"end_seconds\":%.6f,\"machine_ms\":%.3f,\"own_gap_ms\":%.3f,\"versions\":[%s]}\n",
      static_cast<unsigned long long>(outcome.reads),
      static_cast<unsigned long long>(outcome.mixtures),
      static_cast<unsigned long long>(outcome.full_copies),
      static_cast<unsigned long long>(outcome.elements), outcome.longest.length_ms(),
      outcome.longest.asleep_ms, outcome.longest.waiting_ms, outcome.longest.run_delay_ms,
      outcome.longest.end_ms * 1e-3, outcome.machine_ms, outcome.own_gap_ms, versions.c_str());
  if (!outcome.error.empty()) std::fprintf(stderr, "%s\n", outcome.error.c_str());
  return outcome.error.empty() && outcome.mixtures == 0 ? 0 : 1;
}

}  // namespace

int main(int count, char** arguments) {
  const std::string mode = count == 3 ? arguments[1] : "";
  if (mode != "hash" && mode != "follow" && mode != "gap") {
    std::fprintf(stderr, "usage: weft_weight_reader hash|follow|gap DIR\n");
    return 2;
  }
  auto view = WeightView::open(arguments[2]);
  if (!view) {
    std::fprintf(stderr, "%s\n", view.error().message().c_str());
    return 1;
  }
  Outcome outcome;
  if (mode == "hash") hash(*view, outcome);
  if (mode == "follow") follow(*view, outcome);
  if (mode == "gap") measure_gap(*view, outcome);
  return finish(outcome);
}
