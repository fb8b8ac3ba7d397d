// SPDX-License-Identifier: Apache-2.0
// A producer's durable state (docs/formats/commit-logs.md): which content its baseline is, and
// which refit's new values lie beside it, waiting for the decision.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "apply/store/record_log.hpp"
#include "weft/base/ids.hpp"
#include "weft/base/result.hpp"
#include "weft/wire/messages.hpp"

namespace weft::apply {

inline constexpr std::uint32_t kProducerLogKind = 0x5250'4657;  // "WFPR"

struct ProducerEpochRecord {
  FleetId fleet;
  Epoch epoch;
  auto operator<=>(const ProducerEpochRecord&) const = default;
};

// The baseline is this content, and this its part.
struct BaselineRecord {
  std::optional<RefitId> refit;  // the one that moved it there
  Content content;
  Digest part;
  auto operator<=>(const BaselineRecord&) const = default;
};

// New values are durable beside the baseline; written before the SealReport is told. The target's
// root is zero: a producer knows its own part only.
struct PendingRecord {
  wire::PreparedRefit prepared;
  Digest part;
  auto operator<=>(const PendingRecord&) const = default;
};

// The pending values are gone.
struct DroppedRecord {
  RefitId refit;
  auto operator<=>(const DroppedRecord&) const = default;
};

using ProducerRecord =
    std::variant<ProducerEpochRecord, BaselineRecord, PendingRecord, DroppedRecord>;

LogRecord encode(const ProducerRecord& record);
// Errors: kFormat, whatever the bytes are.
Result<ProducerRecord> decode_producer_record(const LogRecord& record);

struct ProducerFold {
  FleetId fleet;
  Epoch epoch;
  std::optional<BaselineRecord> baseline;  // the last one
  std::optional<PendingRecord> pending;    // waits for its decision
  auto operator<=>(const ProducerFold&) const = default;
};

ProducerFold fold_producer(std::span<const ProducerRecord> records);
std::vector<ProducerRecord> compact_producer(std::span<const ProducerRecord> records);

}  // namespace weft::apply
