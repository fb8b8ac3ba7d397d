// SPDX-License-Identifier: Apache-2.0
#include "apply/patch/weight_sets.hpp"

#include <algorithm>
#include <utility>

#include "apply/read/writer_turn.hpp"

namespace weft::apply {

namespace {

constexpr std::size_t kCurrentBytesMax = 16;

Result<WeightSet> read_current(Store& weights) {
  auto file = weights.open(kCurrentName, Access::kRead);
  if (!file && is_missing(file.error())) return WeightSet::kNone;
  if (!file) return std::move(file).error();
  std::vector<std::byte> bytes(kCurrentBytesMax);
  WEFT_TRY(const std::size_t count, (*file)->read_up_to(0, bytes));
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), count);
  if (text == "a\n") return WeightSet::kA;
  if (text == "b\n") return WeightSet::kB;
  return failure(ErrorCode::kFormat, Stage::kOpen,
                 (*file)->name() + " must hold one line, a or b: the set that readers use");
}

// The journals that lead from `origin` to the goal, in order; nullopt when they don't reach back.
std::optional<std::vector<const JournalReader*>> find_chain(
    const Content& origin, const StandbyGoal& goal,
    const std::vector<std::unique_ptr<JournalReader>>& retained) {
  const Content& target = goal.journal->manifest().target;
  std::vector<const JournalReader*> chain;
  Content at = origin;
  while (at != target) {
    if (chain.size() > retained.size()) return std::nullopt;
    if (goal.journal->manifest().base == at) {
      chain.push_back(goal.journal);
      break;
    }
    const auto next = std::find_if(retained.begin(), retained.end(), [&](const auto& journal) {
      return journal->manifest().base == at;
    });
    if (next == retained.end()) return std::nullopt;
    chain.push_back(next->get());
    at = (*next)->manifest().target;
  }
  return chain;
}

void tell(const StandbyGoal& goal, std::string_view point) {
  if (goal.on_step) goal.on_step(point);
}

}  // namespace

Result<WeightSets> WeightSets::open(Store& weights, Bits128 boot_id, Durability durability) {
  WeightSets sets(weights);
  sets.boot_id_ = boot_id;
  sets.durability_ = durability;
  auto a = weights.open_directory(name_of(WeightSet::kA), false);
  if (!a && is_missing(a.error())) {
    return failure(ErrorCode::kConfig, Stage::kOpen,
                   "apply.mode = \"double_buffer\": weights.dir has no folder a/; move the "
                   "checkpoint's files into it");
  }
  if (!a) return std::move(a).error();
  sets.a_ = *std::move(a);
  WEFT_TRY(sets.b_, weights.open_directory(name_of(WeightSet::kB), true));
  WEFT_TRY_STATUS(weights.sync_directory());
  WEFT_TRY_STATUS(sets.choose_current());
  // Made here, so that readers who may not write to the sets find the lock.
  for (const WeightSet set : {WeightSet::kA, WeightSet::kB}) {
    const auto lock = sets.store_of(set).try_lock(kReaderLockName, LockMode::kShared);
    if (!lock && lock.error().code != ErrorCode::kBusy) return lock.error();
  }
  WEFT_TRY(auto store, weights.open_directory(name_of(sets.current_), false));
  WEFT_TRY(auto checkpoint, CheckpointDir::open(std::move(store), Access::kRead));
  sets.checkpoint_ = std::make_shared<CheckpointDir>(std::move(checkpoint));
  return sets;
}

Status WeightSets::choose_current() {
  WEFT_TRY(const WeightSet named, read_current(*weights_));
  if (named != WeightSet::kNone) {
    current_ = named;
    return ok();
  }
  // A new directory. A set that was being written is no start.
  WEFT_TRY(const auto stamp, read_stamp(*a_));
  if (stamp && !stamp->clean) {
    return failure(ErrorCode::kConfig, Stage::kOpen,
                   "weights.dir has no file `current`, and a/ is half written: put a checkpoint "
                   "into a/ and remove a/weft.stamp");
  }
  return name_current(WeightSet::kA);
}

Status WeightSets::name_current(WeightSet set) {
  const std::string text = std::string(name_of(set)) + "\n";
  WEFT_TRY_STATUS(replace_small_file(*weights_, kCurrentName, std::as_bytes(std::span(text))));
  current_ = set;
  return ok();
}

Status WeightSets::open_standby(const codec::Schema& schema) {
  WEFT_TRY(auto store, weights_->open_directory(name_of(standby()), false));
  WEFT_TRY(auto checkpoint, CheckpointDir::open(std::move(store), Access::kReadWrite));
  if (checkpoint.schema().digest() != schema.digest() ||
      file_bases(checkpoint.schema()) != file_bases(schema)) {
    return failure(ErrorCode::kInconsistentCheckpoint, Stage::kPrepare,
                   "the standby set has other files than the current one");
  }
  WEFT_TRY_STATUS(checkpoint.open_for_writing());
  standby_ = std::make_shared<CheckpointDir>(std::move(checkpoint));
  return ok();
}

Status WeightSets::prepare() {
  standby_.reset();
  Status there = open_standby(checkpoint_->schema());
  if (there || there.error().code == ErrorCode::kNoSpace ||
      there.error().code == ErrorCode::kDenied) {
    return there;
  }
  // No set yet, or not a whole one: nobody reads it. Its bytes come after COMMIT, its room now.
  WEFT_TRY_STATUS(write_stamp(store_of(standby()), {false, {}, boot_id_, {}}));
  return copy_set(store_of(current_), store_of(standby()), true);
}

