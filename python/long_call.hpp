// SPDX-License-Identifier: Apache-2.0
// Calls that wait: without the interpreter's lock, and so that Ctrl-C is heard.
#pragma once

#include <pybind11/pybind11.h>

#include <chrono>
#include <functional>
#include <thread>
#include <utility>

#include "weft/base/clock.hpp"
#include "weft/base/guarded.hpp"

namespace weft::python {

// So long at most until a signal is noticed.
inline constexpr Duration kSignalPeriod = std::chrono::milliseconds(50);

// LongCall runs a function on a thread of its own, so that the caller's can listen for signals.
// Owns:    the thread; destroying it waits until the function has returned.
// Threads: one at a time.
class LongCall {
 public:
  explicit LongCall(std::function<void()> body)
      : thread_([this, body = std::move(body)] {
          body();
          done_.update([](bool& done) { done = true; });
        }) {}
  ~LongCall() { thread_.join(); }
  LongCall(const LongCall&) = delete;
  LongCall& operator=(const LongCall&) = delete;

  // Whether it has returned, at most `timeout` later. Without the interpreter's lock.
  bool wait_for(Duration timeout) {
    return done_.wait_for(
        timeout, [](bool done) { return done; }, [](bool, bool reached) { return reached; });
  }

 private:
  Guarded<bool> done_{false};
  std::thread thread_;
};

// Throws what a signal's handler has raised, KeyboardInterrupt as a rule. With the interpreter's
// lock; on the main thread, anywhere else nothing happens.
inline void check_signals() {
  if (PyErr_CheckSignals() != 0) throw pybind11::error_already_set();
}

// Waits for a call. A signal's exception is thrown after `interrupted` has been called again and
// again until the call has returned, or `patience` has passed.
inline void wait_with_signals(LongCall& call, const std::function<void()>& interrupted,
                              Duration patience) {
  while (true) {
    {
      const pybind11::gil_scoped_release unlocked;
      if (call.wait_for(kSignalPeriod)) return;
    }
    try {
      check_signals();
    } catch (pybind11::error_already_set&) {
      const pybind11::gil_scoped_release unlocked;
      const auto deadline = std::chrono::steady_clock::now() + patience;
      do interrupted();
      while (!call.wait_for(kSignalPeriod) && std::chrono::steady_clock::now() < deadline);
      throw;
    }
  }
}

}  // namespace weft::python
