// SPDX-License-Identifier: Apache-2.0
// `double_buffer`: two sets of the weight files, and `current`, which names the one that is read.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apply/journal/journal_reader.hpp"
#include "apply/patch/patcher.hpp"
#include "apply/store/checkpoint_dir.hpp"
#include "apply/store/weight_set.hpp"
#include "weft/base/clock.hpp"

namespace weft::apply {

inline constexpr std::string_view kCurrentName = "current";

// What a standby set is brought to.
// Threads: a value; one at a time.
struct StandbyGoal {
  const JournalReader* journal = nullptr;  // from the current set's content to the target
  Store* journals = nullptr;
  std::vector<RefitId> retained;  // applied earlier, oldest first: ways to the current content
  PatchOptions patch;
  Duration lock_timeout{};  // how long readers of an older version may hold the set
  // Looks at the standby before it counts as the target; an error is first answered by a copy.
  std::function<Status(const CheckpointDir& standby)> check;
  // Called at named places, for tests that end the process there.
  std::function<void(std::string_view point)> on_step;
};

// Threads: a value; one at a time.
struct StandbyReport {
  bool copied = false;         // journals did not reach back: every file was copied
  std::uint32_t journals = 0;  // applied, the goal's included
  std::uint64_t written_bytes = 0;
};

// WeightSets keeps the sets a/ and b/ below the weights directory. The current one is never
// written; the other, the standby, belongs to the writer while it holds its `weft.lock`.
// 1. prepare(): before a vote: the standby can be written and has all the room it needs.
// 2. build(): after COMMIT: the standby becomes the target: by the journals that lead there from
//    what its stamp says it is, or by a copy of the current set and one journal. Cut off at any
//    point it is done again: the stamp is dirty while bytes change.
// 3. flip(): `current` names it: one rename.
// Owns:    stores of both sets, the standby's open files and its lock.
// Threads: one at a time; current() and checkpoint() from any thread but during flip().
class WeightSets {
 public:
  // `current` is made when it is missing and a/ holds the checkpoint. Errors: kConfig (neither),
  // kFormat (`current` names no set), those of CheckpointDir.
  static Result<WeightSets> open(Store& weights, Bits128 boot_id, Durability durability);

  WeightSet current() const { return current_; }
  WeightSet standby() const { return other(current_); }
  const std::shared_ptr<CheckpointDir>& checkpoint() const { return checkpoint_; }

  // Errors: kNoSpace, kDenied, I/O. Readers and the current set are not touched.
  Status prepare();
  // True when the current set is clean and holds `content` by its stamp.
  Result<bool> holds(const Content& content) const;
  // Errors: kBusy (names the lock), kNoSpace, kNeedsReseed (the goal's journal is damaged), I/O.
  // The current set is whole whatever happens.
  Result<StandbyReport> build(const StandbyGoal& goal);
  // After build(). From here on the former standby is what checkpoint() is.
  Status flip();

 private:
  explicit WeightSets(Store& weights) : weights_(&weights) {}
  Status choose_current();
  Status name_current(WeightSet set);
  Result<std::optional<Content>> standby_origin(CheckpointDir& standby) const;
  Status stamp_current(const Content& content);
  Status lock_standby(Duration timeout);
  Result<StandbyReport> replay(const StandbyGoal& goal,
                               const std::vector<const JournalReader*>& chain);
  Result<StandbyReport> try_journals(const StandbyGoal& goal);
  Result<StandbyReport> copy_and_apply(const StandbyGoal& goal);
  Status open_standby(const codec::Schema& schema);
  Store& store_of(WeightSet set) const { return set == WeightSet::kA ? *a_ : *b_; }

  Store* weights_;
  Bits128 boot_id_;
  Durability durability_ = Durability::kDisk;
  std::unique_ptr<Store> a_;
  std::unique_ptr<Store> b_;
  WeightSet current_ = WeightSet::kNone;
  std::shared_ptr<CheckpointDir> checkpoint_;
  std::shared_ptr<CheckpointDir> standby_;  // open for writing, from prepare() or build() on
  std::unique_ptr<FileLock> standby_lock_;
};

}  // namespace weft::apply