Result<bool> WeightSets::holds(const Content& content) const {
  WEFT_TRY(const auto stamp, read_stamp(store_of(current_)));
  return stamp && stamp->clean && stamp->content == content &&
         stamp->files.size() == checkpoint_->file_count() &&
         std::equal(stamp->files.begin(), stamp->files.end(), checkpoint_->identities().begin());
}

// What journals may start from, or nullopt when only a copy helps.
Result<std::optional<Content>> WeightSets::standby_origin(CheckpointDir& standby_set) const {
  WEFT_TRY(const auto stamp, read_stamp(store_of(standby())));
  const bool same_boot = stamp && stamp->boot_id == boot_id_;
  if (!stamp || stamp->content.version.value == 0) return std::optional<Content>();
  if (!stamp->clean) {
    // A block that was torn by a power cut lost bytes that no journal names.
    return same_boot ? std::optional(stamp->content) : std::nullopt;
  }
  const auto& found = standby_set.identities();
  const bool as_stamped = stamp->files.size() == standby_set.file_count() &&
                          std::equal(stamp->files.begin(), stamp->files.end(), found.begin());
  if (!as_stamped || (durability_ == Durability::kProcess && !same_boot)) {
    return std::optional<Content>();
  }
  return std::optional(stamp->content);
}

Status WeightSets::stamp_current(const Content& content) {
  WEFT_TRY(const bool stamped, holds(content));
  if (stamped) return ok();
  const auto& all = checkpoint_->identities();
  const auto count = static_cast<std::ptrdiff_t>(checkpoint_->file_count());
  return write_stamp(store_of(current_),
                     {true, content, boot_id_, {all.begin(), all.begin() + count}});
}

Status WeightSets::lock_standby(Duration timeout) {
  if (standby_lock_ != nullptr) return ok();
  WEFT_TRY(standby_lock_, acquire_lock(store_of(standby()), kReaderLockName, timeout));
  return ok();
}

Result<StandbyReport> WeightSets::build(const StandbyGoal& goal) {
  WEFT_TRY_STATUS(stamp_current(goal.journal->manifest().base));
  WEFT_TRY_STATUS(lock_standby(goal.lock_timeout));
  auto report = try_journals(goal);
  if (!report && (report.error().code == ErrorCode::kNeedsReseed ||
                  report.error().code == ErrorCode::kBaseMismatch)) {
    report = copy_and_apply(goal);
  }
  if (!report) {
    standby_.reset();
    standby_lock_.reset();
    return report;
  }
  tell(goal, "built");
  WEFT_TRY_STATUS(standby_->sync());
  WEFT_TRY_STATUS(standby_->refresh_identity());
  const auto& all = standby_->identities();
  const auto count = static_cast<std::ptrdiff_t>(standby_->file_count());
  WEFT_TRY_STATUS(write_stamp(
      store_of(standby()),
      {true, goal.journal->manifest().target, boot_id_, {all.begin(), all.begin() + count}}));
  return report;
}

// kNeedsReseed: journals don't lead from what the standby is to the goal.
Result<StandbyReport> WeightSets::try_journals(const StandbyGoal& goal) {
  const auto unreachable = [](const std::string& why) {
    return failure(ErrorCode::kNeedsReseed, Stage::kApply, "standby set: " + why);
  };
  if (standby_ == nullptr) {
    if (const Status opened = open_standby(checkpoint_->schema()); !opened) {
      return unreachable(opened.error().detail);
    }
  }
  if (const Status same = standby_->check_identity(); !same) {
    return unreachable(same.error().detail);
  }
  WEFT_TRY(const auto origin, standby_origin(*standby_));
  if (!origin) return unreachable("its content is unknown");
  std::vector<std::unique_ptr<JournalReader>> retained;
  for (const RefitId& refit : goal.retained) {
    auto journal = JournalReader::open(*goal.journals, refit, checkpoint_->schema());
    if (journal) retained.push_back(*std::move(journal));
  }
  const auto chain = find_chain(*origin, goal, retained);
  if (!chain) return unreachable("retained journals don't reach back to its version");
  // Empty: it was cut off between its last sync and the flip.
  if (!chain->empty())
    WEFT_TRY_STATUS(write_stamp(store_of(standby()), {false, *origin, boot_id_, {}}));
  return replay(goal, *chain);
}

Result<StandbyReport> WeightSets::copy_and_apply(const StandbyGoal& goal) {
  standby_.reset();
  WEFT_TRY_STATUS(write_stamp(store_of(standby()), {false, {}, boot_id_, {}}));
  tell(goal, "copying");
  WEFT_TRY_STATUS(copy_set(store_of(current_), store_of(standby()), false));
  WEFT_TRY_STATUS(checkpoint_->check_identity());
  WEFT_TRY_STATUS(open_standby(checkpoint_->schema()));
  WEFT_TRY(StandbyReport report, replay(goal, {goal.journal}));
  report.copied = true;
  return report;
}

Result<StandbyReport> WeightSets::replay(const StandbyGoal& goal,
                                         const std::vector<const JournalReader*>& chain) {
  StandbyReport report;
  for (const JournalReader* journal : chain) {
    tell(goal, "applying");
    WEFT_TRY(const PatchStats stats, apply_journal(*journal, *standby_, goal.patch));
    report.written_bytes += stats.written_bytes;
    ++report.journals;
  }
  if (goal.check) WEFT_TRY_STATUS(goal.check(*standby_));
  return report;
}

Status WeightSets::flip() {
  WEFT_TRY_STATUS(name_current(standby()));
  checkpoint_ = std::exchange(standby_, nullptr);
  standby_lock_.reset();
  return ok();
}

}  // namespace weft::apply
