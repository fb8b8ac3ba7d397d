// SPDX-License-Identifier: Apache-2.0
#include "apply/commit/producer_log.hpp"

#include <utility>

#include "apply/commit/record_bytes.hpp"

namespace weft::apply {

namespace {

// The numbers are on disk for ever.
enum Kind : std::uint16_t {
  kEpoch = 1,
  kBaseline = 2,
  kPending = 3,
  kDropped = 4,
};

// Threads: one at a time.
struct ProducerEncoder {
  wire::ByteWriter out;

  std::uint16_t operator()(const ProducerEpochRecord& record) {
    out.write_bits128(record.fleet);
    write_epoch(out, record.epoch);
    return kEpoch;
  }
  std::uint16_t operator()(const BaselineRecord& record) {
    write_refit_if(out, record.refit);
    out.write_content(record.content);
    out.write_bits128(record.part);
    return kBaseline;
  }
  std::uint16_t operator()(const PendingRecord& record) {
    write_prepared(out, record.prepared);
    out.write_bits128(record.part);
    return kPending;
  }
  std::uint16_t operator()(const DroppedRecord& record) {
    out.write_refit_id(record.refit);
    return kDropped;
  }
};

ProducerRecord read_record(std::uint16_t kind, wire::ByteReader& in, bool& valid) {
  switch (kind) {
    case kEpoch: {
      const FleetId fleet{in.read_bits128()};
      return ProducerEpochRecord{fleet, read_epoch(in)};
    }
    case kBaseline: {
      BaselineRecord record;
      record.refit = read_refit_if(in, valid);
      record.content = in.read_content();
      record.part = Digest{in.read_bits128()};
      return record;
    }
    case kPending: {
      PendingRecord record;
      record.prepared = read_prepared(in);
      record.part = Digest{in.read_bits128()};
      return record;
    }
    case kDropped:
      return DroppedRecord{in.read_refit_id()};
    default:
      valid = false;
      return DroppedRecord{};
  }
}

// Threads: one at a time.
struct ProducerFolder {
  ProducerFold fold;

  void operator()(const ProducerEpochRecord& record) {
    fold.fleet = record.fleet;
    fold.epoch = record.epoch;
  }
  void operator()(const BaselineRecord& record) {
    fold.baseline = record;
    if (record.refit) drop(*record.refit);
  }
  void operator()(const PendingRecord& record) { fold.pending = record; }
  void operator()(const DroppedRecord& record) { drop(record.refit); }

  void drop(const RefitId& refit) {
    if (fold.pending && fold.pending->prepared.refit == refit) fold.pending.reset();
  }
};

}  // namespace

LogRecord encode(const ProducerRecord& record) {
  ProducerEncoder encoder;
  const std::uint16_t kind = std::visit(encoder, record);
  return {kind, std::move(encoder.out).take()};
}

Result<ProducerRecord> decode_producer_record(const LogRecord& record) {
  wire::ByteReader in(record.payload);
  bool valid = true;
  ProducerRecord decoded = read_record(record.kind, in, valid);
  if (!valid || !in.ok() || in.remaining() != 0) {
    return failure(ErrorCode::kFormat, Stage::kRecover,
                   "producer record of kind " + std::to_string(record.kind) + " with " +
                       std::to_string(record.payload.size()) + " bytes means nothing");
  }
  return decoded;
}

ProducerFold fold_producer(std::span<const ProducerRecord> records) {
  ProducerFolder folder;
  for (const ProducerRecord& record : records) std::visit(folder, record);
  return std::move(folder.fold);
}

std::vector<ProducerRecord> compact_producer(std::span<const ProducerRecord> records) {
  const ProducerFold fold = fold_producer(records);
  std::vector<ProducerRecord> kept;
  if (!fold.fleet.is_zero() || fold.epoch.number != 0) {
    kept.push_back(ProducerEpochRecord{fold.fleet, fold.epoch});
  }
  if (fold.baseline) kept.push_back(*fold.baseline);
  if (fold.pending) kept.push_back(*fold.pending);
  return kept;
}

}  // namespace weft::apply
