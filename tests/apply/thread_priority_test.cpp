// SPDX-License-Identifier: Apache-2.0
#include "apply/store/thread_priority.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <thread>

#include "apply/store/thread_crew.hpp"

namespace weft::apply {
namespace {

// Threads: a value; one at a time.
struct Priority {
  int nice = 0;
  int policy = 0;
  static Priority of_this_thread() {
    return {::getpriority(PRIO_PROCESS, 0), ::sched_getscheduler(0)};
  }
};

// On a thread of its own: nothing brings a thread's priority back.
Priority after(std::uint32_t nice_steps) {
  Priority found;
  std::thread([&] {
    give_way_to_readers(nice_steps);
    found = Priority::of_this_thread();
  }).join();
  return found;
}

TEST(GiveWayToReaders, AddsToTheThreadsNiceValueAndNeverGoesBeyondTheLowest) {
  const Priority before = Priority::of_this_thread();
  const bool ordinary = before.policy == SCHED_OTHER;  // else somebody started the tests on purpose
  EXPECT_EQ(after(5).nice, ordinary ? std::min(19, before.nice + 5) : before.nice);
  EXPECT_EQ(after(5).policy, ordinary ? SCHED_BATCH : before.policy);
  EXPECT_EQ(after(1000).nice, ordinary ? 19 : before.nice);
  EXPECT_EQ(Priority::of_this_thread().nice, before.nice);
}

TEST(GiveWayToReaders, ZeroLeavesTheThreadAsItWas) {
  const Priority before = Priority::of_this_thread();
  EXPECT_EQ(after(0).nice, before.nice);
  EXPECT_EQ(after(0).policy, before.policy);
}

TEST(GiveWayToReaders, ThreadsOfACrewAreLikeTheOneThatStartsThem) {
  Priority first;
  Priority second;
  std::thread([&] {
    give_way_to_readers(3);
    EXPECT_TRUE(run_on_threads(2, Stage::kApply, [&](std::uint32_t i) {
      (i == 0 ? first : second) = Priority::of_this_thread();
    }));
  }).join();
  EXPECT_EQ(second.nice, first.nice);
  EXPECT_EQ(second.policy, first.policy);
}

}  // namespace
}  // namespace weft::apply
