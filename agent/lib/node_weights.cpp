// SPDX-License-Identifier: Apache-2.0
// The weight files of a node: one set in place, or two of which readers use one.
#include <filesystem>
#include <utility>

#include "agent/lib/node_state.hpp"
#include "apply/store/checkpoint_source.hpp"
#include "codec/flow/encode_flow.hpp"

namespace weft::agent {
namespace {

// A set that is made here can be read by whoever reads the first one.
void copy_permissions(const std::filesystem::path& source, const std::filesystem::path& target) {
  std::error_code error;
  const auto status = std::filesystem::status(source, error);
  if (!error) std::filesystem::permissions(target, status.permissions(), error);
}

}  // namespace

Status NodeState::open_weights() {
  WEFT_TRY(weights_, apply::open_store(config_.weights_dir, store_options(config_), events_));
  if (config_.apply_mode == ApplyMode::kInPlace) {
    if (weights_->identity(apply::kCurrentName)) {
      return failure(ErrorCode::kConfig, Stage::kOpen,
                     "apply.mode = \"in_place\", but weights.dir " + config_.weights_dir +
                         " holds sets a/ and b/: set \"double_buffer\", or move the files of the "
                         "set that `current` names up and remove `current`");
    }
    WEFT_TRY(auto checkpoint,
             apply::CheckpointDir::open_path(config_.weights_dir, apply::Access::kRead,
                                             store_options(config_), events_));
    schema_ = checkpoint.schema();
    checkpoint_.with(
        [&](auto& held) { held = std::make_shared<apply::CheckpointDir>(std::move(checkpoint)); });
    return ok();
  }
  WEFT_TRY(auto sets, apply::WeightSets::open(*weights_, boot_, config_.durability));
  sets_.emplace(std::move(sets));
  const std::filesystem::path path(config_.weights_dir);
  copy_permissions(path / name_of(sets_->current()), path / name_of(sets_->standby()));
  schema_ = sets_->checkpoint()->schema();
  checkpoint_.with([&](auto& held) {
    held = sets_->checkpoint();
    page_set_ = sets_->current();
  });
  return ok();
}

Status NodeState::lock_weights(const FleetId& fleet) {
  std::error_code error;
  const auto state = std::filesystem::absolute(config_.state_dir, error);
  WEFT_TRY(auto lock, apply::OwnerLock::acquire(*weights_, fleet, agent_id_,
                                                error ? std::string() : state.string()));
  owner_lock_.emplace(std::move(lock));
  if (!sets_) return ok();
  // `weft apply` on one of the sets finds that it has an owner.
  for (const auto set : {sets_->current(), sets_->standby()}) {
    WEFT_TRY(const auto below, weights_->open_directory(name_of(set), false));
    WEFT_TRY(auto set_lock, apply::OwnerLock::acquire(*below, fleet, agent_id_));
    set_locks_.push_back(std::move(set_lock));
  }
  return ok();
}

std::shared_ptr<apply::CheckpointDir> NodeState::checkpoint() const {
  return checkpoint_.with([](const auto& held) { return held; });
}

std::string NodeState::weights_path() const {
  std::error_code error;
  const auto root = std::filesystem::absolute(config_.weights_dir, error).lexically_normal();
  const auto set = checkpoint_.with([&](const auto&) { return page_set_; });
  return (set == apply::WeightSet::kNone ? root : root / name_of(set)).string();
}

Status NodeState::show_page(bool ready, const std::optional<Content>& content) {
  return shown_.with([&](Shown& shown) {
    shown.ready = ready;
    if (content) shown.content = *content;
    return page_->write(ready ? apply::ReadPhase::kReady : apply::ReadPhase::kNotReady,
                        shown.content);
  });
}

Status NodeState::prepare_targets() {
  if (!sets_) return checkpoint()->open_for_writing();
  const std::lock_guard lock(sets_mutex_);
  return sets_->prepare();
}

Result<apply::StandbyReport> NodeState::switch_sets(const StandbyWork& work) {
  const std::lock_guard lock(sets_mutex_);
  WEFT_TRY(auto journal, apply::JournalReader::open(*journals_, work.refit, schema_));
  WEFT_TRY(auto table, journal->table(lattice()));
  apply::StandbyReport report;
  WEFT_TRY(const bool switched, sets_->holds(work.target));
  if (!switched) {
    apply::StandbyGoal goal;
    goal.journal = journal.get();
    goal.journals = journals_.get();
    goal.retained = work.retained;
    goal.patch = work.patch;
    goal.lock_timeout = config_.apply_lock_timeout;
    goal.on_step = work.on_step;
    if (work.check) {
      goal.check = [&](const apply::CheckpointDir& set) -> Status {
        apply::CheckpointSource source(lattice(), set);
        WEFT_TRY(const auto found, codec::digest_flow(lattice(), source, work.patch.threads));
        if (found.root(lattice()) == work.target.root) return ok();
        return failure(ErrorCode::kBaseMismatch, Stage::kRecover,
                       "after the journals the standby set is " + to_hex(found.root(lattice())) +
                           ", not " + to_hex(work.target.root));
      };
    }
    WEFT_TRY(report, sets_->build(goal));
  }
  if (!switched) WEFT_TRY_STATUS(work.before_flip());
  WEFT_TRY_STATUS(
      adopt_table(lattice(), std::make_shared<const codec::DigestTable>(std::move(table))));
  if (!switched) {
    work.on_step("before_flip");
    WEFT_TRY_STATUS(sets_->flip());
    work.on_step("after_flip");
  }
  checkpoint_.with([&](auto& held) {
    held = sets_->checkpoint();
    page_set_ = sets_->current();
  });
  return shown_.with([&](Shown& shown) -> Result<apply::StandbyReport> {
    page_->name_set(sets_->current());
    shown.content = work.target;
    WEFT_TRY_STATUS(page_->write(
        shown.ready ? apply::ReadPhase::kReady : apply::ReadPhase::kNotReady, shown.content));
    return report;
  });
}

}  // namespace weft::agent
