// SPDX-License-Identifier: Apache-2.0
// Time comes in from outside: the monotonic clock in programs, a manual one in tests. Wall time is
// for logs only.
#pragma once

#include <atomic>
#include <chrono>

namespace weft {

using Duration = std::chrono::nanoseconds;
using TimePoint = std::chrono::time_point<std::chrono::steady_clock, Duration>;

// Threads: any.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint now() const = 0;
};

// Threads: any.
class MonotonicClock final : public Clock {
 public:
  TimePoint now() const override { return std::chrono::steady_clock::now(); }
};

// A clock that a test moves.
// Threads: any.
class ManualClock final : public Clock {
 public:
  TimePoint now() const override { return TimePoint(Duration(nanoseconds_.load())); }
  void advance(Duration by) { nanoseconds_ += by.count(); }

 private:
  std::atomic<Duration::rep> nanoseconds_{1'000'000'000};
};

}  // namespace weft
