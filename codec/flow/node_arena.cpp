// SPDX-License-Identifier: Apache-2.0
#include "codec/flow/node_arena.hpp"

#include <pthread.h>
#include <sched.h>

#include <cstddef>
#include <utility>

namespace weft::codec {

namespace {

// What a thread may run on, as the system has it: any number of processors.
// Threads: one at a time.
class CpuSet {
 public:
  static constexpr std::size_t kCpus = 8192;
  CpuSet() : words_(kCpus / kWordBits) {}
  void add(std::uint32_t cpu) {
    if (cpu < kCpus) words_[cpu / kWordBits] |= 1UL << (cpu % kWordBits);
  }
  // Where the calling thread may run. If that cannot be read, nothing: apply() then does nothing.
  void read() {
    if (pthread_getaffinity_np(pthread_self(), bytes(), set()) != 0)
      words_.assign(words_.size(), 0);
  }
  void keep_only(const CpuSet& other) {
    for (std::size_t i = 0; i < words_.size(); ++i) words_[i] &= other.words_[i];
  }
  // Refused, or empty: the thread runs where it did.
  void apply() { pthread_setaffinity_np(pthread_self(), bytes(), set()); }

 private:
  static constexpr std::size_t kWordBits = 8 * sizeof(unsigned long);
  std::size_t bytes() const { return words_.size() * sizeof(unsigned long); }
  cpu_set_t* set() { return reinterpret_cast<cpu_set_t*>(words_.data()); }
  std::vector<unsigned long> words_;
};

// The bindings to go back to: an arena may be entered from within another.
thread_local std::vector<CpuSet> earlier;

}  // namespace

NodeArena::Binder::Binder(oneapi::tbb::task_arena& arena, const std::vector<std::uint32_t>& cpus)
    : task_scheduler_observer(arena), cpus_(cpus) {
  if (!cpus_.empty()) observe(true);
}

void NodeArena::Binder::on_scheduler_entry(bool /*is_worker*/) {
  CpuSet before;
  before.read();
  CpuSet wanted;
  for (const std::uint32_t cpu : cpus_) wanted.add(cpu);
  wanted.keep_only(before);  // whoever has bound the thread or the process has a reason
  wanted.apply();
  earlier.push_back(std::move(before));
}

void NodeArena::Binder::on_scheduler_exit(bool /*is_worker*/) {
  if (earlier.empty()) return;
  earlier.back().apply();
  earlier.pop_back();
}

NodeArena::NodeArena(const NumaShare& share, bool callers)
    : share_(share),
      arena_(static_cast<int>(share.threads), callers ? 1 : 0),
      binder_(arena_, share_.node.cpus) {}

NodeArena::~NodeArena() { binder_.observe(false); }

}  // namespace weft::codec
