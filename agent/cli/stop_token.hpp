// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <memory>

#include "weft/base/guarded.hpp"

namespace weft::cli {

// "Please end": set once by SIGINT or SIGTERM (or by a test) and never taken back.
// Threads: any.
class StopToken {
 public:
  StopToken();
  ~StopToken();
  StopToken(const StopToken&) = delete;
  StopToken& operator=(const StopToken&) = delete;

  bool requested() const { return requested_.load(); }
  // The signal that asked, 0 when a test or the program itself did.
  int signal() const { return signal_.load(); }
  // Readable for good once requested: for poll().
  int fd() const { return event_fd_; }
  // True when requested; waits at most `timeout`.
  bool wait_for(std::chrono::nanoseconds timeout);
  void request(int signal_number);

 private:
  std::atomic<bool> requested_{false};
  std::atomic<int> signal_{0};
  int event_fd_ = -1;
  Guarded<bool> waiters_{false};
};

// Blocks SIGINT, SIGTERM and SIGHUP in every thread that is started later and turns the first two
// into StopToken::request on a thread of its own; a second SIGINT or SIGTERM ends the process at
// once with 128 + its number. SIGHUP is taken and dropped: certificates are re-read when their
// files change. SIGPIPE is ignored.
// Invariant: made in main() before any other thread.
// Threads:   one at a time.
class SignalWatch {
 public:
  explicit SignalWatch(StopToken& token);
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace weft::cli
