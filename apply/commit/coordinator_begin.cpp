// SPDX-License-Identifier: Apache-2.0
// From a producer's Begin to a refit that all producers have begun.
#include <algorithm>
#include <utility>

#include "apply/commit/coordinator_role.hpp"
#include "codec/digest/digest_table.hpp"
#include "weft/base/limits.hpp"

namespace weft::apply {

namespace {

std::string both(const Content& ours, const Content& theirs) {
  return "base is version " + std::to_string(theirs.version.value) + " root " +
         to_hex(theirs.root) + ", committed is version " + std::to_string(ours.version.value) +
         " root " + to_hex(ours.root);
}

}  // namespace

// What is wrong with it, before anyone else is asked. A target that is the committed version is not
// wrong yet: whether its content is the same needs all parts (judge_again).
std::optional<wire::Cause> CoordinatorRole::objection(const wire::Begin& begin) const {
  if (begin.producer_count == 0 || begin.producer_count > limits::kProducersMax ||
      begin.producer.value >= begin.producer_count) {
    return wire::Cause{ErrorCode::kProtocol, "producer " + std::to_string(begin.producer.value) +
                                                 " of " + std::to_string(begin.producer_count)};
  }
  if (begin.target_version.value == 0 || begin.target_version <= begin.base.version) {
    return wire::Cause{ErrorCode::kVersionOrder,
                       "target version " + std::to_string(begin.target_version.value) +
                           " is not above its base " + std::to_string(begin.base.version.value)};
  }
  if (committed_.version.value == 0) {
    if (begin.base.version.value != 0) return std::nullopt;
    return wire::Cause{ErrorCode::kVersionOrder, "the first base of a fleet needs a version"};
  }
  if (begin.target_version == committed_.version) return std::nullopt;
  if (begin.target_version < committed_.version || begin.base.version != committed_.version) {
    return wire::Cause{ErrorCode::kVersionOrder, both(committed_, begin.base) +
                                                     ", target is version " +
                                                     std::to_string(begin.target_version.value)};
  }
  if (begin.base.lattice == committed_.lattice && begin.base.root != committed_.root) {
    return wire::Cause{ErrorCode::kBaseMismatch, both(committed_, begin.base)};
  }
  return std::nullopt;
}

void CoordinatorRole::refuse(Member& member, std::uint64_t request, wire::Cause cause,
                             bool already) {
  wire::BeginRefused refused;
  refused.request = request;
  refused.already_committed = already;
  refused.cause = std::move(cause);
  refused.committed = committed_;
  send(member, std::move(refused));
}

// No plan was told: the attempt ends without a decision.
void CoordinatorRole::refuse_all(const wire::Cause& cause, bool already) {
  note(already ? Severity::kInfo : Severity::kWarning, "begin_refused", cause.detail);
  for (auto& [index, slot] : open_->slots) {
    if (Member* member = find_member(slot.member_id)) {
      refuse(*member, slot.begin.request, cause, already);
    }
  }
  open_.reset();
}

// Another producer of the refit that is being gathered.
bool CoordinatorRole::joins(const wire::Begin& begin) const {
  if (open_->phase != Phase::kGathering || open_->slots.empty()) return false;
  const wire::Begin& first = open_->slots.begin()->second.begin;
  return begin.base == first.base && begin.target_version == first.target_version &&
         begin.producer_count == first.producer_count && begin.schema == first.schema &&
         begin.full == first.full && begin.shape == first.shape &&
         !open_->slots.contains(begin.producer.value);
}

void CoordinatorRole::said(Member& member, const wire::Begin& begin) {
  if (member.hello.role != wire::Role::kProducer) {
    refuse(member, begin.request, {ErrorCode::kProtocol, "only producers begin"}, false);
    return;
  }
  if (open_) {
    if (Slot* slot = slot_of(member.id)) {
      const bool planned = open_->phase == Phase::kStreaming || open_->phase == Phase::kPreparing;
      if (slot->begin.request == begin.request) {
        if (planned) slot->repeat_at = now_;
        return;
      }
      const wire::Cause cause{ErrorCode::kBusy, "producer " + member.id + " began again"};
      if (planned) decide(wire::Verdict::kAbort, cause);
      if (planned || open_->phase == Phase::kFounding || open_->phase == Phase::kDeciding) {
        return;  // it says this again
      }
      refuse_all(cause, false);
    } else if (!joins(begin)) {
      refuse(member, begin.request,
             {ErrorCode::kBusy, "refit " + to_string(open_->refit) + " to version " +
                                    std::to_string(open_->target_version.value) + " is open"},
             false);
      return;
    }
  }
  if (auto cause = objection(begin)) {
    refuse(member, begin.request, *std::move(cause), false);
    return;
  }
  gather(member, begin);
}

void CoordinatorRole::gather(Member& member, const wire::Begin& begin) {
  if (!open_) {
    open_ = Open{};
    open_->refit = RefitId{epoch_, ++attempts_};
    open_->begun_at = now_;
    open_->deadline = now_ + options_.begin_timeout;
    open_->base = begin.base;
    open_->target_version = begin.target_version;
    open_->producer_count = begin.producer_count;
  }
  Slot slot;
  slot.member_id = member.id;
  slot.process = member.hello.endpoint.process;
  slot.begin = begin;
  open_->slots.emplace(begin.producer.value, std::move(slot));
  if (open_->slots.size() == open_->producer_count) gathered();
}

std::vector<Digest> CoordinatorRole::parts(bool of_target) const {
  std::vector<Digest> digests;
  for (const auto& [index, slot] : open_->slots) {
    digests.push_back(of_target ? slot.begin.target_part : slot.begin.base_part);
  }
  return digests;
}

void CoordinatorRole::gathered() {
  if (open_->target_version == committed_.version) {
    judge_again();
    return;
  }
  const wire::Begin& first = open_->slots.begin()->second.begin;
  const Digest root = codec::fold_root(first.schema, open_->base.lattice, parts(false));
  if (root != open_->base.root) {
    refuse_all({ErrorCode::kBaseMismatch, "the producers' parts fold to root " + to_hex(root) +
                                              ", their base names " + to_hex(open_->base.root)},
               false);
    return;
  }
  open_->phase = Phase::kSettling;
  open_->deadline = now_ + options_.settle_timeout;
}

// The target version is the committed one: the same content is success without effect.
void CoordinatorRole::judge_again() {
  const std::vector<Digest> targets = parts(true);
  const bool known = std::none_of(targets.begin(), targets.end(),
                                  [](const Digest& part) { return part.is_zero(); });
  const std::string version = std::to_string(committed_.version.value);
  if (!known || open_->base.lattice != committed_.lattice) {
    refuse_all({ErrorCode::kVersionOrder,
                "version " + version + " is committed; the target's content is not known"},
               false);
    return;
  }
  const wire::Begin& first = open_->slots.begin()->second.begin;
  const Digest root = codec::fold_root(first.schema, committed_.lattice, targets);
  if (root == committed_.root) {
    refuse_all({ErrorCode::kVersionOrder, "already at version " + version}, true);
    return;
  }
  refuse_all({ErrorCode::kPayloadConflict, "version " + version + " is committed with root " +
                                               to_hex(committed_.root) + ", the target's is " +
                                               to_hex(root)},
             false);
}

void CoordinatorRole::said(Member& member, const wire::AbortRequest& request) {
  Slot* slot = open_ ? slot_of(member.id) : nullptr;
  if (!slot || slot->process != member.hello.endpoint.process) return;
  const wire::Cause cause{request.cause.code, member.id + ": " + request.cause.detail};
  switch (open_->phase) {
    case Phase::kStreaming:
    case Phase::kPreparing:
      if (request.refit == open_->refit) decide(wire::Verdict::kAbort, cause);
      break;
    case Phase::kGathering:
    case Phase::kSettling:
    case Phase::kRehashing:
      if (request.request == slot->begin.request) refuse_all(cause, false);
      break;
    case Phase::kFounding:
    case Phase::kDeciding:
      break;
  }
}

}  // namespace weft::apply
