// SPDX-License-Identifier: Apache-2.0
#include "sim/checker.hpp"

namespace weft::sim {

void Checker::violate(std::string what) {
  if (violation_.empty()) violation_ = std::move(what);
}

const Weights* Checker::known(const Digest& root) const {
  const auto found = weights_.find(root);
  return found == weights_.end() ? nullptr : &found->second;
}

void Checker::durable(const std::string& agent, const apply::StateRecord& record) {
  if (const auto* prepared = std::get_if<apply::PreparedRecord>(&record)) {
    prepared_.emplace(agent, prepared->prepared.refit);
  } else if (const auto* commit = std::get_if<apply::CommitRecord>(&record)) {
    committed_at_.emplace(agent, commit->refit);
    if (!commits_.contains(commit->refit)) {
      violate(agent + " recorded COMMIT of " + to_string(commit->refit) +
              ", which the coordinator has not");
    }
  }
}

void Checker::durable(const apply::CoordinatorRecord& record) {
  if (const auto* start = std::get_if<apply::StartRecord>(&record)) {
    if (start->epoch.number < epoch_.number) violate("an epoch went back");
    epoch_ = start->epoch;
  } else if (const auto* content = std::get_if<apply::ContentRecord>(&record)) {
    if (content->content.version < committed_.version) violate("the committed version went back");
    committed_ = content->content;
  } else if (const auto* decision = std::get_if<apply::DecisionRecord>(&record)) {
    const RefitId& refit = decision->refit;
    if (const auto again = commits_.find(refit); again != commits_.end()) {
      if (decision->verdict != wire::Verdict::kCommit || decision->target != again->second) {
        violate("two decisions for " + to_string(refit));
      }
    } else if (decision->verdict == wire::Verdict::kCommit) {
      if (aborts_.contains(refit)) violate("two decisions for " + to_string(refit));
      const auto told = told_.find(refit);
      if (told != told_.end() && told->second == wire::Verdict::kAbort) {
        violate("COMMIT of " + to_string(refit) + " after ABORT was told");
      }
      if (decision->base.version.value != 0 && decision->base.version != committed_.version &&
          decision->target.version != committed_.version) {
        violate("COMMIT of " + to_string(refit) + " on a base that is not the committed version");
      }
      commits_[refit] = decision->target;
      if (committed_.version < decision->target.version) committed_ = decision->target;
    } else {
      aborts_.insert(refit);
    }
  }
}

void Checker::rewritten(const std::vector<apply::CoordinatorRecord>& records) {
  for (const apply::CoordinatorRecord& record : records) durable(record);
}

void Checker::said(const wire::Plan& plan) {
  const auto [found, is_new] = planned_.emplace(plan.refit, plan.target_version);
  if (!is_new && found->second != plan.target_version) {
    violate(to_string(plan.refit) + " was used twice");
  }
}

void Checker::said(const std::string& agent, const wire::Vote& vote) {
  if (vote.yes && !prepared_.contains({agent, vote.refit})) {
    violate(agent + " voted YES on " + to_string(vote.refit) + " before PREPARED was durable");
  }
}

void Checker::counted(const std::string& agent, const wire::Vote& vote) {
  if (vote.yes && !prepared_.contains({agent, vote.refit})) {
    violate("a YES of " + agent + " is taken for " + to_string(vote.refit) +
            ", which it has not prepared");
  }
}

void Checker::said(const wire::Decision& decision) {
  if (decision.verdict == wire::Verdict::kUndecided) return;
  const RefitId& refit = decision.refit;
  const auto [told, is_new] = told_.emplace(refit, decision.verdict);
  if (!is_new && told->second != decision.verdict) {
    violate("two decisions told for " + to_string(refit));
  }
  const bool commits = decision.verdict == wire::Verdict::kCommit;
  if (commits && !commits_.contains(refit)) {
    violate("COMMIT of " + to_string(refit) + " told before it was durable");
  }
  if (commits || aborts_.contains(refit)) return;
  if (commits_.contains(refit)) violate("ABORT told of " + to_string(refit) + ", a commit");
  // Presumed: of an earlier epoch only.
  if (refit.epoch.number >= epoch_.number) {
    violate("ABORT of " + to_string(refit) + " told before it was durable");
  }
}

void Checker::writes_weights(const std::string& agent, const RefitId& refit) {
  if (!commits_.contains(refit)) {
    violate(agent + " writes weights of " + to_string(refit) + " before COMMIT is durable");
  } else if (!committed_at_.contains({agent, refit})) {
    violate(agent + " writes weights of " + to_string(refit) +
            " before its own COMMIT record is durable");
  }
}

void Checker::moves_baseline(const std::string& producer, const RefitId& refit) {
  if (!commits_.contains(refit)) {
    violate(producer + " moved its baseline to " + to_string(refit) + " without a durable COMMIT");
  }
}

// What a node says of itself is what its files are.
void Checker::shows(const std::string& agent, const Content& content, bool ready,
                    const Weights& cached, const Weights& on_disk, std::uint32_t producer_count) {
  if (content.version.value == 0) {
    if (ready) violate(agent + " is ready without a version");
    return;
  }
  if (ready && root_of(cached, producer_count) != content.root) {
    violate(agent + " is ready at version " + std::to_string(content.version.value) +
            " and its files are a mixture");
  }
  if (ready && root_of(on_disk, producer_count) != content.root) {
    violate(agent + " is ready at version " + std::to_string(content.version.value) +
            " and its synced files are not");
  }
}

}  // namespace weft::sim
