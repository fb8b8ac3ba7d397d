// SPDX-License-Identifier: Apache-2.0
// What the weight files are: version, lattice and root, and how they stand to the fleet's.
#include <utility>

#include "apply/commit/agent_role.hpp"

namespace weft::apply {

namespace {

bool may_pass(ErrorCode code) {
  switch (code) {
    case ErrorCode::kNoSpace:
    case ErrorCode::kBusy:
    case ErrorCode::kTimeout:
    case ErrorCode::kResourceLimit:
    case ErrorCode::kConcurrentModification:
    case ErrorCode::kIoFailed:
    case ErrorCode::kUnsupported:
      return true;
    default:
      return false;
  }
}

std::string both_roots(const Content& ours, const Content& theirs) {
  return "this node's root is " + to_hex(ours.root) + ", the fleet's for version " +
         std::to_string(theirs.version.value) + " is " + to_hex(theirs.root);
}

}  // namespace

void AgentRole::compute_table(const Digest& lattice) {
  if (computing_) return;
  computing_ = true;
  out_.push_back(agent::ComputeTable{lattice});
}

void AgentRole::on(const agent::TableComputed& event) {
  computing_ = false;
  if (reseed_) return;
  boot_ = event.boot;
  files_ = event.files;
  if (content_.version.value == 0) {
    verify_first_ = false;
    table_ = Content{Version{0}, event.lattice, event.root};
    compare_with_committed();
    return;
  }
  const Content found{content_.version, event.lattice, event.root};
  if (verify_first_ && event.lattice == content_.lattice && event.root != content_.root) {
    need_reseed({ErrorCode::kBaseMismatch, "the weight files are not version " +
                                               std::to_string(content_.version.value) +
                                               " any more: root " + to_hex(event.root) +
                                               ", recorded " + to_hex(content_.root)});
    return;
  }
  verify_first_ = false;
  record_content(found);
  for (Refit& refit : refits_) {
    if (refit.phase == Phase::kPrepared && refit.commit) {
      commit(refit, *refit.commit);
      break;
    }
  }
}

void AgentRole::on(const agent::TableFailed& event) {
  computing_ = false;
  if (reseed_) return;
  if (may_pass(event.error.code)) {
    be_unable(event.error);
  } else {
    need_reseed({event.error.code, event.error.detail});
  }
}

// The files are `content` by their table (or by an anchor): the version becomes ours when the
// record is durable.
void AgentRole::record_content(const Content& content) {
  if (is_pending(Purpose::kContent, {})) return;
  append(Purpose::kContent, {}, AppliedRecord{std::nullopt, content, boot_, files_});
}

void AgentRole::learn_committed(const Content& committed) {
  if (committed.version < committed_.version) return;
  committed_ = committed;
  compare_with_committed();
}

void AgentRole::compare_with_committed() {
  if (reseed_ || verify_first_ || computing_ || committed_.version.value == 0) return;
  if (content_.version.value == 0) {
    if (table_.lattice != committed_.lattice) {
      if (!unable_) compute_table(committed_.lattice);
    } else if (table_.root == committed_.root) {
      record_content(committed_);
    } else {
      need_reseed({ErrorCode::kBaseMismatch, both_roots(table_, committed_)});
    }
    return;
  }
  if (content_.version != committed_.version) return;
  // Under another lattice the same bytes have another root.
  if (content_.lattice == committed_.lattice && content_.root != committed_.root) {
    need_reseed({ErrorCode::kBaseMismatch, both_roots(content_, committed_)});
    return;
  }
  level_seen_ = true;
}

}  // namespace weft::apply
