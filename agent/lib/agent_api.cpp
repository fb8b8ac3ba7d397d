// SPDX-License-Identifier: Apache-2.0
// weft::Agent (include/weft/agent.hpp).
#include "weft/agent.hpp"

#include <optional>
#include <thread>
#include <utility>

#include "agent/lib/config.hpp"
#include "agent/lib/node_agent.hpp"
#include "weft/base/guarded.hpp"

namespace weft::agent {
namespace {

// Far beyond any agent.stop_grace.
constexpr Duration kStopTimeout = std::chrono::hours(1);

// Threads: as Agent.
class EmbeddedAgent final : public Agent {
 public:
  explicit EmbeddedAgent(std::unique_ptr<NodeAgent> node)
      : node_(std::move(node)), thread_([this] {
          Status ran = node_->run();
          ended_.update([&](std::optional<Status>& ended) { ended = std::move(ran); });
        }) {}
  ~EmbeddedAgent() override {
    node_->request_stop();
    thread_.join();
  }

  AgentStatus status() const override {
    const NodeSnapshot node = node_->snapshot();
    AgentStatus status;
    status.agent_id = node.agent_id;
    status.state = wire::to_string(node.state);
    if (node.cause) status.cause = failure(node.cause->code, Stage::kPublish, node.cause->detail);
    status.content = node.content;
    status.committed = node.committed;
    status.weights_path = node.weights_path;
    status.connected = node.connected;
    status.serving = ended_.with([](const std::optional<Status>& ended) { return !ended; });
    status.ready = node.ready && status.serving;
    return status;
  }

  bool wait_ended(Duration timeout) override {
    return ended_.wait_for(
        timeout, [](const std::optional<Status>& ended) { return ended.has_value(); },
        [](const std::optional<Status>&, bool reached) { return reached; });
  }

  Status stop() override {
    node_->request_stop();
    if (!wait_ended(kStopTimeout)) {
      return failure(ErrorCode::kTimeout, Stage::kApply, "the agent does not stop");
    }
    return ended_.with([](const std::optional<Status>& ended) { return *ended; });
  }

 private:
  const std::unique_ptr<NodeAgent> node_;
  Guarded<std::optional<Status>> ended_;  // what run() gave
  std::thread thread_;
};

Result<AgentConfig> config_of(const AgentOptions& options) {
  if (options.config_file.empty() == options.config_text.empty()) {
    return failure(ErrorCode::kConfig, Stage::kOpen,
                   "an agent needs a configuration: a file or its text, one of the two");
  }
  WEFT_TRY(auto loaded, options.config_text.empty()
                            ? load_agent_config(options.config_file)
                            : parse_agent_config(options.config_text, "agent configuration"));
  return std::move(loaded.config);
}

}  // namespace
}  // namespace weft::agent

namespace weft {

Result<std::unique_ptr<Agent>> Agent::open(const AgentOptions& options, EventSink& events) {
  WEFT_TRY(const agent::AgentConfig config, agent::config_of(options));
  WEFT_TRY(auto node, agent::NodeAgent::open(config, events));
  return std::unique_ptr<Agent>(std::make_unique<agent::EmbeddedAgent>(std::move(node)));
}

}  // namespace weft
