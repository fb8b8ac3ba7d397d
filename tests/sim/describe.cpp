// SPDX-License-Identifier: Apache-2.0
// Messages in a few words, for the trace.
#include <string>

#include "sim/host.hpp"

namespace weft::sim {

namespace {

std::string version_of(const Content& content) {
  return "v" + std::to_string(content.version.value);
}
std::string short_of(const RefitId& refit) {
  return "e" + std::to_string(refit.epoch.number) + "-a" + std::to_string(refit.attempt);
}
std::string why(const std::optional<wire::Cause>& cause) {
  return cause ? " (" + std::string(to_string(cause->code)) + ": " + cause->detail + ")" : "";
}

// Threads: one at a time.
struct Words {
  std::string operator()(const wire::Hello& m) const {
    return "hello state " + std::to_string(static_cast<int>(m.state)) + " " +
           version_of(m.content) + " epoch " + std::to_string(m.epoch.number) +
           (m.prepared ? " prepared " + short_of(m.prepared->refit) : "") +
           (m.begun ? " begun " + short_of(*m.begun) : "") + why(m.cause);
  }
  std::string operator()(const wire::Begin& m) const {
    return "begin " + version_of(m.base) + " to v" + std::to_string(m.target_version.value);
  }
  std::string operator()(const wire::SealReport& m) const {
    return "seal report " + short_of(m.refit) + ", frames " + std::to_string(m.seal.frame_count);
  }
  std::string operator()(const wire::Progress& m) const {
    return "progress " + short_of(m.refit) + " frames " + std::to_string(m.frames) +
           (m.lost_peer.empty() ? "" : " lost " + m.lost_peer);
  }
  std::string operator()(const wire::Vote& m) const {
    return "vote " + short_of(m.refit) + (m.yes ? " yes" : " no") + why(m.cause);
  }
  std::string operator()(const wire::Ack& m) const {
    return "ack " + short_of(m.refit) + " " + version_of(m.content) + why(m.cause);
  }
  std::string operator()(const wire::DecisionQuery& m) const {
    return "query " + short_of(m.prepared.refit);
  }
  std::string operator()(const wire::AbortRequest& m) const {
    return "abort request " + short_of(m.refit) + " (" + m.cause.detail + ")";
  }
  std::string operator()(const wire::Heartbeat&) const { return "heartbeat"; }
  std::string operator()(const wire::Welcome& m) const {
    return "welcome epoch " + std::to_string(m.epoch.number) + " " + version_of(m.committed);
  }
  std::string operator()(const wire::Rehash&) const { return "rehash"; }
  std::string operator()(const wire::Plan& m) const {
    return "plan " + short_of(m.refit) + " revision " + std::to_string(m.revision) + " " +
           version_of(m.base) + " to v" + std::to_string(m.target_version.value) + ", nodes " +
           std::to_string(m.nodes.size());
  }
  std::string operator()(const wire::Seal& m) const {
    return "seal " + short_of(m.manifest.refit) + " to " + version_of(m.manifest.target);
  }
  std::string operator()(const wire::Decision& m) const {
    constexpr const char* kVerdicts[] = {"?", "commit", "abort", "undecided"};
    return std::string("decision ") + short_of(m.refit) + " " +
           kVerdicts[static_cast<int>(m.verdict)] + why(m.cause);
  }
  std::string operator()(const wire::AckReceived& m) const {
    return "ack received " + short_of(m.refit);
  }
  std::string operator()(const wire::BeginRefused& m) const {
    return std::string("begin refused") + (m.already_committed ? ", already" : "") + why(m.cause);
  }
  std::string operator()(const wire::RefitOutcome& m) const {
    return "outcome " + short_of(m.refit) + " prepared " + std::to_string(m.prepared) + " of " +
           std::to_string(m.planned) + ", applied " + std::to_string(m.applied);
  }
  std::string operator()(const wire::SessionRefused& m) const {
    return "session refused (" + m.cause.detail + ")";
  }
};

}  // namespace

std::string describe(const wire::MemberMessage& message) { return std::visit(Words{}, message); }
std::string describe(const wire::CoordinatorMessage& message) {
  return std::visit(Words{}, message);
}

}  // namespace weft::sim
