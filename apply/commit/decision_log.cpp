// SPDX-License-Identifier: Apache-2.0
#include "apply/commit/decision_log.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "apply/commit/record_bytes.hpp"

namespace weft::apply {

namespace {

// The numbers are on disk for ever.
enum Kind : std::uint16_t {
  kFleet = 1,
  kStart = 2,
  kContent = 3,
  kDecision = 4,
  kAcked = 5,
  kForgotten = 6,
};

enum Flag : std::uint8_t { kByOperator = 1, kHasCause = 2 };

// Threads: one at a time.
struct DecisionEncoder {
  wire::ByteWriter out;

  std::uint16_t operator()(const FleetRecord& record) {
    out.write_bits128(record.fleet);
    return kFleet;
  }
  std::uint16_t operator()(const StartRecord& record) {
    write_epoch(out, record.epoch);
    return kStart;
  }
  std::uint16_t operator()(const ContentRecord& record) {
    out.write_content(record.content);
    return kContent;
  }
  std::uint16_t operator()(const DecisionRecord& record) {
    out.write_refit_id(record.refit);
    out.write(static_cast<std::uint8_t>(record.verdict));
    out.write(static_cast<std::uint8_t>((record.by_operator ? kByOperator : 0) |
                                        (record.cause ? kHasCause : 0)));
    out.write_content(record.base);
    out.write_content(record.target);
    if (record.cause) write_cause(out, *record.cause);
    out.write(static_cast<std::uint32_t>(record.planned.size()));
    for (const std::string& member_id : record.planned) out.write_string(member_id);
    return kDecision;
  }
  std::uint16_t operator()(const AckedRecord& record) {
    out.write_refit_id(record.refit);
    out.write_string(record.member_id);
    return kAcked;
  }
  std::uint16_t operator()(const ForgottenRecord& record) {
    out.write_refit_id(record.refit);
    return kForgotten;
  }
};

DecisionRecord read_decision(wire::ByteReader& in, bool& valid) {
  DecisionRecord record;
  record.refit = in.read_refit_id();
  const auto verdict = in.read<std::uint8_t>();
  const auto flags = in.read<std::uint8_t>();
  valid = valid && flags <= (kByOperator | kHasCause) &&
          (verdict == static_cast<std::uint8_t>(wire::Verdict::kCommit) ||
           verdict == static_cast<std::uint8_t>(wire::Verdict::kAbort));
  record.verdict = static_cast<wire::Verdict>(verdict);
  record.by_operator = (flags & kByOperator) != 0;
  record.base = in.read_content();
  record.target = in.read_content();
  if ((flags & kHasCause) != 0) {
    record.cause = read_cause(in);
    valid = valid && record.cause.has_value();
  }
  const auto planned_count = in.read<std::uint32_t>();
  valid = valid && planned_count <= limits::kMembersMax + limits::kProducersMax;
  for (std::uint32_t i = 0; valid && in.ok() && i < planned_count; ++i) {
    record.planned.push_back(in.read_string(limits::kMemberIdBytesMax));
  }
  return record;
}

CoordinatorRecord read_record(std::uint16_t kind, wire::ByteReader& in, bool& valid) {
  switch (kind) {
    case kFleet:
      return FleetRecord{FleetId{in.read_bits128()}};
    case kStart:
      return StartRecord{read_epoch(in)};
    case kContent:
      return ContentRecord{in.read_content()};
    case kDecision:
      return read_decision(in, valid);
    case kAcked: {
      const RefitId refit = in.read_refit_id();
      return AckedRecord{refit, in.read_string(limits::kMemberIdBytesMax)};
    }
    case kForgotten:
      return ForgottenRecord{in.read_refit_id()};
    default:
      valid = false;
      return FleetRecord{};
  }
}

// Folds one record after the other.
// Threads: one at a time.
class DecisionFolder {
 public:
  void operator()(const FleetRecord& record) { fold_.fleet = record.fleet; }
  void operator()(const StartRecord& record) {
    if (fold_.epoch < record.epoch) fold_.epoch = record.epoch;
  }
  void operator()(const ContentRecord& record) { fold_.committed = record.content; }
  void operator()(const DecisionRecord& record) {
    const bool is_void = !record.by_operator && record.refit.epoch.number < fold_.epoch.number;
    if (is_void) return;
    const auto [known, is_new] = verdicts_.emplace(record.refit, record.verdict);
    if (!is_new) {
      contradiction_ = contradiction_ || known->second != record.verdict;
      return;
    }
    if (record.verdict == wire::Verdict::kCommit) {
      fold_.commits.push_back({record, {}});
      if (fold_.committed.version < record.target.version) fold_.committed = record.target;
    } else if (record.by_operator) {
      fold_.aborts.push_back(record);
    }
  }
  void operator()(const AckedRecord& record) {
    if (const auto found = find(record.refit); found != fold_.commits.end()) {
      found->acked.insert(record.member_id);
    }
  }
  void operator()(const ForgottenRecord& record) {
    if (const auto found = find(record.refit); found != fold_.commits.end()) {
      fold_.commits.erase(found);
    }
  }

