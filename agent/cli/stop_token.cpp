// SPDX-License-Identifier: Apache-2.0
#include "agent/cli/stop_token.hpp"

#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>
#include <thread>

#include "weft/base/assert.hpp"

namespace weft::cli {

StopToken::StopToken() : event_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  WEFT_ASSERT(event_fd_ >= 0);  // at the start of main() there are descriptors
}

StopToken::~StopToken() { close(event_fd_); }

bool StopToken::wait_for(std::chrono::nanoseconds timeout) {
  return waiters_.wait_for(
      timeout, [](const bool& set) { return set; }, [](bool&, bool was_set) { return was_set; });
}

void StopToken::request(int signal_number) {
  signal_ = signal_number;
  requested_ = true;
  const std::uint64_t one = 1;
  // It can only fail when the counter is full, and then it is readable already.
  static_cast<void>(write(event_fd_, &one, sizeof(one)) == sizeof(one));
  waiters_.update([](bool& set) { set = true; });
}

struct SignalWatch::State {
  sigset_t watched;
  sigset_t before;
  std::thread thread;
};

SignalWatch::SignalWatch(StopToken& token) : state_(std::make_unique<State>()) {
  signal(SIGPIPE, SIG_IGN);  // a closed pipe or socket is an error of its write
  sigemptyset(&state_->watched);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR2}) {
    sigaddset(&state_->watched, number);
  }
  pthread_sigmask(SIG_BLOCK, &state_->watched, &state_->before);
  state_->thread = std::thread([&token, watched = state_->watched] {
    while (true) {
      int number = 0;
      if (sigwait(&watched, &number) != 0 || number == SIGHUP) continue;
      if (number == SIGUSR2) return;  // from the destructor
      if (token.requested()) _exit(128 + number);
      token.request(number);
    }
  });
}

SignalWatch::~SignalWatch() {
  pthread_kill(state_->thread.native_handle(), SIGUSR2);
  state_->thread.join();
  pthread_sigmask(SIG_SETMASK, &state_->before, nullptr);
}

}  // namespace weft::cli
