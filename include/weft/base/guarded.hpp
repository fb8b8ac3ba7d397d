// SPDX-License-Identifier: Apache-2.0
// Guarded<T>: shared state that can be reached only under its lock, because nothing else can name
// the value.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

namespace weft {

// with(f): f(T&) under the lock. wait_for(timeout, ready, f): waits until ready(T&) or the timeout,
// then f(T&, was_ready). Invariant: no reference to the value outlives the call that handed it out.
// Threads:   any; f must not call back into the same Guarded.
template <typename T>
class Guarded {
 public:
  template <typename... Args>
  explicit Guarded(Args&&... args) : value_(std::forward<Args>(args)...) {}

  template <typename F>
  decltype(auto) with(F&& f) {
    std::lock_guard lock(mutex_);
    return std::forward<F>(f)(value_);
  }
  template <typename F>
  decltype(auto) with(F&& f) const {
    std::lock_guard lock(mutex_);
    return std::forward<F>(f)(std::as_const(value_));
  }

  // Changes the value and wakes every waiter.
  template <typename F>
  decltype(auto) update(F&& f) {
    struct Notify {
      std::condition_variable& condition;
      ~Notify() { condition.notify_all(); }
    } notify{condition_};
    std::lock_guard lock(mutex_);
    return std::forward<F>(f)(value_);
  }

  template <typename Rep, typename Period, typename Ready, typename F>
  decltype(auto) wait_for(std::chrono::duration<Rep, Period> timeout, Ready&& ready, F&& f) {
    std::unique_lock lock(mutex_);
    const bool was_ready = condition_.wait_for(lock, timeout, [&] { return ready(value_); });
    return std::forward<F>(f)(value_, was_ready);
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable condition_;
  T value_;
};

}  // namespace weft
