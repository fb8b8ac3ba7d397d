// SPDX-License-Identifier: Apache-2.0
#include "weft/weight_view.hpp"

#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

#include "apply/journal/change_fold.hpp"
#include "apply/read/state_page.hpp"
#include "apply/store/checkpoint_dir.hpp"
#include "apply/store/owner_lock.hpp"
#include "weft/base/event_sink.hpp"

namespace weft {

using apply::PublishedState;
using apply::ReadPhase;

namespace {

// A lock is given back without a sign in the page; so long until it is tried again.
constexpr Duration kLockPatience = std::chrono::milliseconds(2);
constexpr Duration kPagePatience = std::chrono::milliseconds(200);

}  // namespace

// Threads: one at a time.
class WeightLock::Impl {
 public:
  std::unique_ptr<apply::FileLock> lock;
  std::string path;
  Content content;
};

WeightLock::WeightLock(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
WeightLock::~WeightLock() = default;
WeightLock::WeightLock(WeightLock&&) noexcept = default;
WeightLock& WeightLock::operator=(WeightLock&&) noexcept = default;
const std::string& WeightLock::path() const { return impl_->path; }
const Content& WeightLock::content() const { return impl_->content; }

// Threads: one at a time.
class WeightView::Impl {
 public:
  Status open(const std::string& weights_dir, const WeightViewOptions& options);
  Result<WeightLock> acquire(Duration timeout);
  Result<VersionStep> wait(Duration timeout);
  Result<ChangeSummary> changes(Version from, Version to, const apply::ChangeFold::Visit& visit);

 private:
  bool from_this_boot(const PublishedState& state) const { return state.boot_id == boot_id_; }
  bool readable(const PublishedState& state) const {
    return state.phase == ReadPhase::kReady && from_this_boot(state);
  }
  bool published(const PublishedState& state) const {
    return from_this_boot(state) &&
           (state.phase == ReadPhase::kReady || state.phase == ReadPhase::kApplyPending);
  }
  Result<std::optional<WeightLock>> try_acquire(const PublishedState& state);
  Error too_late(const PublishedState& state) const;
  std::string folder(apply::WeightSet set) const;
  Status load_schema(apply::WeightSet set);
  Result<std::vector<std::unique_ptr<apply::JournalReader>>> open_journals() const;

  std::string path_;
  std::string state_dir_;
  NullEventSink no_events_;
  std::unique_ptr<apply::Store> weights_;
  std::unique_ptr<apply::StatePage> page_;
  Bits128 boot_id_;
  Version seen_;
  std::optional<codec::Schema> schema_;
};

Status WeightView::Impl::open(const std::string& weights_dir, const WeightViewOptions& options) {
  std::error_code error;
  path_ = std::filesystem::absolute(weights_dir, error).lexically_normal().string();
  if (error) path_ = weights_dir;
  state_dir_ = options.state_dir;
  WEFT_TRY(boot_id_, apply::kernel_boot_id());
  // Nothing is written here, so nothing is synced.
  WEFT_TRY(weights_,
           apply::open_store(weights_dir, {apply::Engine::kPosix, apply::Durability::kProcess},
                             no_events_));
  auto page = apply::StatePage::open(*weights_);
  if (!page && apply::is_missing(page.error())) {
    return failure(ErrorCode::kBusy, Stage::kPublish,
                   weights_dir + ": no agent has opened these weights yet");
  }
  if (!page) return std::move(page).error();
  page_ = *std::move(page);
  WEFT_TRY(const PublishedState state, page_->read());
  if (published(state)) seen_ = state.content.version;
  return ok();
}

std::string WeightView::Impl::folder(apply::WeightSet set) const {
  return set == apply::WeightSet::kNone ? path_ : path_ + "/" + std::string(name_of(set));
}

// The lock alone proves nothing: the page is looked at again under it.
Result<std::optional<WeightLock>> WeightView::Impl::try_acquire(const PublishedState& state) {
  const std::string name =
      state.set == apply::WeightSet::kNone
          ? std::string(apply::kReaderLockName)
          : std::string(name_of(state.set)) + "/" + std::string(apply::kReaderLockName);
  auto lock = weights_->try_lock(name, apply::LockMode::kShared);
  if (!lock && lock.error().code == ErrorCode::kBusy) return std::optional<WeightLock>();
  if (!lock) return std::move(lock).error();
  WEFT_TRY(const PublishedState now, page_->read());
  if (!readable(now) || now.set != state.set) return std::optional<WeightLock>();
  auto impl = std::make_unique<WeightLock::Impl>();
  impl->lock = *std::move(lock);
  impl->path = folder(now.set);
  impl->content = now.content;
  seen_ = now.content.version;
  return std::optional(WeightLock(std::move(impl)));
}

Result<WeightLock> WeightView::Impl::acquire(Duration timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (true) {
    WEFT_TRY(const PublishedState state, page_->read());
    if (readable(state)) {
      WEFT_TRY(auto lock, try_acquire(state));
      if (lock) return *std::move(lock);
    }
    const Duration left = deadline - std::chrono::steady_clock::now();
    if (left <= Duration::zero()) return too_late(state);
    const Duration patience = readable(state) ? kLockPatience : kPagePatience;
    const auto changed = page_->wait(state.sequence, std::min(left, patience));
    if (!changed && changed.error().code != ErrorCode::kTimeout) return changed.error();
  }
}

Error WeightView::Impl::too_late(const PublishedState& state) const {
  std::string why;
  if (!from_this_boot(state)) {
    why = "the page is from before this machine's last start, and no agent has come since";
  } else if (state.phase == ReadPhase::kNotReady) {
    why = "the node is not ready; its agent's status says why";
  } else if (state.phase == ReadPhase::kApplyPending) {
    why = "an apply waits for its turn";
  } else if (state.phase == ReadPhase::kApplying) {
    why = "weights are being changed, or their agent was killed half way";
  } else {
    why = "the lock is held by the writer";
  }
  return failure(ErrorCode::kTimeout, Stage::kPublish, path_ + ": " + why);
}

Result<VersionStep> WeightView::Impl::wait(Duration timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (true) {
    WEFT_TRY(const PublishedState state, page_->read());
    if (published(state) && state.content.version != seen_) {
      const VersionStep step{seen_, state.content.version};
      seen_ = step.to;
      return step;
    }
    const Duration left = deadline - std::chrono::steady_clock::now();
    if (left <= Duration::zero()) {
      return failure(ErrorCode::kTimeout, Stage::kPublish,
                     path_ + ": no other version than " + std::to_string(seen_.value));
    }
    const auto changed = page_->wait(state.sequence, std::min(left, kPagePatience));
    if (!changed && changed.error().code != ErrorCode::kTimeout) return changed.error();
  }
}

Status WeightView::Impl::load_schema(apply::WeightSet set) {
  if (schema_) return ok();
  WEFT_TRY(const auto checkpoint,
           apply::CheckpointDir::open_path(folder(set), apply::Access::kRead,
                                           {apply::Engine::kPosix, apply::Durability::kProcess},
                                           no_events_));
  schema_ = checkpoint.schema();
  return ok();
}

Result<std::vector<std::unique_ptr<apply::JournalReader>>> WeightView::Impl::open_journals() const {
  const std::string state = state_dir_.empty() ? apply::state_dir_of_owner(*weights_) : state_dir_;
  if (state.empty()) {
    return failure(ErrorCode::kNeedsReseed, Stage::kPublish, "it is not known where journals are");
  }
  NullEventSink no_events;
  WEFT_TRY(const auto journals,
           apply::open_store(state + "/journal",
                             {apply::Engine::kPosix, apply::Durability::kProcess}, no_events));
  WEFT_TRY(const auto refits, apply::list_refits(*journals));
  std::vector<std::unique_ptr<apply::JournalReader>> readers;
  for (const RefitId& refit : refits) {
    // One that is still written, or just went, is not there.
    if (auto reader = apply::JournalReader::open(*journals, refit, *schema_); reader) {
      readers.push_back(*std::move(reader));
    }
  }
  return readers;
}

namespace {

// Journals from `from` to `to`, oldest first; found backwards from a content that is published, so
// that none of an attempt that was aborted can be among them.
std::optional<std::vector<const apply::JournalReader*>> find_line(
    const std::vector<std::unique_ptr<apply::JournalReader>>& journals, const Content& published,
    Version from, Version to) {
  std::vector<const apply::JournalReader*> line;
  Content at = published;
  bool met = at.version == to;
  while (at.version > from) {
    const auto found = std::find_if(journals.begin(), journals.end(), [&](const auto& journal) {
      return journal->manifest().target == at;
    });
    if (found == journals.end()) return std::nullopt;
    if (at.version <= to) line.push_back(found->get());
    if ((*found)->manifest().base.version >= at.version) return std::nullopt;
    at = (*found)->manifest().base;
    met = met || at.version == to;
  }
  if (at.version != from || !met) return std::nullopt;
  std::reverse(line.begin(), line.end());
  return line;
}

ChangeSummary full(std::string why) {
  ChangeSummary summary;
  summary.needs_full = std::move(why);
  return summary;
}

}  // namespace

Result<ChangeSummary> WeightView::Impl::changes(Version from, Version to,
                                                const apply::ChangeFold::Visit& visit) {
  if (from >= to) {
    return failure(ErrorCode::kConfig, Stage::kPublish,
                   "changes from version " + std::to_string(from.value) + " to " +
                       std::to_string(to.value) + ": the first must be lower");
  }
  WEFT_TRY(const PublishedState state, page_->read());
  if (!published(state) || state.content.version < to) {
    return full("version " + std::to_string(to.value) + " is not published here");
  }
  WEFT_TRY_STATUS(load_schema(state.set));
  const auto journals = open_journals();
  if (!journals) return full(journals.error().message());
  const auto line = find_line(*journals, state.content, from, to);
  if (!line) {
    return full("retained journals don't lead from version " + std::to_string(from.value) + " to " +
                std::to_string(to.value));
  }
  apply::ChangeFold fold(*schema_, *line);
  if (const Status sound = fold.check(); !sound) return full(sound.error().message());
  ChangeSummary summary;
  summary.refits = static_cast<std::uint32_t>(line->size());
  WEFT_TRY(summary.changed_elements, fold.fold(visit));
  return summary;
}

WeightView::WeightView(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
WeightView::~WeightView() = default;
WeightView::WeightView(WeightView&&) noexcept = default;
WeightView& WeightView::operator=(WeightView&&) noexcept = default;

Result<WeightView> WeightView::open(const std::string& weights_dir,
                                    const WeightViewOptions& options) {
  auto impl = std::make_unique<Impl>();
  WEFT_TRY_STATUS(impl->open(weights_dir, options));
  return WeightView(std::move(impl));
}

Result<WeightLock> WeightView::acquire(Duration timeout) { return impl_->acquire(timeout); }
Result<VersionStep> WeightView::wait(Duration timeout) { return impl_->wait(timeout); }
Result<ChangeSummary> WeightView::changes(Version from, Version to,
                                          const std::function<void(const TensorChange&)>& visit) {
  return impl_->changes(
      from, to,
      [&](const codec::Tensor& tensor, const std::vector<std::uint64_t>& offsets,
          const std::vector<std::byte>& values) {
        visit({tensor.name, codec::name(tensor.dtype), tensor.element_bytes, offsets, values});
        return true;
      });
}
Result<ChangeSummary> WeightView::take_changes(Version from, Version to,
                                               const std::function<bool(OwnedChange&&)>& visit) {
  return impl_->changes(
      from, to,
      [&](const codec::Tensor& tensor, std::vector<std::uint64_t>& offsets,
          std::vector<std::byte>& values) {
        return visit({tensor.name, std::string(codec::name(tensor.dtype)), tensor.element_bytes,
                      std::exchange(offsets, {}), std::exchange(values, {})});
      });
}

}  // namespace weft
