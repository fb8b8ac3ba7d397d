// SPDX-License-Identifier: Apache-2.0
#include "python/view_handle.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "python/failure.hpp"
#include "python/long_call.hpp"

namespace py = pybind11;

namespace weft::python {

namespace {

constexpr double kLongest = 1e9;  // seconds: a clock holds it

Array array_of(const WeightFiles& files, const WeightTensor& tensor) {
  Array array;
  array.owner = std::make_shared<WeightFiles>(files);
  // The mapping is writable, and private (weight_files.hpp): DLPack cannot say "read only".
  array.begin = const_cast<std::byte*>(tensor.bytes.data());
  array.dtype = tensor.dtype;
  array.element_bytes = tensor.element_bytes;
  array.shape.assign(tensor.shape.begin(), tensor.shape.end());
  // Types smaller than a byte: as their bytes.
  if (array.byte_count() != tensor.bytes.size()) {
    array.shape.assign(1, static_cast<std::int64_t>(tensor.bytes.size()));
  }
  return array;
}

}  // namespace

std::vector<std::string> LockHandle::names() {
  std::vector<std::string> names;
  for (const WeightTensor& tensor : files().tensors()) names.emplace_back(tensor.name);
  return names;
}

Array LockHandle::tensor(const std::string& name) {
  const WeightTensor* const found = files().find(name);
  if (found == nullptr) throw py::key_error(name);
  return array_of(files(), *found);
}

WeightFiles& LockHandle::files() {
  if (!lock_) throw misuse("the lock is released: the files may be of another version by now");
  if (!files_) files_ = must(WeightFiles::open(*lock_));
  return *files_;
}

void LockHandle::release() {
  lock_.reset();
  files_.reset();
}

ChangeStream::ChangeStream(WeightView view, Version from, Version to) : view_(std::move(view)) {
  thread_ = std::thread([this, from, to] { run(from, to); });
  try {
    wait_for_piece();
    const auto failed = pieces_.with([&](Pieces& pieces) -> std::optional<Error> {
      if (!pieces.done) return std::nullopt;
      if (!*pieces.done) return pieces.done->error();
      summary_ = **pieces.done;
      if (!summary_.needs_full) return std::nullopt;
      return failure(ErrorCode::kNeedsReseed, Stage::kPublish, *summary_.needs_full);
    });
    if (failed && summary_.needs_full) {
      const py::object kind = py::module_::import("weft.errors").attr("FullCopyNeeded");
      const py::object made = kind.attr("because")(failed->detail);
      PyErr_SetObject(kind.ptr(), made.ptr());
      throw py::error_already_set();
    }
    if (failed) throw Failure(*failed);
  } catch (...) {
    pieces_.update([](Pieces& pieces) { pieces.unwanted = true; });
    const py::gil_scoped_release unlocked;
    thread_.join();
    throw;
  }
}

ChangeStream::~ChangeStream() {
  pieces_.update([](Pieces& pieces) { pieces.unwanted = true; });
  const py::gil_scoped_release unlocked;
  thread_.join();
}

void ChangeStream::run(Version from, Version to) {
  auto done = view_.take_changes(from, to,
                                 [this](OwnedChange&& change) { return offer(std::move(change)); });
  pieces_.update([&](Pieces& pieces) { pieces.done.emplace(std::move(done)); });
}

bool ChangeStream::offer(OwnedChange&& change) {
  while (true) {
    const bool room = pieces_.wait_for(
        kSignalPeriod,
        [](const Pieces& pieces) { return pieces.unwanted || pieces.waiting.size() < kPiecesMax; },
        [](const Pieces&, bool reached) { return reached; });
    if (room) break;
  }
  return pieces_.update([&](Pieces& pieces) {
    if (!pieces.unwanted) pieces.waiting.push_back(std::move(change));
    return !pieces.unwanted;
  });
}

// Until there is one, or the end.
void ChangeStream::wait_for_piece() {
  while (true) {
    {
      const py::gil_scoped_release unlocked;
      const bool come = pieces_.wait_for(
          kSignalPeriod,
          [](const Pieces& pieces) { return pieces.done || !pieces.waiting.empty(); },
          [](const Pieces&, bool reached) { return reached; });
      if (come) return;
    }
    check_signals();
  }
}

std::optional<OwnedChange> ChangeStream::next() {
  wait_for_piece();
  return pieces_.update([&](Pieces& pieces) -> std::optional<OwnedChange> {
    if (!pieces.waiting.empty()) {
      OwnedChange change = std::move(pieces.waiting.front());
      pieces.waiting.pop_front();
      return change;
    }
    if (!*pieces.done) throw Failure(pieces.done->error());
    summary_ = **pieces.done;
    return std::nullopt;
  });
}

ViewHandle::ViewHandle(const std::string& path, const std::string& state_dir)
    : path_(path), options_{state_dir}, view_(must(WeightView::open(path, options_))) {}

// In slices, so that a signal is heard between two.
template <typename T, typename F>
T ViewHandle::in_slices(const Seconds& timeout, F&& call) {
  if (in_turn_.exchange(true)) {
    throw Failure(failure(ErrorCode::kBusy, Stage::kPublish,
                          "another thread is in a call of this view; one at a time"));
  }
  struct Turn {
    std::atomic<bool>& taken;
    ~Turn() { taken.store(false); }
  } turn{in_turn_};
  const double seconds = std::clamp(timeout.value_or(kLongest), 0.0, kLongest);
  const auto deadline =
      std::chrono::steady_clock::now() +
      std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
  while (true) {
    {
      const py::gil_scoped_release unlocked;
      const Duration left = deadline - std::chrono::steady_clock::now();
      Result<T> result = call(std::clamp<Duration>(left, Duration::zero(), kSignalPeriod));
      const bool again = !result && result.error().code == ErrorCode::kTimeout &&
                         std::chrono::steady_clock::now() < deadline;
      if (!again) return must(std::move(result));
    }
    check_signals();
  }
}

VersionStep ViewHandle::wait(const Seconds& timeout) {
  step_ = in_slices<VersionStep>(timeout, [&](Duration slice) { return view_.wait(slice); });
  return *step_;
}

std::shared_ptr<LockHandle> ViewHandle::acquire(const Seconds& timeout) {
  return std::make_shared<LockHandle>(
      in_slices<WeightLock>(timeout, [&](Duration slice) { return view_.acquire(slice); }));
}

std::shared_ptr<ChangeStream> ViewHandle::changes(std::uint64_t version,
                                                  std::optional<std::uint64_t> since) const {
  if (!since) {
    if (!step_ || step_->to.value != version) {
      throw misuse("version " + std::to_string(version) +
                   " is not the one that wait() gave last: say since=, the version that you have");
    }
    since = step_->from.value;
  }
  // A view of its own: this one may be waited on meanwhile.
  return std::make_shared<ChangeStream>(must(WeightView::open(path_, options_)), Version{*since},
                                        Version{version});
}

}  // namespace weft::python
