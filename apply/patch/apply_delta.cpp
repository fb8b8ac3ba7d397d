// SPDX-License-Identifier: Apache-2.0
#include "apply/patch/apply_delta.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <mutex>
#include <utility>

#include "apply/journal/resolver.hpp"
#include "apply/patch/delta_log.hpp"
#include "apply/patch/digest_directory.hpp"
#include "apply/read/writer_turn.hpp"
#include "apply/spool/delta_file.hpp"
#include "apply/store/owner_lock.hpp"
#include "apply/store/thread_crew.hpp"
#include "weft/base/guarded.hpp"

namespace weft::apply {

namespace {

constexpr Duration kReaderLockTimeout = std::chrono::seconds(30);
constexpr std::string_view kOwnStateName = ".weft-state";

// One run of apply_delta_file: the stores and locks it holds while it goes on.
// Owns:    all of it.
// Threads: one at a time.
class DeltaRun {
 public:
  DeltaRun(const ApplyDeltaOptions& options, EventSink& events)
      : options_(options), events_(events), budget_(options.state_bytes_max) {}

  Result<ApplyDeltaSummary> run(const std::string& dir, const std::string& delta_file) {
    WEFT_TRY_STATUS(open(dir));
    WEFT_TRY_STATUS(finish_earlier_run());
    WEFT_TRY_STATUS(open_delta(delta_file));
    WEFT_TRY(const bool there, compare_base());
    summary_.already_there = there;
    if (there) return std::move(summary_);
    const Status resolved = resolve();
    if (!resolved || options_.dry_run) {
      if (resolver_ != nullptr) static_cast<void>(resolver_->forget());
      if (!resolved) return resolved.error();
      return std::move(summary_);
    }
    WEFT_TRY_STATUS(commit_and_apply());
    return std::move(summary_);
  }

 private:
  Status open(const std::string& dir);
  Status finish_earlier_run();
  Status open_delta(const std::string& delta_file);
  Result<bool> compare_base();
  Status resolve();
  Status resolve_frames();
  Status commit_and_apply();
  Status write_weights(const RefitId& refit, const Content& target);
  bool progress(std::string_view step, std::uint64_t done, std::uint64_t total) const {
    return !options_.on_progress || options_.on_progress(step, done, total);
  }

