// SPDX-License-Identifier: Apache-2.0
#include "agent/lib/node_state.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "agent/lib/random_id.hpp"
#include "apply/store/checkpoint_source.hpp"
#include "codec/flow/encode_flow.hpp"

namespace weft::agent {
namespace {

constexpr std::string_view kTableName = "table";
constexpr std::string_view kLogName = "state";
constexpr std::string_view kIdentityName = "agent.id";
constexpr std::uint64_t kTableBytesMax = std::uint64_t{16} * limits::kChunksMax;
// Below this much more room than the failed attempt had, trying again would fail again.
constexpr std::uint64_t kRoomStepBytes = 4 * kMiB;

Status make_directory(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) {
    return failure(ErrorCode::kConfig, Stage::kOpen,
                   "state.dir " + path + ": cannot be made: " + error.message(), error.value());
  }
  return ok();
}

// Whole files of the state directory are small: replaced by a new one, synced, renamed.
Status replace_file(apply::Store& store, std::string_view name, std::span<const std::byte> bytes) {
  const std::string fresh = std::string(name) + ".new";
  WEFT_TRY_STATUS(store.remove_tree(fresh));
  WEFT_TRY(auto file, store.create(fresh));
  WEFT_TRY_STATUS(file->write(0, bytes));
  WEFT_TRY_STATUS(file->sync());
  WEFT_TRY_STATUS(store.rename(fresh, name));
  return store.sync_directory();
}

Result<std::vector<std::byte>> read_file(apply::Store& store, std::string_view name,
                                         std::uint64_t bytes_max) {
  WEFT_TRY(auto file, store.open(name, apply::Access::kRead));
  WEFT_TRY(const std::uint64_t bytes, file->size());
  if (bytes > bytes_max) {
    return failure(ErrorCode::kFormat, Stage::kOpen,
                   std::string(name) + ": " + std::to_string(bytes) + " bytes are too many");
  }
  std::vector<std::byte> content(bytes);
  WEFT_TRY_STATUS(file->read(0, content));
  return content;
}

std::string random_agent_id() { return "agent-" + to_hex(random_u64()); }

}  // namespace

apply::StoreOptions store_options(const AgentConfig& config) {
  apply::StoreOptions options;
  options.engine = config.apply_engine == ApplyEngine::kUring   ? apply::Engine::kUring
                   : config.apply_engine == ApplyEngine::kPosix ? apply::Engine::kPosix
                                                                : apply::Engine::kAuto;
  options.durability = config.durability == Durability::kDisk ? apply::Durability::kDisk
                                                              : apply::Durability::kProcess;
  return options;
}

NodeState::NodeState(const AgentConfig& config, EventSink& events)
    : config_(config), events_(events), budget_(config.state_bytes_max) {}

Result<std::unique_ptr<NodeState>> NodeState::open(const AgentConfig& config, EventSink& events) {
  std::unique_ptr<NodeState> state(new NodeState(config, events));
  WEFT_TRY_STATUS(state->open_directories());
  const Status readable = state->open_log();
  const FleetId fleet = apply::fold_state(state->records_, false).fleet;
  WEFT_TRY_STATUS(state->lock_weights(fleet));
  state->gather_evidence(readable);
  state->remove_leftovers();
  return state;
}

Status NodeState::open_directories() {
  WEFT_TRY_STATUS(make_directory(config_.state_dir));
  ::chmod(config_.state_dir.c_str(), 0700);
  WEFT_TRY(state_, apply::open_store(config_.state_dir, store_options(config_), events_));
  auto locked = state_->try_lock("lock", apply::LockMode::kExclusive);
  if (!locked) {
    return failure(locked.error().code, Stage::kOpen,
                   "state.dir " + config_.state_dir + ": " + locked.error().detail,
                   locked.error().native);
  }
  state_lock_ = *std::move(locked);
  WEFT_TRY(spools_, state_->open_directory("spool", true));
  WEFT_TRY(journals_, state_->open_directory("journal", true));
  WEFT_TRY_STATUS(read_identity());
  WEFT_TRY(auto boot, apply::kernel_boot_id());
  boot_ = apply::BootId{boot};
  WEFT_TRY_STATUS(open_weights());
  WEFT_TRY(lattices_, LatticeStore::open(*state_, schema()));
  WEFT_TRY(page_, apply::StatePage::open_for_writing(*weights_));
  if (sets_) page_->name_set(sets_->current());
  return ok();
}

