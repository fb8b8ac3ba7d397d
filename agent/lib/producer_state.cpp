// SPDX-License-Identifier: Apache-2.0
#include "agent/lib/producer_state.hpp"

#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <type_traits>

#include "agent/lib/fault_point.hpp"
#include "apply/journal/journal_record.hpp"
#include "weft/wire/digest.hpp"

namespace weft::agent {
namespace {

constexpr std::string_view kLockName = "lock";
constexpr std::string_view kLogName = "state";
constexpr std::string_view kBaselineName = "baseline";
constexpr std::string_view kPendingName = "pending";
constexpr std::string_view kFreshName = "pending.new";
constexpr const char* kRecordNames[] = {"epoch", "baseline", "pending", "dropped"};

constexpr std::uint64_t kPendingMagic = 0x3144'4e50'5446'4557;  // "WEFTPND1"

// docs/formats/producer-state.md
// Threads: a value; one at a time.
struct PendingHeader {
  std::uint64_t magic = kPendingMagic;
  std::uint64_t epoch = 0;
  std::uint64_t coordinator = 0;
  std::uint32_t attempt = 0;
  std::uint32_t chunk_count = 0;
  std::uint64_t bytes = 0;  // behind this header
  Digest digest;            // of those bytes
};
static_assert(sizeof(PendingHeader) == 56 && std::is_trivially_copyable_v<PendingHeader>);

// Before each record.
// Threads: a value; one at a time.
struct PendingEntry {
  std::uint32_t chunk = 0;
  std::uint32_t bytes = 0;
};

std::span<const std::byte> bytes_of(const auto& value) {
  return std::as_bytes(std::span(&value, 1));
}

}  // namespace

Error ProducerState::damaged(std::string_view name, const std::string& what) const {
  return failure(ErrorCode::kNeedsReseed, Stage::kOpen,
                 directory_ + "/" + std::string(name) + ": " + what +
                     "; remove the directory and start from a checkpoint of the fleet's version");
}

Result<std::unique_ptr<ProducerState>> ProducerState::open(const std::string& directory,
                                                           EventSink& events) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) {
    return failure(ErrorCode::kConfig, Stage::kOpen,
                   "producer.baseline_dir " + directory + ": cannot be made: " + error.message(),
                   error.value());
  }
  ::chmod(directory.c_str(), 0700);
  WEFT_TRY(auto store, apply::open_store(directory, {apply::Engine::kPosix}, events));
  auto lock = store->try_lock(kLockName, apply::LockMode::kExclusive);
  if (!lock) {
    return failure(lock.error().code, Stage::kOpen,
                   "producer.baseline_dir " + directory + ": " + lock.error().detail,
                   lock.error().native);
  }
  apply::RecordLogOptions options;
  options.log_kind = apply::kProducerLogKind;
  WEFT_TRY(auto log, apply::RecordLog::open(*store, std::string(kLogName), options));
  std::vector<apply::ProducerRecord> records;
  for (const apply::LogRecord& raw : log.recovered()) {
    WEFT_TRY(auto record, apply::decode_producer_record(raw));
    records.push_back(std::move(record));
  }
  return std::unique_ptr<ProducerState>(new ProducerState(
      directory, std::move(store), *std::move(lock), std::move(log), std::move(records)));
}

ProducerState::~ProducerState() {
  if (!mapping_.empty()) ::munmap(mapping_.data(), mapping_.size());
}

Status ProducerState::append(const apply::ProducerRecord& record) {
  if (log_.half_full()) {
    const auto kept = apply::compact_producer(records_);
    std::vector<apply::LogRecord> raw;
    raw.reserve(kept.size());
    for (const apply::ProducerRecord& each : kept) raw.push_back(apply::encode(each));
    WEFT_TRY_STATUS(log_.rewrite(raw));
    records_ = kept;
  }
  const std::string name = kRecordNames[record.index()];
  kill_point("publisher.before_record_" + name);
  const apply::LogRecord raw = apply::encode(record);
  WEFT_TRY_STATUS(log_.append(raw.kind, raw.payload));
  records_.push_back(record);
  kill_point("publisher.after_record_" + name);
  const bool ends = std::holds_alternative<apply::BaselineRecord>(record) ||
                    std::holds_alternative<apply::DroppedRecord>(record);
  return ends ? store_->remove_tree(kPendingName) : ok();
}

