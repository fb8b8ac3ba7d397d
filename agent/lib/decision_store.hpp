// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "apply/commit/decision_log.hpp"
#include "apply/store/record_log.hpp"
#include "apply/store/store.hpp"
#include "weft/base/event_sink.hpp"
#include "weft/base/result.hpp"

namespace weft::agent {

// The decision log on disk, with the lock that keeps a second coordinator out of its directory.
// Invariant: records() is what the log holds, in order.
// Owns:      the directory's lock and the log.
// Threads:   one at a time.
class DecisionStore {
 public:
  // Makes the directory (0700) when it is missing. Errors: kBusy (another coordinator), and those
  // of RecordLog::open.
  static Result<DecisionStore> open(const std::string& directory, apply::Durability durability,
                                    EventSink& events);

  const std::vector<apply::CoordinatorRecord>& records() const { return records_; }
  // Durable when it returns. A half-full log is rewritten from its fold first.
  Status append(const apply::CoordinatorRecord& record);
  Status rewrite(const std::vector<apply::CoordinatorRecord>& records);

 private:
  DecisionStore(std::unique_ptr<apply::Store> store, std::unique_ptr<apply::FileLock> lock,
                apply::RecordLog log, std::vector<apply::CoordinatorRecord> records);

  std::unique_ptr<apply::Store> store_;
  std::unique_ptr<apply::FileLock> lock_;
  apply::RecordLog log_;
  std::vector<apply::CoordinatorRecord> records_;
};

}  // namespace weft::agent