Status NodeState::read_identity() {
  auto stored = read_file(*state_, kIdentityName, 256);
  if (!stored && !apply::is_missing(stored.error())) return std::move(stored).error();
  std::string known;
  if (stored) known.assign(reinterpret_cast<const char*>(stored->data()), stored->size());
  agent_id_ = !config_.agent_id.empty() ? config_.agent_id
              : !known.empty()          ? known
                                        : random_agent_id();
  if (!known.empty() && known != agent_id_) {
    return failure(ErrorCode::kConfig, Stage::kOpen,
                   "agent.id = " + agent_id_ + ", but state.dir " + config_.state_dir +
                       " belongs to " + known + ": give each agent a directory of its own");
  }
  if (known.empty()) {
    return replace_file(*state_, kIdentityName, std::as_bytes(std::span(agent_id_)));
  }
  return ok();
}

Status NodeState::open_log() {
  apply::RecordLogOptions options;
  options.log_kind = apply::kStateLogKind;
  auto log = apply::RecordLog::open(*state_, std::string(kLogName), options);
  if (!log) {
    log_status_ = Status(log.error());
    return log_status_;
  }
  for (const apply::LogRecord& record : log->recovered()) {
    auto decoded = apply::decode_state_record(record);
    if (!decoded) {
      log_status_ = Status(decoded.error());
      return log_status_;
    }
    records_.push_back(*std::move(decoded));
  }
  log->recovered().clear();
  log_.emplace(*std::move(log));
  return ok();
}

void NodeState::gather_evidence(const Status& readable) {
  const apply::StateFold fold = apply::fold_state(records_, has_after_apply());
  apply::StateEvidence evidence;
  evidence.log_readable = readable;
  if (fold.applied) {
    const auto now = stamps();
    const auto& then = fold.applied->files;
    evidence.boot_changed = !(boot_ == fold.applied->boot);
    evidence.files_resized =
        now.size() != then.size() ||
        !std::equal(now.begin(), now.end(), then.begin(),
                    [](const auto& a, const auto& b) { return a.bytes == b.bytes; });
    evidence.files_as_recorded = now == then && !evidence.boot_changed;
    // Without the lattice's body the table is computed again, and the body fetched for it.
    if (const auto found = lattices_->find(fold.applied->content.lattice)) lattices_->use(**found);
    auto bytes = read_file(*state_, kTableName, kTableBytesMax);
    auto table = bytes ? codec::DigestTable::decode(lattice(), *bytes)
                       : Result<codec::DigestTable>(bytes.error());
    if (table && table->root(lattice()) == fold.applied->content.root) {
      table_.with([&](TablePointer& held) {
        held = std::make_shared<const codec::DigestTable>(*std::move(table));
      });
    } else {
      evidence.files_as_recorded = false;
    }
  }
  recovery_ = apply::recover_agent(fold, evidence);
  shown_.with([&](Shown& shown) { shown.content = recovery_.content; });
}

void NodeState::remove_leftovers() {
  std::vector<RefitId> kept;
  if (recovery_.front) kept.push_back(recovery_.front->refit);
  if (recovery_.behind) kept.push_back(recovery_.behind->refit);
  auto journals = apply::list_refits(*journals_);
  auto spools = apply::list_refits(*spools_);
  std::vector<RefitId> found = journals ? *journals : std::vector<RefitId>{};
  if (spools) found.insert(found.end(), spools->begin(), spools->end());
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  for (const RefitId& refit : found) {
    if (std::find(kept.begin(), kept.end(), refit) != kept.end()) {
      // Too little budget for what is needed already: the next refit's vote will say so.
      static_cast<void>(charge(refit));
      continue;
    }
    if (apply::JournalReader::open(*journals_, refit, schema()) && charge(refit)) {
      retained_.push_back(refit);
    } else if (auto removed = forget(refit); !removed) {
      events_.report(Severity::kWarning, "leftover_kept",
                     std::vector<EventField>{{"error", removed.error().message()}});
    }
  }
  while (retained_.size() > config_.retain_refits) drop_retained(retained_.front());
}

std::vector<apply::FileIdentity> NodeState::stamps() const {
  const auto held = checkpoint();
  const auto& all = held->identities();
  return {all.begin(), all.begin() + static_cast<std::ptrdiff_t>(schema().files().size())};
}

