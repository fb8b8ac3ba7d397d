// SPDX-License-Identifier: Apache-2.0
#include "apply/commit/state_log.hpp"

#include <algorithm>
#include <utility>

#include "apply/commit/record_bytes.hpp"

namespace weft::apply {

namespace {

// The numbers are on disk for ever.
enum Kind : std::uint16_t {
  kEpoch = 1,
  kBegin = 2,
  kPrepared = 3,
  kCommit = 4,
  kApplied = 5,
  kHooked = 6,
  kAbort = 7,
  kReseed = 8,
};

constexpr std::size_t kStampBytes = 40;

// Threads: one at a time.
struct StateEncoder {
  wire::ByteWriter out;

  std::uint16_t operator()(const EpochRecord& record) {
    out.write_bits128(record.fleet);
    write_epoch(out, record.epoch);
    return kEpoch;
  }
  std::uint16_t operator()(const BeginRecord& record) {
    out.write_refit_id(record.refit);
    out.write_content(record.base);
    out.write(record.target_version.value);
    return kBegin;
  }
  std::uint16_t operator()(const PreparedRecord& record) {
    write_prepared(out, record.prepared);
    out.write_bits128(record.manifest);
    return kPrepared;
  }
  std::uint16_t operator()(const CommitRecord& record) {
    out.write_refit_id(record.refit);
    out.write_content(record.target);
    return kCommit;
  }
  std::uint16_t operator()(const AppliedRecord& record) {
    write_refit_if(out, record.refit);
    out.write_content(record.content);
    out.write_bits128(record.boot);
    out.write(static_cast<std::uint32_t>(record.files.size()));
    for (const FileIdentity& stamp : record.files) {
      out.write(stamp.device);
      out.write(stamp.inode);
      out.write(stamp.bytes);
      out.write(static_cast<std::uint64_t>(stamp.mtime_ns));
      out.write(static_cast<std::uint64_t>(stamp.ctime_ns));
    }
    return kApplied;
  }
  std::uint16_t operator()(const HookedRecord& record) {
    out.write_refit_id(record.refit);
    return kHooked;
  }
  std::uint16_t operator()(const AbortRecord& record) {
    out.write_refit_id(record.refit);
    out.write(static_cast<std::uint8_t>(record.left_out ? 1 : 0));
    return kAbort;
  }
  std::uint16_t operator()(const ReseedRecord& record) {
    write_cause(out, record.cause);
    return kReseed;
  }
};

AppliedRecord read_applied(wire::ByteReader& in, bool& valid) {
  AppliedRecord record;
  record.refit = read_refit_if(in, valid);
  record.content = in.read_content();
  record.boot = BootId{in.read_bits128()};
  const auto file_count = in.read<std::uint32_t>();
  if (in.remaining() != file_count * kStampBytes) {
    valid = false;
    return record;
  }
  record.files.reserve(file_count);
  for (std::uint32_t i = 0; i < file_count; ++i) {
    FileIdentity stamp;
    stamp.device = in.read<std::uint64_t>();
    stamp.inode = in.read<std::uint64_t>();
    stamp.bytes = in.read<std::uint64_t>();
    stamp.mtime_ns = static_cast<std::int64_t>(in.read<std::uint64_t>());
    stamp.ctime_ns = static_cast<std::int64_t>(in.read<std::uint64_t>());
    record.files.push_back(stamp);
  }
  return record;
}

// `valid` stays true when the bytes are one whole record of this kind (in.ok() aside).
StateRecord read_record(std::uint16_t kind, wire::ByteReader& in, bool& valid) {
  switch (kind) {
    case kEpoch: {
      const FleetId fleet{in.read_bits128()};
      return EpochRecord{fleet, read_epoch(in)};
    }
    case kBegin: {
      BeginRecord record;
      record.refit = in.read_refit_id();
      record.base = in.read_content();
      record.target_version.value = in.read<std::uint64_t>();
      return record;
    }
    case kPrepared: {
      PreparedRecord record;
      record.prepared = read_prepared(in);
      record.manifest = Digest{in.read_bits128()};
      return record;
    }
    case kCommit: {
      const RefitId refit = in.read_refit_id();
      return CommitRecord{refit, in.read_content()};
    }
    case kApplied:
      return read_applied(in, valid);
    case kHooked:
      return HookedRecord{in.read_refit_id()};
    case kAbort: {
      AbortRecord record{in.read_refit_id(), false};
      const auto left_out = in.read<std::uint8_t>();
      if (left_out > 1) valid = false;
      record.left_out = left_out == 1;
      return record;
    }
    case kReseed: {
      const auto cause = read_cause(in);
      if (!cause) valid = false;
      return ReseedRecord{cause.value_or(wire::Cause{})};
    }
    default:
      valid = false;
      return EpochRecord{};
  }
}

// Folds one record after the other.
// Threads: one at a time.
class StateFolder {
 public:
  explicit StateFolder(bool hooks) : hooks_(hooks) {}

