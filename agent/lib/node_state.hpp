// SPDX-License-Identifier: Apache-2.0
// Everything an agent has on disk: weights, state log, digest table, spools and journals.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "agent/lib/config.hpp"
#include "agent/lib/lattice_store.hpp"
#include "apply/commit/state_log.hpp"
#include "apply/journal/journal_reader.hpp"
#include "apply/journal/resolver.hpp"
#include "apply/patch/weight_sets.hpp"
#include "apply/read/state_page.hpp"
#include "apply/store/checkpoint_dir.hpp"
#include "apply/store/disk_budget.hpp"
#include "apply/store/owner_lock.hpp"
#include "apply/store/record_log.hpp"
#include "codec/digest/digest_table.hpp"
#include "codec/project/lattice.hpp"
#include "weft/base/event_sink.hpp"
#include "weft/base/guarded.hpp"
#include "weft/base/result.hpp"

namespace weft::agent {

apply::StoreOptions store_options(const AgentConfig& config);

using TablePointer = std::shared_ptr<const codec::DigestTable>;

// NodeState holds an agent's directories, the locks on them, and what a start finds there.
// 1. open(): locks, checkpoint, lattice, state log, evidence, recovery; leftovers removed.
// 2. append(), probe(): the state log. 3. compute_table(), adopt_table(): the digest table.
// Owns:    every lock and open file below weights.dir and state.dir.
// Threads: one at a time, except table(), compute_table() and adopt_table(): any.
class NodeState {
 public:
  // Errors: kConfig (a directory is missing), kBusy (another agent), those of CheckpointDir.
  static Result<std::unique_ptr<NodeState>> open(const AgentConfig& config, EventSink& events);

  const std::string& agent_id() const { return agent_id_; }
  const apply::AgentRecovery& recovery() const { return recovery_; }
  // The set that readers use; in double_buffer another one after each apply. From any thread.
  std::shared_ptr<apply::CheckpointDir> checkpoint() const;
  const codec::Schema& schema() const { return schema_; }
  // The folder of those files, resolved. From any thread.
  std::string weights_path() const;
  // The lattice that the digest table is under.
  const codec::Lattice& lattice() const { return lattices_->current(); }
  LatticeStore& lattices() { return *lattices_; }
  apply::BootId boot() const { return boot_; }
  std::vector<apply::FileIdentity> stamps() const;

  // Durable when it returns ok.
  Status append(const apply::StateRecord& record);
  // Whether a node that could not go on can now: a log that takes records, and more room than the
  // attempt that failed had.
  Status probe(const wire::Cause& cause);

  TablePointer table() const;
  // Reads every weight byte. The identities are the same before and after.
  Result<TablePointer> compute_table(const codec::Lattice& lattice, std::uint32_t threads);
  // Makes it and its lattice the current ones, in memory and durably.
  Status adopt_table(const codec::Lattice& lattice, TablePointer table);

  apply::ResolverStorage storage() { return {spools_.get(), journals_.get(), &budget_}; }
  apply::Store& journals() { return *journals_; }
  // Before a refit is opened: the oldest retained refits go when little room is left.
  void make_room();
  // Applied refits whose journals are kept, oldest first.
  std::vector<RefitId> retained() const { return {retained_.begin(), retained_.end()}; }
  // Keeps spool and journal of an applied refit as the newest retained ones.
  void retain(const RefitId& refit);
  Status forget(const RefitId& refit);

  // The readers' page. Written by one thread at a time, but for show_page().
  apply::StatePage& page() { return *page_; }
  // The page as the node is now. `content` unset: only whether it may be read has changed.
  Status show_page(bool ready, const std::optional<Content>& content);

  // double_buffer only; in_place has no sets.
  bool has_sets() const { return sets_.has_value(); }
  // Before a vote: every file that an apply would write can be written and has its room.
  Status prepare_targets();
  struct StandbyWork {
    RefitId refit;
    Content target;
    std::vector<RefitId> retained;  // of retained(), asked on the loop thread
    bool check = false;             // hash the whole standby before it becomes the current set
    apply::PatchOptions patch;
    std::function<void(std::string_view)> on_step;
    std::function<Status()> before_flip;  // an error leaves readers where they are
  };
  // Brings the standby to the target and makes it the current set, in the page too.
  Result<apply::StandbyReport> switch_sets(const StandbyWork& work);

 private:
  NodeState(const AgentConfig& config, EventSink& events);
  bool has_after_apply() const { return !config_.hook.after_apply.empty(); }
  Status open_directories();
  Status open_weights();
  Status lock_weights(const FleetId& fleet);
  Status open_log();
  Status read_identity();
  void gather_evidence(const Status& readable);
  void remove_leftovers();
  void drop_retained(const RefitId& refit);
  std::uint64_t bytes_of(const RefitId& refit) const;
  Status charge(const RefitId& refit);
  void give_back(const RefitId& refit);

  const AgentConfig config_;
  EventSink& events_;
  std::string agent_id_;
  std::unique_ptr<apply::Store> state_;
  std::unique_ptr<apply::Store> spools_;
  std::unique_ptr<apply::Store> journals_;
  std::unique_ptr<apply::FileLock> state_lock_;
  std::optional<apply::OwnerLock> owner_lock_;
  std::unique_ptr<apply::Store> weights_;
  std::vector<apply::OwnerLock> set_locks_;
  std::mutex sets_mutex_;  // held while the standby is prepared or written
  std::optional<apply::WeightSets> sets_;
  Guarded<std::shared_ptr<apply::CheckpointDir>> checkpoint_;
  apply::WeightSet page_set_ = apply::WeightSet::kNone;  // of checkpoint_, under its lock
  codec::Schema schema_;
  std::unique_ptr<LatticeStore> lattices_;
  apply::BootId boot_;
  std::optional<apply::RecordLog> log_;
  Status log_status_;
  std::vector<apply::StateRecord> records_;
  apply::AgentRecovery recovery_;
  apply::DiskBudget budget_;
  std::deque<RefitId> retained_;  // oldest first
  // What is on disk without a writer that has charged it. Threads: any.
  Guarded<std::map<RefitId, std::uint64_t>> charged_;
  std::uint64_t room_at_open_ = 0;
  Guarded<TablePointer> table_;
  std::unique_ptr<apply::StatePage> page_;
  // What the page shows when no WriterTurn has it.
  struct Shown {
    bool ready = false;
    Content content;
  };
  Guarded<Shown> shown_;
};

}  // namespace weft::agent
