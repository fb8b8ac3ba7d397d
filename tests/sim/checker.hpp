// SPDX-License-Identifier: Apache-2.0
// The invariants of docs/flow.md, asserted while the simulation runs.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "apply/commit/decision_log.hpp"
#include "apply/commit/state_log.hpp"
#include "sim/model.hpp"
#include "weft/base/ids.hpp"
#include "weft/wire/messages.hpp"

namespace weft::sim {

// Told of everything that becomes durable and everything that is said. The first violation is kept.
// Threads: one at a time.
class Checker {
 public:
  const std::string& violation() const { return violation_; }
  void violate(std::string what);

  // The trainer has made these values for a version that is being published.
  void know(const Digest& root, const Weights& weights) { weights_[root] = weights; }
  const Weights* known(const Digest& root) const;

  // Records that became durable.
  void durable(const std::string& agent, const apply::StateRecord& record);
  void durable(const apply::CoordinatorRecord& record);
  // All records of the decision log were replaced by these.
  void rewritten(const std::vector<apply::CoordinatorRecord>& records);

  // Said, or handed over.
  void said(const wire::Plan& plan);
  void said(const std::string& agent, const wire::Vote& vote);
  void counted(const std::string& agent, const wire::Vote& vote);
  void said(const wire::Decision& decision);

  // Done.
  void writes_weights(const std::string& agent, const RefitId& refit);
  void moves_baseline(const std::string& producer, const RefitId& refit);
  void shows(const std::string& agent, const Content& content, bool ready, const Weights& cached,
             const Weights& on_disk, std::uint32_t producer_count);

  const Content& committed() const { return committed_; }
  std::uint64_t commit_count() const { return commits_.size(); }
  std::uint64_t abort_count() const { return aborts_.size(); }

 private:
  using AgentRefit = std::pair<std::string, RefitId>;

  std::string violation_;
  std::map<Digest, Weights> weights_;
  std::map<RefitId, Content> commits_;  // durable at the coordinator
  std::set<RefitId> aborts_;            // durable at the coordinator
  std::map<RefitId, wire::Verdict> told_;
  std::map<RefitId, Version> planned_;
  std::set<AgentRefit> prepared_;      // durable at an agent
  std::set<AgentRefit> committed_at_;  // durable at an agent
  Content committed_;
  Epoch epoch_;
};

}  // namespace weft::sim
