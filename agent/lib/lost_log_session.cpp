// SPDX-License-Identifier: Apache-2.0
#include "agent/lib/lost_log_session.hpp"

#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "agent/lib/decision_store.hpp"
#include "apply/commit/lost_log.hpp"
#include "transport/control/control_server.hpp"
#include "weft/base/clock.hpp"
#include "weft/base/guarded.hpp"
#include "weft/base/limits.hpp"

namespace weft::agent {
namespace {

constexpr Duration kWakeUp = std::chrono::milliseconds(100);

// The last Hello of everybody.
// Threads: any.
class Listener final : public transport::ControlServerObserver {
 public:
  void on_message(transport::SessionId, wire::MemberMessage message) override {
    auto* hello = std::get_if<wire::Hello>(&message);
    if (hello == nullptr) return;
    hellos_.update([&](Hellos& hellos) {
      if (hellos.size() >= limits::kMembersMax) return;
      hellos.insert_or_assign(hello->endpoint.member_id, std::move(*hello));
    });
  }
  void on_closed(transport::SessionId, Error) override {}
  transport::FleetStatus status() override { return {}; }
  void on_resolve(RefitId, bool, ResolveReply reply) override {
    reply(failure(ErrorCode::kBusy, Stage::kDecide, "the decision log is being made anew"));
  }

  std::vector<wire::Hello> listen_for(Duration wait) {
    const TimePoint end = std::chrono::steady_clock::now() + wait;
    for (auto now = std::chrono::steady_clock::now(); now < end;
         now = std::chrono::steady_clock::now()) {
      hellos_.wait_for(
          std::min<Duration>(kWakeUp, end - now), [](const Hellos&) { return false; },
          [](const Hellos&, bool) {});
    }
    return hellos_.with([](const Hellos& hellos) {
      std::vector<wire::Hello> all;
      for (const auto& [id, hello] : hellos) all.push_back(hello);
      return all;
    });
  }

 private:
  using Hellos = std::map<std::string, wire::Hello>;
  Guarded<Hellos> hellos_;
};

}  // namespace

Result<LostLogReport> rebuild_log_from_members(const CoordinatorConfig& config,
                                               const RefitId& refit, bool commit,
                                               std::chrono::milliseconds wait, EventSink& events) {
  WEFT_TRY(auto store, DecisionStore::open(config.state_dir, config.durability, events));
  WEFT_TRY(const auto fold, apply::fold_decisions(store.records()));
  Listener listener;
  transport::ControlServerOptions options;
  options.listen = config.listen;
  options.tls = config.tls;
  options.heartbeat_interval = config.control.heartbeat_interval;
  options.lost_after = config.control.lost_after;
  WEFT_TRY(auto server, transport::ControlServer::open(options, listener, events));
  const std::vector<wire::Hello> hellos = listener.listen_for(wait);
  server->close();
  WEFT_TRY(const auto records,
           apply::rebuild_lost_log(fold, hellos, refit,
                                   commit ? wire::Verdict::kCommit : wire::Verdict::kAbort));
  WEFT_TRY(const auto now, apply::fold_decisions(records));
  WEFT_TRY_STATUS(store.rewrite(records));
  return LostLogReport{static_cast<std::uint32_t>(hellos.size()), now.committed.version,
                       now.epoch.number};
}

}  // namespace weft::agent
