// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <utility>

#include "weft/base/assert.hpp"
#include "weft/base/clock.hpp"
#include "weft/base/guarded.hpp"
#include "weft/base/limits.hpp"

namespace weft::agent {

// Mailbox is where every other thread hands work to the one loop thread that owns a step machine.
// Threads: any for post; run on the loop thread.
// Limits:  kQueueDepthMax letters: senders are bounded by slots, sessions and jobs, so more is a
//          bug of ours.
class Mailbox {
 public:
  using Letter = std::function<void()>;

  void post(Letter letter) {
    letters_.update([&](std::deque<Letter>& letters) {
      WEFT_ASSERT(letters.size() < limits::kQueueDepthMax);
      letters.push_back(std::move(letter));
    });
  }

  // Runs what has been posted, in order; waits at most `timeout` for the first letter.
  void run(Duration timeout) {
    std::deque<Letter> taken;
    letters_.wait_for(
        timeout, [](const std::deque<Letter>& letters) { return !letters.empty(); },
        [&](std::deque<Letter>& letters, bool) { taken.swap(letters); });
    for (Letter& letter : taken) letter();
  }

 private:
  Guarded<std::deque<Letter>> letters_;
};

}  // namespace weft::agent