  Result<DecisionFold> take() && {
    if (contradiction_) {
      return failure(ErrorCode::kFormat, Stage::kRecover,
                     "the decision log holds two decisions for one refit");
    }
    return std::move(fold_);
  }

 private:
  std::vector<FoldedDecision>::iterator find(const RefitId& id) {
    return std::find_if(fold_.commits.begin(), fold_.commits.end(),
                        [&](const FoldedDecision& entry) { return entry.decision.refit == id; });
  }

  DecisionFold fold_;
  std::map<RefitId, wire::Verdict> verdicts_;
  bool contradiction_ = false;
};

}  // namespace

LogRecord encode(const CoordinatorRecord& record) {
  DecisionEncoder encoder;
  const std::uint16_t kind = std::visit(encoder, record);
  return {kind, std::move(encoder.out).take()};
}

Result<CoordinatorRecord> decode_coordinator_record(const LogRecord& record) {
  wire::ByteReader in(record.payload);
  bool valid = true;
  CoordinatorRecord decoded = read_record(record.kind, in, valid);
  if (!valid || !in.ok() || in.remaining() != 0) {
    return failure(ErrorCode::kFormat, Stage::kRecover,
                   "decision record of kind " + std::to_string(record.kind) + " with " +
                       std::to_string(record.payload.size()) + " bytes means nothing");
  }
  return decoded;
}

Result<DecisionFold> fold_decisions(std::span<const CoordinatorRecord> records) {
  DecisionFolder folder;
  for (const CoordinatorRecord& record : records) std::visit(folder, record);
  return std::move(folder).take();
}

std::vector<CoordinatorRecord> compact_decisions(const DecisionFold& fold) {
  std::vector<CoordinatorRecord> kept;
  if (!fold.fleet.is_zero()) kept.push_back(FleetRecord{fold.fleet});
  if (fold.committed.version.value != 0) kept.push_back(ContentRecord{fold.committed});
  for (const FoldedDecision& entry : fold.commits) {
    kept.push_back(entry.decision);
    for (const std::string& member_id : entry.acked) {
      kept.push_back(AckedRecord{entry.decision.refit, member_id});
    }
  }
  for (const DecisionRecord& abort : fold.aborts) kept.push_back(abort);
  if (fold.epoch.number != 0) kept.push_back(StartRecord{fold.epoch});
  return kept;
}

Result<std::vector<CoordinatorRecord>> resolve_by_operator(const DecisionFold& fold,
                                                           const wire::PreparedRefit& refit,
                                                           wire::Verdict verdict) {
  const auto contradicts = [&](wire::Verdict known) {
    return failure(ErrorCode::kInDoubt, Stage::kDecide,
                   to_string(refit.refit) + " is " +
                       (known == wire::Verdict::kCommit ? "committed" : "aborted") +
                       " in the decision log: that stands");
  };
  for (const FoldedDecision& entry : fold.commits) {
    if (entry.decision.refit != refit.refit) continue;
    if (verdict != wire::Verdict::kCommit) return contradicts(wire::Verdict::kCommit);
    return std::vector<CoordinatorRecord>{};
  }
  for (const DecisionRecord& abort : fold.aborts) {
    if (abort.refit != refit.refit) continue;
    if (verdict != wire::Verdict::kAbort) return contradicts(wire::Verdict::kAbort);
    return std::vector<CoordinatorRecord>{};
  }
  if (verdict == wire::Verdict::kCommit && refit.target.root.is_zero()) {
    return failure(ErrorCode::kConfig, Stage::kDecide,
                   "no member reports " + to_string(refit.refit) +
                       " as PREPARED: its target is unknown and it cannot be committed");
  }
  DecisionRecord decision;
  decision.refit = refit.refit;
  decision.verdict = verdict;
  decision.base = refit.base;
  decision.target = refit.target;
  decision.by_operator = true;
  std::vector<CoordinatorRecord> added;
  added.push_back(decision);
  if (verdict == wire::Verdict::kAbort && fold.committed.version < refit.base.version) {
    added.push_back(ContentRecord{refit.base});  // a log that was lost: its members are there
  }
  // The next start takes a higher epoch than the refit's, so that its members believe it.
  if (fold.epoch.number < refit.refit.epoch.number) {
    added.push_back(StartRecord{refit.refit.epoch});
  }
  return added;
}

}  // namespace weft::apply
