// SPDX-License-Identifier: Apache-2.0
#include "agent/lib/decision_store.hpp"

#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <utility>
#include <variant>

#include "agent/lib/fault_point.hpp"

namespace weft::agent {
namespace {

// Of apply::CoordinatorRecord, in its order: where a test may end this process.
constexpr std::array kRecordNames = {"fleet", "start", "content", "verdict", "acked", "forgotten"};
static_assert(kRecordNames.size() == std::variant_size_v<apply::CoordinatorRecord>);

constexpr const char* kLockName = "weft.coordinator";
constexpr const char* kLogName = "decisions";

Status make_directory(const std::string& path) {
  std::error_code error;
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  if (!parent.empty()) std::filesystem::create_directories(parent, error);
  if (mkdir(path.c_str(), 0700) == 0 || errno == EEXIST) return ok();
  const int native = errno;
  const ErrorCode code = native == EACCES || native == EPERM || native == EROFS
                             ? ErrorCode::kDenied
                             : ErrorCode::kIoFailed;
  return failure(code, Stage::kOpen, "cannot make the directory " + path, native);
}

}  // namespace

DecisionStore::DecisionStore(std::unique_ptr<apply::Store> store,
                             std::unique_ptr<apply::FileLock> lock, apply::RecordLog log,
                             std::vector<apply::CoordinatorRecord> records)
    : store_(std::move(store)),
      lock_(std::move(lock)),
      log_(std::move(log)),
      records_(std::move(records)) {}

Result<DecisionStore> DecisionStore::open(const std::string& directory,
                                          apply::Durability durability, EventSink& events) {
  WEFT_TRY_STATUS(make_directory(directory));
  WEFT_TRY(auto store, apply::open_store(directory, {apply::Engine::kPosix, durability}, events));
  auto lock = store->try_lock(kLockName, apply::LockMode::kExclusive);
  if (!lock) {
    if (lock.error().code != ErrorCode::kBusy) return std::move(lock).error();
    return failure(ErrorCode::kBusy, Stage::kOpen,
                   "another coordinator has " + directory + " (who: fuser " + directory + "/" +
                       kLockName + ")");
  }
  apply::RecordLogOptions options;
  options.log_kind = apply::kDecisionLogKind;
  WEFT_TRY(auto log, apply::RecordLog::open(*store, kLogName, options));
  if (log.cut_bytes() > 0) {
    const std::array fields = {EventField{"bytes", std::to_string(log.cut_bytes())}};
    events.report(Severity::kWarning, "decision_log_tail_cut", fields);
  }
  std::vector<apply::CoordinatorRecord> records;
  for (const apply::LogRecord& raw : log.recovered()) {
    WEFT_TRY(auto record, apply::decode_coordinator_record(raw));
    records.push_back(std::move(record));
  }
  return DecisionStore(std::move(store), *std::move(lock), std::move(log), std::move(records));
}

Status DecisionStore::append(const apply::CoordinatorRecord& record) {
  if (log_.half_full()) {
    WEFT_TRY(const auto fold, apply::fold_decisions(records_));
    WEFT_TRY_STATUS(rewrite(apply::compact_decisions(fold)));
  }
  const apply::LogRecord raw = apply::encode(record);
  WEFT_TRY_STATUS(log_.append(raw.kind, raw.payload));
  records_.push_back(record);
  kill_point(std::string("coordinator.after_") + kRecordNames[record.index()]);
  return ok();
}

Status DecisionStore::rewrite(const std::vector<apply::CoordinatorRecord>& records) {
  std::vector<apply::LogRecord> raw;
  raw.reserve(records.size());
  for (const apply::CoordinatorRecord& record : records) raw.push_back(apply::encode(record));
  WEFT_TRY_STATUS(log_.rewrite(raw));
  records_ = records;
  return ok();
}

}  // namespace weft::agent
