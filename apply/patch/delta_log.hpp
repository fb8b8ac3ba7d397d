// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "apply/store/record_log.hpp"
#include "weft/base/ids.hpp"
#include "weft/base/result.hpp"

namespace weft::apply {

// What `weft apply` has under way in a directory. COMMIT is written before the first weight byte,
// APPLIED after the last one is durable: in between the directory is neither base nor target, and
// the journal is what completes it.
// Threads: one at a time.
class DeltaLog {
 public:
  // `<state_dir>/apply-log`. Errors: as RecordLog::open.
  static Result<DeltaLog> open(Store& state);

  struct UnderWay {
    RefitId refit;
    Content target;
  };
  const std::optional<UnderWay>& under_way() const { return under_way_; }

  Status commit(const RefitId& refit, const Content& target);
  Status applied();

 private:
  explicit DeltaLog(RecordLog log) : log_(std::move(log)) {}
  Status fold();

  RecordLog log_;
  std::optional<UnderWay> under_way_;
};

}  // namespace weft::apply