Result<std::span<std::byte>> ProducerState::map_baseline(std::uint64_t bytes) {
  if (bytes == 0) return std::span<std::byte>();
  const bool known = fold().baseline.has_value();
  // What an earlier start did not finish is of no use.
  if (!known) WEFT_TRY_STATUS(store_->remove_tree(kBaselineName));
  WEFT_TRY(baseline_, known ? store_->open(kBaselineName, apply::Access::kReadWrite)
                            : store_->create(kBaselineName));
  if (!known) {
    WEFT_TRY_STATUS(baseline_->allocate(0, bytes, true));
    WEFT_TRY_STATUS(store_->sync_directory());
  }
  WEFT_TRY(const std::uint64_t size, baseline_->size());
  if (size != bytes) {
    return damaged(kBaselineName, std::to_string(size) + " bytes, not " + std::to_string(bytes));
  }
  void* const mapping =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, baseline_->native_handle(), 0);
  if (mapping == MAP_FAILED) {
    return failure(ErrorCode::kResourceLimit, Stage::kOpen,
                   directory_ + "/baseline cannot be mapped", errno);
  }
  mapping_ = {static_cast<std::byte*>(mapping), static_cast<std::size_t>(bytes)};
  return mapping_;
}

Status ProducerState::sync_baseline() {
  if (mapping_.empty()) return ok();
  if (::msync(mapping_.data(), mapping_.size(), MS_SYNC) != 0) {
    return failure(ErrorCode::kIoFailed, Stage::kApply, directory_ + "/baseline: sync", errno);
  }
  return baseline_->sync();
}

Status ProducerState::write_pending(const RefitId& refit, std::span<const PendingChunk> chunks) {
  std::vector<std::byte> bytes;
  const auto add = [&bytes](std::span<const std::byte> part) {
    bytes.insert(bytes.end(), part.begin(), part.end());
  };
  for (const PendingChunk& each : chunks) {
    add(bytes_of(PendingEntry{each.chunk.value, static_cast<std::uint32_t>(each.record.size())}));
    add(each.record);
  }
  PendingHeader header;
  header.epoch = refit.epoch.number;
  header.coordinator = refit.epoch.coordinator.value;
  header.attempt = refit.attempt;
  header.chunk_count = static_cast<std::uint32_t>(chunks.size());
  header.bytes = bytes.size();
  header.digest = wire::digest128(bytes);
  WEFT_TRY_STATUS(store_->remove_tree(kFreshName));
  WEFT_TRY(auto file, store_->create(kFreshName));
  WEFT_TRY_STATUS(file->write(0, bytes_of(header)));
  WEFT_TRY_STATUS(file->write(sizeof(header), bytes));
  WEFT_TRY_STATUS(file->sync());
  WEFT_TRY_STATUS(store_->rename(kFreshName, kPendingName));
  return store_->sync_directory();
}

Result<std::vector<PendingChunk>> ProducerState::read_pending(const RefitId& refit) const {
  WEFT_TRY(auto file, store_->open(kPendingName, apply::Access::kRead));
  WEFT_TRY(const std::uint64_t size, file->size());
  PendingHeader header;
  if (size < sizeof(header)) return damaged(kPendingName, "too short");
  WEFT_TRY_STATUS(file->read(0, std::as_writable_bytes(std::span(&header, 1))));
  const bool own = header.magic == kPendingMagic && header.epoch == refit.epoch.number &&
                   header.coordinator == refit.epoch.coordinator.value &&
                   header.attempt == refit.attempt;
  if (!own || header.bytes != size - sizeof(header)) {
    return damaged(kPendingName, "not the values of " + to_string(refit));
  }
  std::vector<std::byte> bytes(static_cast<std::size_t>(header.bytes));
  WEFT_TRY_STATUS(file->read(sizeof(header), bytes));
  if (wire::digest128(bytes) != header.digest) return damaged(kPendingName, "wrong digest");
  std::vector<PendingChunk> chunks;
  std::span<const std::byte> rest = bytes;
  for (std::uint32_t i = 0; i < header.chunk_count; ++i) {
    PendingEntry entry;
    if (rest.size() < sizeof(entry)) return damaged(kPendingName, "ends too early");
    std::memcpy(&entry, rest.data(), sizeof(entry));
    rest = rest.subspan(sizeof(entry));
    if (rest.size() < entry.bytes) return damaged(kPendingName, "ends too early");
    const auto record = rest.first(entry.bytes);
    WEFT_TRY_STATUS(apply::check_record(record));
    chunks.push_back({ChunkIndex{entry.chunk}, {record.begin(), record.end()}});
    rest = rest.subspan(entry.bytes);
  }
  return chunks;
}

}  // namespace weft::agent
