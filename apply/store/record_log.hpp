// SPDX-License-Identifier: Apache-2.0
// An append-only log of small checked records, for state that must survive a power cut
// (docs/formats/record-log.md). It knows nothing of what the records mean.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "apply/store/store.hpp"
#include "weft/base/result.hpp"
#include "weft/base/units.hpp"

namespace weft::apply {

struct LogRecord {
  std::uint16_t kind = 0;
  std::vector<std::byte> payload;
  auto operator<=>(const LogRecord&) const = default;
};

struct RecordLogOptions {
  std::uint32_t log_kind = 0;  // in the file's header; another is refused
  std::uint64_t capacity_bytes =
      256 * kKiB;  // allocated up front, doubled by a rewrite that needs it
  std::uint64_t capacity_bytes_max = 64 * kMiB;
  std::uint32_t payload_bytes_max = 4 * kMiB;
};

// 1. open() reads every record and cuts off a last one that is torn, synced, before it returns.
// 2. append() returns when its record is durable: one write, one data sync.
// 3. rewrite() replaces all records: new file, sync, rename, sync of the directory. A crash leaves
//    the old log or the new one.
// Invariant: records come back in the order in which they were appended, none missing but the last
//            one when its append() did not return ok.
// After a failed append or rewrite the log is closed for writing: every later call gives that
// error. Errors:    kNeedsReseed from open(): unreadable (a bad record before a good one, another
// kind of
//            log, a bad file header); the detail names offset and cause. kNoSpace from append():
//            the record does not fit the capacity, rewrite first (nothing was written and the log
//            goes on). kResourceLimit: a payload or a log above its maximum.
// Owns:      the open file; the store must outlive it.
// Threads:   one at a time.
class RecordLog {
 public:
  // Makes the log (durably) when it is missing.
  static Result<RecordLog> open(Store& store, std::string name, const RecordLogOptions& options);

  // What open() found; the caller may move it away.
  std::vector<LogRecord>& recovered() { return recovered_; }
  // Bytes cut off by open(): a torn append.
  std::uint64_t cut_bytes() const { return cut_bytes_; }
  bool created() const { return created_; }

  Status append(std::uint16_t kind, std::span<const std::byte> payload);
  Status rewrite(std::span<const LogRecord> kept);

  bool half_full() const { return end_ * 2 > capacity_bytes_; }
  std::uint64_t used_bytes() const { return end_; }
  std::uint64_t capacity_bytes() const { return capacity_bytes_; }
  // Bytes that a record of this payload takes in the file.
  static std::uint64_t record_bytes(std::size_t payload_bytes);

 private:
  RecordLog(Store& store, std::string name, const RecordLogOptions& options);
  Status recover();
  Status cut_tail(std::span<const std::byte> tail);

  Store* store_;
  std::string name_;
  RecordLogOptions options_;
  std::unique_ptr<File> file_;
  std::vector<LogRecord> recovered_;
  std::uint64_t capacity_bytes_ = 0;
  std::uint64_t end_ = 0;
  std::uint64_t cut_bytes_ = 0;
  std::uint32_t next_sequence_ = 0;
  bool created_ = false;
  Status broken_;
};

}  // namespace weft::apply