  void operator()(const EpochRecord& record) {
    fold_.fleet = record.fleet;
    fold_.epoch = record.epoch;
  }
  void operator()(const BeginRecord& record) {
    FoldedRefit& refit = at(record.refit);
    refit.begun = true;
    refit.base = record.base;
    refit.target_version = record.target_version;
  }
  void operator()(const PreparedRecord& record) {
    FoldedRefit& refit = at(record.prepared.refit);
    refit.prepared = record;
    refit.base = record.prepared.base;
    refit.target = record.prepared.target;
    refit.target_version = record.prepared.target.version;
  }
  void operator()(const CommitRecord& record) {
    FoldedRefit& refit = at(record.refit);
    refit.committed = true;
    refit.target = record.target;
    refit.target_version = record.target.version;
  }
  void operator()(const AppliedRecord& record) {
    fold_.applied = record;
    fold_.reseed.reset();
    if (!record.refit) return;
    FoldedRefit& refit = at(*record.refit);
    refit.applied = true;
    refit.target = record.content;
    refit.target_version = record.content.version;
    if (!hooks_) erase(*record.refit);
  }
  void operator()(const HookedRecord& record) {
    see(record.refit);
    const auto found = find(record.refit);
    if (found == fold_.refits.end()) return;
    found->hooked = true;
    if (found->applied) fold_.refits.erase(found);
  }
  void operator()(const AbortRecord& record) {
    see(record.refit);
    erase(record.refit);
  }
  void operator()(const ReseedRecord& record) {
    fold_.reseed = record.cause;
    fold_.refits.clear();
  }

  StateFold take() && { return std::move(fold_); }

 private:
  std::vector<FoldedRefit>::iterator find(const RefitId& id) {
    return std::find_if(fold_.refits.begin(), fold_.refits.end(),
                        [&](const FoldedRefit& refit) { return refit.refit == id; });
  }
  void see(const RefitId& id) {
    if (!fold_.newest || *fold_.newest < id) fold_.newest = id;
  }
  FoldedRefit& at(const RefitId& id) {
    see(id);
    if (const auto found = find(id); found != fold_.refits.end()) return *found;
    fold_.refits.push_back({});
    fold_.refits.back().refit = id;
    return fold_.refits.back();
  }
  void erase(const RefitId& id) {
    if (const auto found = find(id); found != fold_.refits.end()) fold_.refits.erase(found);
  }

  bool hooks_;
  StateFold fold_;
};

}  // namespace

LogRecord encode(const StateRecord& record) {
  StateEncoder encoder;
  const std::uint16_t kind = std::visit(encoder, record);
  return {kind, std::move(encoder.out).take()};
}

Result<StateRecord> decode_state_record(const LogRecord& record) {
  wire::ByteReader in(record.payload);
  bool valid = true;
  StateRecord decoded = read_record(record.kind, in, valid);
  if (!valid || !in.ok() || in.remaining() != 0) {
    return failure(ErrorCode::kNeedsReseed, Stage::kRecover,
                   "state record of kind " + std::to_string(record.kind) + " with " +
                       std::to_string(record.payload.size()) + " bytes means nothing");
  }
  return decoded;
}

StateFold fold_state(std::span<const StateRecord> records, bool hooks) {
  StateFolder folder(hooks);
  for (const StateRecord& record : records) std::visit(folder, record);
  return std::move(folder).take();
}

std::vector<StateRecord> compact_state(std::span<const StateRecord> records, bool hooks) {
  const StateFold fold = fold_state(records, hooks);
  std::vector<StateRecord> kept;
  if (!fold.fleet.is_zero() || fold.epoch.number != 0) {
    kept.push_back(EpochRecord{fold.fleet, fold.epoch});
  }
  // An AppliedRecord creates its refit anew, and folding with `hooks` would call its hook: HOOKED
  // behind it says that this was done. Refits whose hook is due come back the same way, without it.
  std::vector<StateRecord> open;
  for (const FoldedRefit& refit : fold.refits) {
    if (refit.begun) {
      open.push_back(BeginRecord{refit.refit, refit.base, refit.target_version});
    }
    if (refit.prepared) open.push_back(*refit.prepared);
    if (refit.committed) open.push_back(CommitRecord{refit.refit, refit.target});
    if (refit.hooked && !refit.applied) open.push_back(HookedRecord{refit.refit});
    if (refit.applied) open.push_back(AppliedRecord{refit.refit, refit.target, {}, {}});
  }
  const bool due = fold.applied && fold.applied->refit &&
                   std::any_of(fold.refits.begin(), fold.refits.end(), [&](const FoldedRefit& r) {
                     return r.refit == *fold.applied->refit;
                   });
  if (fold.reseed) {
    if (fold.applied) kept.push_back(*fold.applied);
    kept.push_back(ReseedRecord{*fold.reseed});
    kept.insert(kept.end(), open.begin(), open.end());
  } else {
    kept.insert(kept.end(), open.begin(), open.end());
    if (fold.applied) kept.push_back(*fold.applied);
    if (fold.applied && fold.applied->refit && !due) {
      kept.push_back(HookedRecord{*fold.applied->refit});
    }
  }
  // The newest refit_id outlives its records: nothing up to it is taken part in again.
  if (fold_state(kept, hooks).newest != fold.newest) {
    kept.push_back(AbortRecord{*fold.newest, false});
  }
  return kept;
}

}  // namespace weft::apply
