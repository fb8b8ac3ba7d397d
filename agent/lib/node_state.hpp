// SPDX-License-Identifier: Apache-2.0
// Everything an agent has on disk: weights, state log, digest table, spools and journals.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/lib/config.hpp"
#include "agent/lib/lattice_store.hpp"
#include "apply/commit/state_log.hpp"
#include "apply/journal/journal_reader.hpp"
#include "apply/journal/resolver.hpp"
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
  apply::CheckpointDir& checkpoint() { return *checkpoint_; }
  const codec::Schema& schema() const { return checkpoint_->schema(); }
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
  // Keeps spool and journal of an applied refit as the newest retained ones.
  void retain(const RefitId& refit);
  Status forget(const RefitId& refit);

  // The readers' page: written by one thread at a time.
  apply::StatePage& page() { return *page_; }

 private:
  NodeState(const AgentConfig& config, EventSink& events);
  Status open_directories();
  Status open_log();
  Status read_identity();
  void gather_evidence(const Status& readable);
  void remove_leftovers();
  void drop_retained(const RefitId& refit);
  std::uint64_t bytes_of(const RefitId& refit) const;

  const AgentConfig config_;
  EventSink& events_;
  std::string agent_id_;
  std::unique_ptr<apply::Store> state_;
  std::unique_ptr<apply::Store> spools_;
  std::unique_ptr<apply::Store> journals_;
  std::unique_ptr<apply::FileLock> state_lock_;
  std::optional<apply::OwnerLock> owner_lock_;
  std::optional<apply::CheckpointDir> checkpoint_;
  std::unique_ptr<LatticeStore> lattices_;
  apply::BootId boot_;
  std::optional<apply::RecordLog> log_;
  Status log_status_;
  std::vector<apply::StateRecord> records_;
  apply::AgentRecovery recovery_;
  apply::DiskBudget budget_;
  std::deque<RefitId> retained_;  // oldest first
  std::uint64_t room_at_open_ = 0;
  Guarded<TablePointer> table_;
  std::unique_ptr<apply::StatePage> page_;
};

}  // namespace weft::agent
