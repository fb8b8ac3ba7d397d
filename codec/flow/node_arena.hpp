// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <oneapi/tbb/task_arena.h>
#include <oneapi/tbb/task_scheduler_observer.h>

#include <vector>

#include "codec/flow/numa_plan.hpp"

namespace weft::codec {

// NodeArena is a TBB arena whose threads run on the processors of one NUMA node only, so that what
// they touch first lies there. A thread is bound when it enters the arena and unbound when it
// leaves. (TBB's own constraints load a library that ends the process under AddressSanitizer.)
// Threads: any.
class NodeArena {
 public:
  // With `callers`, a thread that calls execute() takes one of the share's places; without, all
  // places are for threads of TBB's, and work comes by enqueue().
  NodeArena(const NumaShare& share, bool callers);
  NodeArena(const NodeArena&) = delete;
  NodeArena& operator=(const NodeArena&) = delete;
  ~NodeArena();

  oneapi::tbb::task_arena& arena() { return arena_; }
  const NumaShare& share() const { return share_; }

 private:
  // Threads: any.
  class Binder final : public oneapi::tbb::task_scheduler_observer {
   public:
    Binder(oneapi::tbb::task_arena& arena, const std::vector<std::uint32_t>& cpus);
    void on_scheduler_entry(bool is_worker) override;
    void on_scheduler_exit(bool is_worker) override;

   private:
    const std::vector<std::uint32_t>& cpus_;
  };

  NumaShare share_;
  oneapi::tbb::task_arena arena_;
  Binder binder_;
};

}  // namespace weft::codec