  const ApplyDeltaOptions& options_;
  EventSink& events_;
  DiskBudget budget_;
  std::unique_ptr<Store> weights_;
  std::unique_ptr<Store> state_;
  std::unique_ptr<Store> journals_;
  std::optional<OwnerLock> owner_;
  std::optional<DeltaLog> log_;
  std::optional<CheckpointDir> checkpoint_;
  std::unique_ptr<Store> delta_store_;
  std::unique_ptr<DeltaFileReader> delta_;
  codec::Lattice lattice_;
  codec::DigestTable table_;
  std::unique_ptr<Resolver> resolver_;
  ApplyDeltaSummary summary_;
};

Status DeltaRun::open(const std::string& dir) {
  WEFT_TRY(weights_, open_store(dir, options_.store, events_));
  WEFT_TRY(owner_, OwnerLock::acquire(*weights_, FleetId{},
                                      "weft apply, process " + std::to_string(::getpid())));
  if (options_.state_dir.empty()) {
    WEFT_TRY(state_, weights_->open_directory(kOwnStateName, true));
  } else {
    // Made as the default one is; what stands in the way is said by the opening.
    static_cast<void>(::mkdir(options_.state_dir.c_str(), 0700));
    WEFT_TRY(state_, open_store(options_.state_dir, options_.store, events_));
  }
  WEFT_TRY(journals_, state_->open_directory("journal", true));
  WEFT_TRY_STATUS(state_->sync_directory());
  WEFT_TRY(log_, DeltaLog::open(*state_));
  WEFT_TRY(checkpoint_, CheckpointDir::open_path(dir, Access::kRead, options_.store, events_));
  return ok();
}

Status DeltaRun::finish_earlier_run() {
  if (const auto under_way = log_->under_way()) {
    WEFT_TRY_STATUS(checkpoint_->open_for_writing());
    WEFT_TRY_STATUS(write_weights(under_way->refit, under_way->target));
    summary_.finished_earlier = true;
  }
  // Whatever else lies there was never committed.
  WEFT_TRY(const auto leftovers, list_refits(*journals_));
  for (const RefitId& refit : leftovers) WEFT_TRY_STATUS(remove_journal(*journals_, refit));
  return ok();
}

Status DeltaRun::open_delta(const std::string& delta_file) {
  const std::filesystem::path path(delta_file);
  const std::string parent = path.has_parent_path() ? path.parent_path().string() : ".";
  WEFT_TRY(delta_store_, open_store(parent, {Engine::kPosix, Durability::kDisk}, events_));
  WEFT_TRY(delta_, DeltaFileReader::open(*delta_store_, path.filename().string()));
  WEFT_TRY(lattice_, delta_->lattice(checkpoint_->schema()));
  summary_.base = delta_->manifest().base;
  summary_.target = delta_->manifest().target;
  summary_.delta_bytes = delta_->file_bytes();
  for (const wire::ProducerSeal& seal : delta_->manifest().producers) {
    summary_.changed_elements += seal.changed_elements;
  }
  return ok();
}

Result<bool> DeltaRun::compare_base() {
  WEFT_TRY(table_, digest_directory(*checkpoint_, lattice_, options_.threads,
                                    [this](std::uint64_t done, std::uint64_t total) {
                                      return progress("hash", done, total);
                                    }));
  WEFT_TRY_STATUS(checkpoint_->check_identity());
  const Digest root = table_.root(lattice_);
  if (root == summary_.target.root) return true;
  if (root == summary_.base.root) return false;
  return failure(ErrorCode::kBaseMismatch, Stage::kResolve,
                 "the directory's root is " + to_hex(root) + "; the delta leads from " +
                     to_hex(summary_.base.root) + " to " + to_hex(summary_.target.root));
}

Status DeltaRun::resolve() {
  const wire::Manifest& manifest = delta_->manifest();
  ResolverBase base;
  base.fleet = manifest.fleet;
  base.refit = manifest.refit;
  base.base = manifest.base;
  base.lattice = &lattice_;
  base.checkpoint = &*checkpoint_;
  base.table = &table_;
  WEFT_TRY(resolver_, Resolver::open(base, {nullptr, journals_.get(), &budget_}, false));
  WEFT_TRY_STATUS(resolve_frames());
  return resolver_->prove(manifest);
}

Status DeltaRun::resolve_frames() {
  Guarded<Status> first_error;
  std::atomic<bool> stop{false};
  std::mutex reading;
  std::atomic<std::uint64_t> done_bytes{0};
  const auto fail = [&](Error error) {
    stop = true;
    first_error.with([&](Status& status) {
      if (status) status = std::move(error);
    });
  };
  const auto work = [&](std::uint32_t) {
    ResolveScratch scratch;
    std::vector<std::byte> frame;
    while (!stop) {
      const auto found = [&] {
        const std::lock_guard lock(reading);
        return delta_->next_frame(frame);
      }();
      if (!found) return fail(found.error());
      if (!*found) return;
      if (const auto accepted = resolver_->accept(frame, scratch); !accepted) {
        return fail(accepted.error());
      }
      const std::uint64_t done = done_bytes += frame.size();
      const std::lock_guard lock(reading);
      if (!progress("verify", done, delta_->file_bytes())) {
        return fail(failure(ErrorCode::kTimeout, Stage::kResolve,
                            "stopped by request; nothing was changed"));
      }
    }
  };
  WEFT_TRY_STATUS(run_on_threads(options_.threads, Stage::kResolve, work));
  return first_error.with([](const Status& status) { return status; });
}

Status DeltaRun::commit_and_apply() {
  const wire::Manifest& manifest = delta_->manifest();
  // From here on the directory will be the target, whoever stops this process.
  WEFT_TRY_STATUS(log_->commit(manifest.refit, manifest.target));
  resolver_.reset();
  return write_weights(manifest.refit, manifest.target);
}

Status DeltaRun::write_weights(const RefitId& refit, const Content& target) {
  WEFT_TRY(const auto journal, JournalReader::open(*journals_, refit, checkpoint_->schema()));
  WEFT_TRY(const auto page, StatePage::open_for_writing(*weights_));
  WEFT_TRY(const auto turn, WriterTurn::acquire(*weights_, *page, kReaderLockTimeout));
  WEFT_TRY_STATUS(turn->begin());
  PatchOptions patch = options_.patch;
  patch.on_progress = [this](std::uint64_t done, std::uint64_t total) {
    static_cast<void>(progress("apply", done, total));
  };
  WEFT_TRY(summary_.patch, apply_journal(*journal, *checkpoint_, patch));
  WEFT_TRY_STATUS(checkpoint_->sync());
  WEFT_TRY_STATUS(checkpoint_->refresh_identity());
  WEFT_TRY_STATUS(log_->applied());
  WEFT_TRY_STATUS(turn->finish(target));
  summary_.applied = true;
  return remove_journal(*journals_, refit);
}

}  // namespace

Result<ApplyDeltaSummary> apply_delta_file(const std::string& dir, const std::string& delta_file,
                                           const ApplyDeltaOptions& options, EventSink& events) {
  if (options.threads == 0) {
    return failure(ErrorCode::kConfig, Stage::kConfig, "threads: 0; at least 1");
  }
  return DeltaRun(options, events).run(dir, delta_file);
}

}  // namespace weft::apply
