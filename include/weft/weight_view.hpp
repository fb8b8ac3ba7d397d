// SPDX-License-Identifier: Apache-2.0
// For a process that uses the weights of a node: which files, which version, until when, and what
// has changed since.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/clock.hpp"
#include "weft/base/ids.hpp"
#include "weft/base/result.hpp"

namespace weft {

// The right to read one whole version. While it lives the agent changes none of the files below
// path(): keep it only while you copy when the agent changes files in place, or for as long as you
// have them mapped when it keeps two sets (double_buffer).
// Owns:    a shared lock; gone with the object or the process.
// Threads: one at a time; may be moved between threads.
class [[nodiscard]] WeightLock {
 public:
  class Impl;
  explicit WeightLock(std::unique_ptr<Impl> impl);
  ~WeightLock();
  WeightLock(WeightLock&&) noexcept;
  WeightLock& operator=(WeightLock&&) noexcept;

  // The folder with the checkpoint's files, resolved: never `current`.
  const std::string& path() const;
  const Content& content() const;
  Version version() const { return content().version; }

 private:
  std::unique_ptr<Impl> impl_;
};

// From which version to which: versions in between may have been skipped.
struct VersionStep {
  Version from;
  Version to;
};

// New values of some elements of one tensor. Valid during the call that hands it out.
struct TensorChange {
  std::string_view name;                   // of the tensor
  std::string_view dtype;                  // as in the safetensors header
  std::uint32_t element_bytes = 0;         // 1, 2, 4 or 8; sub-byte types are told in bytes
  std::span<const std::uint64_t> offsets;  // flat element indices, ascending, each once
  std::span<const std::byte> values;       // offsets.size() elements
};

// The same with arrays to keep.
// Threads: a value; one at a time.
struct OwnedChange {
  std::string name;
  std::string dtype;
  std::uint32_t element_bytes = 0;
  std::vector<std::uint64_t> offsets;
  std::vector<std::byte> values;
};

struct ChangeSummary {
  // Set: nothing was handed out; read the whole files. Why is in words, for a log.
  std::optional<std::string> needs_full;
  std::uint64_t changed_elements = 0;
  std::uint32_t refits = 0;  // journals that were folded
};

struct WeightViewOptions {
  // Where the agent keeps its journals, for changes(); empty: what `weft.owner` says.
  std::string state_dir;
};

// WeightView follows the weights directory of one node. It needs no connection to the agent.
// 1. wait(): until another version is published.
// 2. acquire(): the right to read it. A node whose agent was killed half way, or a page from before
//    a power cut, is never handed out.
// 3. changes(): only what differs, from the agent's retained journals; needs no lock.
// Owns:    the page's mapping and the schema.
// Threads: one at a time; several views of one directory are independent.
class WeightView {
 public:
  // Errors: kBusy (no agent has opened the directory yet), kFormat, those of reading a directory.
  static Result<WeightView> open(const std::string& weights_dir,
                                 const WeightViewOptions& options = {});
  ~WeightView();
  WeightView(WeightView&&) noexcept;
  WeightView& operator=(WeightView&&) noexcept;

  // Waits until the weights may be read, at most `timeout`; lets a writer that waits go first.
  // Errors: kTimeout, with what it waited for; kFormat (the page is damaged).
  Result<WeightLock> acquire(Duration timeout);

  // Waits until the published version is another than the last one that wait() or acquire() gave,
  // or, at first, than the one at open. Errors: kTimeout, kFormat.
  Result<VersionStep> wait(Duration timeout);

  // Every element that differs between two versions, with its value at `to`, tensor by tensor in
  // the order of their bytes, in pieces. All records are checked before the first call: there is no
  // partial list. An error that comes later (a disk that fails) voids what was handed out.
  // Errors: I/O, kConfig (`from` not below `to`).
  Result<ChangeSummary> changes(Version from, Version to,
                                const std::function<void(const TensorChange&)>& visit);
  // The same for who keeps the arrays: nothing is copied. False ends it: the summary then counts
  // what was handed out.
  Result<ChangeSummary> take_changes(Version from, Version to,
                                     const std::function<bool(OwnedChange&&)>& visit);

 private:
  class Impl;
  explicit WeightView(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft
