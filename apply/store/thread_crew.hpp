// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "weft/base/result.hpp"

namespace weft::apply {

// Runs body(i) for every i in [0, count), number 0 on the calling thread, and returns when all
// have. Errors: kResourceLimit when a thread cannot be started; those that were are waited for,
// number 0 does not run then.
template <typename Body>
Status run_on_threads(std::uint32_t count, Stage stage, Body&& body) {
  std::vector<std::thread> threads;
  Status started = ok();
  for (std::uint32_t i = 1; i < count && started; ++i) {
    try {
      threads.emplace_back([&body, i] { body(i); });
    } catch (const std::system_error& error) {
      started = failure(ErrorCode::kResourceLimit, stage,
                        std::string("start a thread: ") + error.what(), error.code().value());
    }
  }
  if (started) body(0);
  for (std::thread& thread : threads) thread.join();
  return started;
}

}  // namespace weft::apply