Status NodeState::append(const apply::StateRecord& record) {
  if (!log_) return log_status_;
  records_.push_back(record);
  const apply::LogRecord encoded = apply::encode(record);
  Status appended = log_->append(encoded.kind, encoded.payload);
  const bool full = !appended && appended.error().code == ErrorCode::kNoSpace;
  if (full || (appended && log_->half_full())) {
    records_ = apply::compact_state(records_, has_after_apply());
    std::vector<apply::LogRecord> kept;
    for (const apply::StateRecord& each : records_) kept.push_back(apply::encode(each));
    return log_->rewrite(kept);
  }
  if (!appended) records_.pop_back();
  return appended;
}

Status NodeState::probe(const wire::Cause& cause) {
  if (!log_ || !log_status_) {
    log_.reset();
    records_.clear();
    WEFT_TRY_STATUS(open_log());
  }
  if (cause.code == ErrorCode::kNoSpace) {
    WEFT_TRY(const std::uint64_t on_disk, state_->free_bytes());
    const std::uint64_t room = std::min(on_disk, budget_.bytes_max() - budget_.used_bytes());
    if (room < room_at_open_ + kRoomStepBytes) {
      return failure(ErrorCode::kNoSpace, Stage::kPrepare,
                     "state.dir has room for " + std::to_string(room) +
                         " bytes, no more than when the refit failed: free some or raise "
                         "state.max_bytes");
    }
  }
  return ok();
}

TablePointer NodeState::table() const {
  return table_.with([](const TablePointer& held) { return held; });
}

Result<TablePointer> NodeState::compute_table(const codec::Lattice& lattice,
                                              std::uint32_t threads) {
  const auto held = checkpoint();
  apply::CheckpointSource source(lattice, *held);
  WEFT_TRY(auto table, codec::digest_flow(lattice, source, threads));
  WEFT_TRY_STATUS(held->check_identity());
  return std::make_shared<const codec::DigestTable>(std::move(table));
}

Status NodeState::adopt_table(const codec::Lattice& lattice, TablePointer table) {
  WEFT_TRY_STATUS(replace_file(*state_, kTableName, table->encode(lattice)));
  lattices_->use(lattice);
  table_.with([&](TablePointer& held) { held = std::move(table); });
  return ok();
}

std::uint64_t NodeState::bytes_of(const RefitId& refit) const {
  const auto journal = apply::refit_bytes(*journals_, refit);
  const auto spool = apply::refit_bytes(*spools_, refit);
  return (journal ? *journal : 0) + (spool ? *spool : 0);
}

void NodeState::make_room() {
  while (!retained_.empty() && budget_.used_bytes() > budget_.bytes_max() / 2) {
    drop_retained(retained_.front());
  }
  const auto on_disk = state_->free_bytes();
  room_at_open_ =
      std::min(on_disk ? *on_disk : ~std::uint64_t{0}, budget_.bytes_max() - budget_.used_bytes());
}

void NodeState::retain(const RefitId& refit) {
  // What its writers had charged went with them.
  if (!charge(refit)) {
    static_cast<void>(apply::Spool::remove(*spools_, refit));
    static_cast<void>(charge(refit));
  }
  retained_.push_back(refit);
  while (retained_.size() > config_.retain_refits) drop_retained(retained_.front());
}

void NodeState::drop_retained(const RefitId& refit) {
  const RefitId gone = refit;
  std::erase(retained_, gone);
  if (auto removed = forget(gone); !removed) {
    events_.report(Severity::kWarning, "retained_refit_kept",
                   std::vector<EventField>{{"error", removed.error().message()}});
  }
}

// Once per refit, as many bytes as it has on disk now.
Status NodeState::charge(const RefitId& refit) {
  return charged_.with([&](std::map<RefitId, std::uint64_t>& charged) -> Status {
    if (charged.contains(refit)) return ok();
    const std::uint64_t bytes = bytes_of(refit);
    WEFT_TRY_STATUS(budget_.charge(bytes));
    charged[refit] = bytes;
    return ok();
  });
}

void NodeState::give_back(const RefitId& refit) {
  charged_.with([&](std::map<RefitId, std::uint64_t>& charged) {
    const auto found = charged.find(refit);
    if (found == charged.end()) return;
    budget_.give_back(found->second);
    charged.erase(found);
  });
}

Status NodeState::forget(const RefitId& refit) {
  give_back(refit);
  const Status journal = apply::remove_journal(*journals_, refit);
  const Status spool = apply::Spool::remove(*spools_, refit);
  return journal ? spool : journal;
}

}  // namespace weft::agent
