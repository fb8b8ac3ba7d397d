// SPDX-License-Identifier: Apache-2.0
#include "apply/patch/delta_log.hpp"

#include "weft/wire/byte_io.hpp"

namespace weft::apply {

namespace {

constexpr std::uint32_t kLogKind = 0x5041'4657;  // "WFAP"
constexpr std::uint16_t kCommit = 1;
constexpr std::uint16_t kApplied = 2;

}  // namespace

Result<DeltaLog> DeltaLog::open(Store& state) {
  WEFT_TRY(RecordLog records, RecordLog::open(state, "apply-log",
                                              {.log_kind = kLogKind, .capacity_bytes = 16 * kKiB}));
  DeltaLog log(std::move(records));
  WEFT_TRY_STATUS(log.fold());
  return log;
}

Status DeltaLog::fold() {
  for (const LogRecord& record : log_.recovered()) {
    if (record.kind == kApplied) {
      under_way_.reset();
      continue;
    }
    wire::ByteReader in(record.payload);
    UnderWay under_way;
    under_way.refit = in.read_refit_id();
    under_way.target = in.read_content();
    if (record.kind != kCommit || !in.ok() || in.remaining() != 0) {
      return failure(ErrorCode::kNeedsReseed, Stage::kRecover,
                     "apply-log: a record of kind " + std::to_string(record.kind) +
                         " that this build does not know");
    }
    under_way_ = under_way;
  }
  log_.recovered().clear();
  return ok();
}

Status DeltaLog::commit(const RefitId& refit, const Content& target) {
  if (log_.half_full()) WEFT_TRY_STATUS(log_.rewrite({}));
  wire::ByteWriter out;
  out.write_refit_id(refit);
  out.write_content(target);
  WEFT_TRY_STATUS(log_.append(kCommit, out.bytes()));
  under_way_ = UnderWay{refit, target};
  return ok();
}

Status DeltaLog::applied() {
  WEFT_TRY_STATUS(log_.append(kApplied, {}));
  under_way_.reset();
  return ok();
}

}  // namespace weft::apply
