// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "apply/hook/command_runner.hpp"
#include "apply/hook/hook_call.hpp"
#include "weft/base/clock.hpp"
#include "weft/base/result.hpp"

namespace weft::apply {

// Threads: a value; one at a time.
struct HookOptions {
  std::vector<HookCall> before_apply;
  std::vector<HookCall> after_apply;
  Duration timeout = std::chrono::seconds(30);  // of one call
};

// Hooks tells a runtime on this node that its weights will change, or have. Each hook is a list of
// calls in order; the first that fails ends it with that error. Called at least once for a refit:
// what they start must bear being started again.
// Owns:    the process that runs commands, if there are any.
// Threads: any.
class Hooks {
 public:
  // Before locks are taken and rails opened. Errors: kResourceLimit.
  static Result<std::unique_ptr<Hooks>> open(HookOptions options);

  bool has_before_apply() const { return !options_.before_apply.empty(); }
  bool has_after_apply() const { return !options_.after_apply.empty(); }
  // Errors: kBusy (refused, an answer that is not 2xx, a command that failed), kTimeout.
  Status before_apply(const HookFacts& facts) const;
  Status after_apply(const HookFacts& facts) const;

 private:
  explicit Hooks(HookOptions options) : options_(std::move(options)) {}
  Status run(const std::vector<HookCall>& calls, const HookFacts& facts,
             std::string_view event) const;

  HookOptions options_;
  std::unique_ptr<CommandRunner> commands_;
};

}  // namespace weft::apply
