// SPDX-License-Identifier: Apache-2.0
// Which members take part in the open refit, and the trees over them.
#include <algorithm>
#include <utility>

#include "apply/commit/coordinator_role.hpp"

namespace weft::apply {

// Goes as far as the members allow; called after every event.
void CoordinatorRole::advance() {
  if (!open_) return;
  if (open_->phase == Phase::kRehashing && (rehashed() || now_ >= open_->deadline)) {
    open_->rehash_done = true;
    open_->phase = Phase::kSettling;
    open_->deadline = now_ + options_.settle_timeout;
  }
  if (open_->phase != Phase::kSettling) return;
  if (!settled() && now_ < open_->deadline) return;
  if (open_->base == committed_) {
    plan();
  } else if (open_->rehash_done) {
    found();
  } else {
    rehash();
  }
}

// Nobody who is here is about to become able to take part.
bool CoordinatorRole::settled() const {
  if (now_ < served_at_ + options_.start_grace) return false;
  std::uint32_t agents = 0;
  for (const auto& [id, member] : members_) {
    if (!is_live(member) || member.hello.role != wire::Role::kAgent) continue;
    ++agents;
    // Who was silent in the last attempt is not waited for in the next.
    if (member.excluded && member.excluded->code == ErrorCode::kTimeout) continue;
    if (!member.in) return false;
    const wire::Hello& hello = member.hello;
    switch (hello.state) {
      case wire::MemberState::kStarting:
      case wire::MemberState::kRehashing:
      case wire::MemberState::kPrepared:
      case wire::MemberState::kStreaming:
        return false;
      case wire::MemberState::kApplying:
        if (!options_.leaf_while_applying || !applying_base(member)) return false;
        break;
      case wire::MemberState::kUnversioned:
        if (committed_.version.value != 0) return false;
        break;
      default:
        break;
    }
    if (hello.begun || (applying_base(member) && !options_.leaf_while_applying)) return false;
  }
  return agents >= std::max(options_.members_expected, options_.members_min);
}

// Has the base's COMMIT to carry out: it will be at the base when that is done.
bool CoordinatorRole::applying_base(const Member& member) const {
  if (member.hello.state == wire::MemberState::kNeedsReseed) return false;
  return std::any_of(decided_.begin(), decided_.end(), [&](const Decided& entry) {
    return entry.decision.verdict == wire::Verdict::kCommit &&
           entry.decision.target == committed_ && entry.waiting.contains(member.id);
  });
}

bool CoordinatorRole::needs_rehash(const Member& member) const {
  const wire::Hello& hello = member.hello;
  const bool at_version =
      hello.content.version == committed_.version &&
      (hello.state == wire::MemberState::kClean || hello.state == wire::MemberState::kUnversioned ||
       hello.state == wire::MemberState::kRehashing);
  return is_live(member) && member.in && hello.role == wire::Role::kAgent && at_version &&
         hello.content.lattice != open_->base.lattice;
}

void CoordinatorRole::rehash() {
  bool any = false;
  const Digest schema = open_->slots.begin()->second.begin.schema;
  for (auto& [id, member] : members_) {
    if (!needs_rehash(member)) continue;
    send(member, wire::Rehash{open_->refit, schema, open_->base.lattice});
    any = true;
  }
  if (!any) {
    open_->rehash_done = true;
    found();
    return;
  }
  if (open_->phase != Phase::kRehashing) open_->deadline = now_ + options_.rehash_timeout;
  open_->phase = Phase::kRehashing;
  open_->repeat_at = now_ + options_.repeat_period;
}

bool CoordinatorRole::rehashed() const {
  return std::none_of(members_.begin(), members_.end(),
                      [&](const auto& entry) { return needs_rehash(entry.second); });
}

// The base becomes the committed content: members must attest it, then it must be durable, before
// anyone takes its version from us.
void CoordinatorRole::found() {
  std::uint32_t asked = 0;
  std::uint32_t equal = 0;
  Content other;
  bool other_schema = false;
  for (const auto& [id, member] : members_) {
    if (!is_live(member) || !member.in || member.hello.role != wire::Role::kAgent) continue;
    if (member.hello.schema != open_->slots.begin()->second.begin.schema) other_schema = true;
    const Content& content = member.hello.content;
    if (content.version != committed_.version || content.lattice != open_->base.lattice) continue;
    ++asked;
    if (content.root == open_->base.root) {
      ++equal;
    } else {
      other = content;
    }
  }
  const bool enough =
      equal >= std::max(options_.members_min, 1U) && equal >= options_.min_fraction * asked;
  if (!enough) {
    const std::string found_root = asked == equal ? "none" : to_hex(other.root);
    const ErrorCode nobody = other_schema ? ErrorCode::kSchemaChanged : ErrorCode::kPeerLost;
    refuse_all({asked == 0 ? nobody : ErrorCode::kBaseMismatch,
                (other_schema ? "members have another schema: " : "") + std::to_string(equal) +
                    " of " + std::to_string(asked) + " members have the base's root " +
                    to_hex(open_->base.root) + "; another is " + found_root},
               false);
    return;
  }
  open_->phase = Phase::kFounding;
  append(Purpose::kContent, ContentRecord{open_->base});
}

bool CoordinatorRole::plannable(const Member& member) const {
  const wire::Hello& hello = member.hello;
  if (!is_live(member) || !member.in || hello.role != wire::Role::kAgent || member.excluded ||
      hello.schema != open_->slots.begin()->second.begin.schema) {
    return false;
  }
  if (applying_base(member)) return options_.leaf_while_applying;
  return hello.state == wire::MemberState::kClean && hello.content == open_->base && !hello.begun &&
         !hello.prepared;
}

std::string CoordinatorRole::why_nobody() const {
  std::string why = "no member can take part";
  int named = 0;
  for (const auto& [id, member] : members_) {
    if (member.hello.role != wire::Role::kAgent || ++named > 5) continue;
    why += "; " + id + ": ";
    if (!is_live(member)) {
      why += "lost";
    } else if (member.hello.cause) {
      why += member.hello.cause->detail;
    } else if (member.excluded) {
      why += member.excluded->detail;
    } else if (member.hello.schema != open_->slots.begin()->second.begin.schema) {
      why += "has another schema";
    } else {
      why += "is not at the base";
    }
  }
  return why;
}

void CoordinatorRole::plan() {
  for (const auto& [index, slot] : open_->slots) {
    const Member* member = find_member(slot.member_id);
    if (member && is_live(*member) && member->hello.endpoint.process == slot.process) continue;
    refuse_all({ErrorCode::kPeerLost, "producer " + slot.member_id + " is gone"}, false);
    return;
  }
  std::set<std::string> leaves;
  const Digest schema = open_->slots.begin()->second.begin.schema;
  bool other_schema = false;
  for (const auto& [id, member] : members_) {
    if (member.hello.role == wire::Role::kAgent && is_live(member)) {
      other_schema = other_schema || member.hello.schema != schema;
    }
    if (!plannable(member)) continue;
    Planned planned;
    planned.process = member.hello.endpoint.process;
    planned.late_leaf = applying_base(member);
    planned.repeat_at = now_ + options_.repeat_period;
    if (planned.late_leaf) leaves.insert(id);
    open_->planned.emplace(id, planned);
  }
  const std::size_t steady = open_->planned.size() - leaves.size();
  if (open_->planned.size() < options_.members_min || steady == 0) {
    refuse_all(
        {other_schema && open_->planned.empty() ? ErrorCode::kSchemaChanged : ErrorCode::kPeerLost,
         why_nobody()},
        false);
    return;
  }
  if (const Status made = make_plan(leaves); !made) {
    refuse_all({made.error().code, made.error().detail}, false);
    return;
  }
  open_->phase = Phase::kStreaming;
  open_->deadline = now_ + options_.stall_timeout;
  note(Severity::kInfo, "refit_planned",
       to_string(open_->refit) + " to version " + std::to_string(open_->target_version.value) +
           " with " + std::to_string(open_->planned.size()) + " members");
  for (auto& [index, slot] : open_->slots) {
    slot.repeat_at = now_ + options_.repeat_period;
    if (Member* member = find_member(slot.member_id)) send_plan(*member);
  }
  for (auto& [id, planned] : open_->planned) send_plan(*find_member(id));
}

// The trees over all producers and every planned member that is not lost.
Status CoordinatorRole::make_plan(const std::set<std::string>& leaves) {
  TreeRequest request;
  const wire::Begin& first = open_->slots.begin()->second.begin;
  request.shape = first.shape.empty() ? options_.shape : first.shape;
  request.producer_count = open_->producer_count;
  request.model_bytes = first.model_bytes;
  wire::Plan& plan = open_->plan;
  if (!plan.nodes.empty()) request.previous = &plan;
  const std::uint32_t revision = plan.nodes.empty() ? 0 : plan.revision + 1;
  std::vector<std::uint64_t> requests;
  for (const auto& [index, slot] : open_->slots) {
    const Member* member = find_member(slot.member_id);
    if (!member) return failure(ErrorCode::kPeerLost, Stage::kDecide, slot.member_id);
    request.nodes.push_back(member->hello.endpoint);
    request.leaf_only.push_back(false);
    requests.push_back(slot.begin.request);
  }
  for (const auto& [id, planned] : open_->planned) {
    const Member* member = find_member(id);
    if (planned.lost || !member) continue;
    request.nodes.push_back(member->hello.endpoint);
    request.leaf_only.push_back(leaves.contains(id));
  }
  auto trees = planner_(request);
  if (!trees) return std::move(trees).error();
  bool whole = !trees->empty() && trees->size() % request.producer_count == 0;
  for (const auto& tree : *trees) whole = whole && tree.nodes.size() == request.nodes.size();
  if (!whole) {
    return failure(ErrorCode::kInternal, Stage::kDecide, "a tree does not cover its nodes");
  }
  plan.refit = open_->refit;
  plan.revision = revision;
  plan.fleet = fleet_;
  plan.base = open_->base;
  plan.target_version = open_->target_version;
  plan.schema = first.schema;
  plan.shape = request.shape;
  plan.producer_count = request.producer_count;
  plan.trees_open_max = options_.trees_open_max;
  plan.requests = std::move(requests);
  plan.nodes = std::move(request.nodes);
  plan.trees = *std::move(trees);
  return ok();
}

void CoordinatorRole::send_plan(Member& member) { send(member, open_->plan); }

}  // namespace weft::apply
