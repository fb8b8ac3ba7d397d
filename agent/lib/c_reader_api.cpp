// SPDX-License-Identifier: Apache-2.0
// The readers of include/weft/c.h.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "agent/lib/c_call.hpp"
#include "weft/c.h"
#include "weft/weight_files.hpp"
#include "weft/weight_view.hpp"

using weft::agent::fail;
using weft::agent::guarded;
using weft::agent::text_of;

// Threads: as c.h says.
struct weft_view {
  weft::WeightView view;
};

// Threads: as c.h says.
struct weft_lock {
  weft::WeightLock lock;
  std::optional<weft::WeightFiles> files;  // mapped when first asked for
};

namespace {

// A century is as long as one needs, and does not overflow a clock.
weft::Duration duration_of(std::uint64_t milliseconds) {
  constexpr std::uint64_t kLongest = 100ULL * 365 * 24 * 3600 * 1000;
  return std::chrono::milliseconds(std::min(milliseconds, kLongest));
}

weft::Result<weft::WeightFiles> files_of(weft_lock& lock) {
  if (!lock.files) {
    WEFT_TRY(auto files, weft::WeightFiles::open(lock.lock));
    lock.files = std::move(files);
  }
  return *lock.files;
}

int tell(const weft::WeightTensor& from, weft_tensor* to) {
  if (to->struct_bytes < sizeof(to->struct_bytes)) {
    return fail("tensor->struct_bytes is not the struct's size");
  }
  weft_tensor known = {};
  known.struct_bytes = std::min(to->struct_bytes, sizeof(known));
  known.name = from.name.data();
  known.dtype = from.dtype.data();
  known.bytes = from.bytes.data();
  known.byte_count = from.bytes.size();
  known.shape = from.shape.data();
  known.rank = static_cast<std::uint32_t>(from.shape.size());
  known.element_bytes = from.element_bytes;
  std::memcpy(to, &known, known.struct_bytes);
  return 0;
}

}  // namespace

int weft_view_open(const char* weights_dir, const char* state_dir, weft_view** view) {
  return guarded([&]() -> int {
    if (weights_dir == nullptr || view == nullptr)
      return fail("weights_dir and view must be given");
    weft::WeightViewOptions options;
    options.state_dir = text_of(state_dir);
    auto opened = weft::WeightView::open(weights_dir, options);
    if (!opened) return fail(opened.error());
    *view = new weft_view{*std::move(opened)};
    return 0;
  });
}

void weft_view_close(weft_view* view) {
  guarded([&] {
    delete view;
    return 0;
  });
}

int weft_view_wait(weft_view* view, uint64_t timeout_ms, uint64_t* from, uint64_t* to) {
  return guarded([&]() -> int {
    if (view == nullptr) return fail("no view");
    const auto step = view->view.wait(duration_of(timeout_ms));
    if (!step) return fail(step.error());
    if (from != nullptr) *from = step->from.value;
    if (to != nullptr) *to = step->to.value;
    return 0;
  });
}

int weft_view_acquire(weft_view* view, uint64_t timeout_ms, weft_lock** lock) {
  return guarded([&]() -> int {
    if (view == nullptr || lock == nullptr) return fail("no view, or nowhere to put the lock");
    auto acquired = view->view.acquire(duration_of(timeout_ms));
    if (!acquired) return fail(acquired.error());
    *lock = new weft_lock{*std::move(acquired), std::nullopt};
    return 0;
  });
}

int weft_view_changes(weft_view* view, uint64_t from, uint64_t to, weft_change_visitor visitor,
                      void* context, weft_change_summary* summary) {
  return guarded([&]() -> int {
    if (view == nullptr || visitor == nullptr || summary == nullptr) {
      return fail("no view, visitor or summary");
    }
    // Who is not told of needs_full would take nothing for no change.
    if (summary->struct_bytes < offsetof(weft_change_summary, needs_full) + sizeof(int)) {
      return fail("summary->struct_bytes is not the struct's size");
    }
    const auto visit = [&](weft::OwnedChange&& change) {
      weft_change told = {};
      told.struct_bytes = sizeof(told);
      told.name = change.name.c_str();
      told.dtype = change.dtype.c_str();
      told.offsets = change.offsets.data();
      told.values = change.values.data();
      told.element_count = change.offsets.size();
      told.element_bytes = change.element_bytes;
      return visitor(context, &told) == 0;
    };
    const auto done = view->view.take_changes(weft::Version{from}, weft::Version{to}, visit);
    if (!done) return fail(done.error());
    weft_change_summary known = {};
    known.struct_bytes = std::min(summary->struct_bytes, sizeof(known));
    known.element_count = done->changed_elements;
    known.refits = done->refits;
    known.needs_full = done->needs_full ? 1 : 0;
    std::memcpy(summary, &known, known.struct_bytes);
    if (done->needs_full) {
      static_cast<void>(fail(
          weft::failure(weft::ErrorCode::kNeedsReseed, weft::Stage::kPublish, *done->needs_full)));
    }
    return 0;
  });
}

const char* weft_lock_path(const weft_lock* lock) {
  return lock == nullptr ? "" : lock->lock.path().c_str();
}

int weft_lock_content(const weft_lock* lock, uint64_t* version, uint8_t root[16]) {
  return guarded([&]() -> int {
    if (lock == nullptr) return fail("no lock");
    const weft::Content& content = lock->lock.content();
    if (version != nullptr) *version = content.version.value;
    if (root != nullptr) {
      std::memcpy(root, &content.root.low, 8);
      std::memcpy(root + 8, &content.root.high, 8);
    }
    return 0;
  });
}

int weft_lock_tensor_count(weft_lock* lock, size_t* count) {
  return guarded([&]() -> int {
    if (lock == nullptr || count == nullptr) return fail("no lock, or nowhere to put the count");
    const auto files = files_of(*lock);
    if (!files) return fail(files.error());
    *count = files->tensors().size();
    return 0;
  });
}

int weft_lock_tensor_at(weft_lock* lock, size_t index, weft_tensor* tensor) {
  return guarded([&]() -> int {
    if (lock == nullptr || tensor == nullptr) return fail("no lock, or nowhere to put the tensor");
    const auto files = files_of(*lock);
    if (!files) return fail(files.error());
    if (index >= files->tensors().size()) {
      return fail("tensor " + std::to_string(index) + " of " +
                  std::to_string(files->tensors().size()));
    }
    return tell(files->tensors()[index], tensor);
  });
}

int weft_lock_tensor(weft_lock* lock, const char* name, weft_tensor* tensor) {
  return guarded([&]() -> int {
    if (lock == nullptr || name == nullptr || tensor == nullptr) {
      return fail("no lock or name, or nowhere to put the tensor");
    }
    const auto files = files_of(*lock);
    if (!files) return fail(files.error());
    const weft::WeightTensor* const found = files->find(name);
    if (found == nullptr) return fail(std::string(name) + " is no tensor of these weights");
    return tell(*found, tensor);
  });
}

void weft_lock_release(weft_lock* lock) {
  guarded([&] {
    delete lock;
    return 0;
  });
}
