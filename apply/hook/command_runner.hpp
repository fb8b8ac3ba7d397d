// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "apply/store/descriptor.hpp"
#include "weft/base/clock.hpp"
#include "weft/base/guarded.hpp"
#include "weft/base/result.hpp"

namespace weft::apply {

// CommandRunner runs programs from a child process of its own, which is made before this process
// has registered memory, locks or other threads that matter: it never forks later (decision record
// 0035). The child holds no descriptor but its end of a socket pair, and ends when that closes.
// Owns:    the socket and the child, which it waits for.
// Threads: any; one program at a time.
// Limits:  64 KiB of arguments and environment.
class CommandRunner {
 public:
  // Call it before locks are taken and rails opened. Errors: kResourceLimit.
  static Result<std::unique_ptr<CommandRunner>> start();
  ~CommandRunner();
  CommandRunner(const CommandRunner&) = delete;
  CommandRunner& operator=(const CommandRunner&) = delete;

  // Waits for its end; after `timeout` the program and what it started in its group is killed.
  // Ok for exit code 0. Errors: kBusy (another exit code, a signal, cannot be started), kTimeout.
  Status run(const std::vector<std::string>& arguments, const std::vector<std::string>& environment,
             Duration timeout);

 private:
  CommandRunner(Descriptor socket, pid_t child) : socket_(std::move(socket)), child_(child) {}

  Guarded<Descriptor> socket_;
  pid_t child_;
};

}  // namespace weft::apply
