// SPDX-License-Identifier: Apache-2.0
// weft::WeightView and weft::WeightLock for Python.
#pragma once

#include <pybind11/pybind11.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "python/array.hpp"
#include "weft/base/guarded.hpp"
#include "weft/weight_files.hpp"
#include "weft/weight_view.hpp"

namespace weft::python {

// A timeout in seconds; none: for ever.
using Seconds = std::optional<double>;

// LockHandle is the right to read one version, with its tensors.
// Threads: with the interpreter's lock.
class LockHandle {
 public:
  explicit LockHandle(WeightLock lock)
      : content_(lock.content()), path_(lock.path()), lock_(std::move(lock)) {}

  const Content& content() const { return content_; }
  const std::string& path() const { return path_; }
  std::vector<std::string> names();
  Array tensor(const std::string& name);
  void release();

 private:
  WeightFiles& files();

  const Content content_;
  const std::string path_;
  std::optional<WeightLock> lock_;
  std::optional<WeightFiles> files_;
};

// ChangeStream runs WeightView::take_changes on a thread of its own, a few pieces ahead of who
// takes them.
// Owns:    the thread, and what it has made but nobody has taken.
// Threads: with the interpreter's lock, one at a time.
// Limits:  kPiecesMax pieces of at most limits::kChunkElementsMax elements.
class ChangeStream {
 public:
  static constexpr std::size_t kPiecesMax = 8;

  // Throws when nothing will come: the journals don't lead there, or an error.
  ChangeStream(WeightView view, Version from, Version to);
  ~ChangeStream();

  // None: that was all. Throws what has gone wrong later: what was given is void then.
  std::optional<OwnedChange> next();
  const ChangeSummary& summary() const { return summary_; }

 private:
  struct Pieces {
    std::deque<OwnedChange> waiting;
    std::optional<Result<ChangeSummary>> done;
    bool unwanted = false;
  };
  void run(Version from, Version to);
  bool offer(OwnedChange&& change);
  void wait_for_piece();

  WeightView view_;
  Guarded<Pieces> pieces_;
  ChangeSummary summary_;
  std::thread thread_;
};

// ViewHandle is a WeightView, and which versions its caller has come from.
// Threads: with the interpreter's lock; one call at a time, a second one is kBusy.
class ViewHandle {
 public:
  ViewHandle(const std::string& path, const std::string& state_dir);

  VersionStep wait(const Seconds& timeout);
  std::shared_ptr<LockHandle> acquire(const Seconds& timeout);
  std::shared_ptr<ChangeStream> changes(std::uint64_t version,
                                        std::optional<std::uint64_t> since) const;

 private:
  template <typename T, typename F>
  T in_slices(const Seconds& timeout, F&& call);

  const std::string path_;
  const WeightViewOptions options_;
  WeightView view_;
  std::optional<VersionStep> step_;
  std::atomic<bool> in_turn_{false};
};

}  // namespace weft::python
