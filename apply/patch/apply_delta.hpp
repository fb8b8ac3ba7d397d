// SPDX-License-Identifier: Apache-2.0
// What `weft apply` and `weft verify` do, without a fleet.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "apply/patch/patcher.hpp"
#include "apply/store/store.hpp"
#include "weft/base/event_sink.hpp"
#include "weft/base/ids.hpp"
#include "weft/base/result.hpp"

namespace weft::apply {

// `step` is "hash", "verify" or "apply"; bytes or records of that step. False asks to stop: before
// the first weight byte nothing has changed, later the journal is kept and the next run finishes
// it.
using StepProgress =
    std::function<bool(std::string_view step, std::uint64_t done, std::uint64_t total)>;

// Threads: a value; one at a time.
struct ApplyDeltaOptions {
  bool dry_run = false;
  std::string state_dir;  // empty: `<dir>/.weft-state`
  std::uint32_t threads = 2;
  StoreOptions store;
  PatchOptions patch;
  std::uint64_t state_bytes_max = std::uint64_t{1} << 46;
  StepProgress on_progress;
};

// Threads: a value; one at a time.
struct ApplyDeltaSummary {
  Content base;
  Content target;
  bool already_there = false;     // the directory had the target's root: nothing was done
  bool finished_earlier = false;  // a run that was cut off has been completed first
  bool applied = false;
  std::uint64_t changed_elements = 0;
  std::uint64_t delta_bytes = 0;
  PatchStats patch;
};

// The same path as an agent: verify the base, resolve every frame, prove the target, journal,
// apply, sync. A run that was cut off while it applied is finished by the next one.
Result<ApplyDeltaSummary> apply_delta_file(const std::string& dir, const std::string& delta_file,
                                           const ApplyDeltaOptions& options, EventSink& events);

// Threads: a value; one at a time.
struct VerifyDifference {
  std::string tensor;
  std::uint64_t element = 0;  // first one that differs
  std::uint64_t count = 0;    // in this tensor
};

// Threads: a value; one at a time.
struct VerifySummary {
  Digest schema;
  Digest lattice;
  std::string lattice_name;  // "default" or "committed"
  Digest root;
  std::uint64_t tensor_bytes = 0;
  bool matches = true;  // root and directory compared as asked
  std::uint64_t different_elements = 0;
  std::vector<VerifyDifference> differences;  // first 10 tensors
};

// Threads: a value; one at a time.
struct VerifyDirOptions {
  std::optional<Digest> root;
  std::string against_dir;
  std::uint32_t threads = 2;
  StoreOptions store;
  StepProgress on_progress;
};

// A mismatch is no error: `matches` says it.
Result<VerifySummary> verify_dir(const std::string& dir, const VerifyDirOptions& options,
                                 EventSink& events);

}  // namespace weft::apply
