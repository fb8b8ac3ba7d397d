// SPDX-License-Identifier: Apache-2.0
#include "apply/store/thread_priority.hpp"

#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>

namespace weft::apply {

namespace {

constexpr int kNiceMax = 19;

}  // namespace

void give_way_to_readers(std::uint32_t nice_steps) {
  if (nice_steps == 0 || ::sched_getscheduler(0) != SCHED_OTHER) return;
  // Both are allowed to everybody; where a sandbox refuses them, the thread goes on as it was.
  const sched_param none{};
  static_cast<void>(::sched_setscheduler(0, SCHED_BATCH, &none));
  errno = 0;
  const int now = ::getpriority(PRIO_PROCESS, 0);  // of this thread, on Linux
  if (now == -1 && errno != 0) return;
  static_cast<void>(
      ::setpriority(PRIO_PROCESS, 0, std::min(kNiceMax, now + static_cast<int>(nice_steps))));
}

}  // namespace weft::apply
