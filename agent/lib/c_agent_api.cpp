// SPDX-License-Identifier: Apache-2.0
// The agent's part of include/weft/c.h.
#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "agent/lib/c_call.hpp"
#include "weft/agent.hpp"
#include "weft/c.h"

using weft::agent::CallbackSink;
using weft::agent::fail;
using weft::agent::guarded;
using weft::agent::text_of;

// Threads: as c.h says.
struct weft_agent {
  CallbackSink events;
  std::unique_ptr<weft::Agent> agent;
  weft::AgentStatus shown;  // whose texts the caller may look at
};

int weft_agent_open(const weft_agent_options* options, weft_agent** agent) {
  return guarded([&]() -> int {
    if (options == nullptr || agent == nullptr) return fail("options and agent must be given");
    weft_agent_options known = {};
    std::memcpy(&known, options, std::min(options->struct_bytes, sizeof(known)));
    auto opened = std::make_unique<weft_agent>(
        weft_agent{CallbackSink(known.on_event, known.event_context), nullptr, {}});
    auto result =
        weft::Agent::open({text_of(known.config_file), text_of(known.config_text)}, opened->events);
    if (!result) return fail(result.error());
    opened->agent = *std::move(result);
    *agent = opened.release();
    return 0;
  });
}

int weft_agent_status_now(weft_agent* agent, weft_agent_status* status) {
  return guarded([&]() -> int {
    if (agent == nullptr || status == nullptr) return fail("no agent or status");
    if (status->struct_bytes < sizeof(status->struct_bytes)) {
      return fail("status->struct_bytes is not the struct's size");
    }
    agent->shown = agent->agent->status();
    const weft::AgentStatus& shown = agent->shown;
    weft_agent_status known = {};
    known.struct_bytes = std::min(status->struct_bytes, sizeof(known));
    known.agent_id = shown.agent_id.c_str();
    known.state = shown.state.c_str();
    known.weights_path = shown.weights_path.c_str();
    known.version = shown.content.version.value;
    std::memcpy(known.root, &shown.content.root.low, 8);
    std::memcpy(known.root + 8, &shown.content.root.high, 8);
    known.committed_version = shown.committed.version.value;
    known.ready = shown.ready ? 1 : 0;
    known.connected = shown.connected ? 1 : 0;
    known.serving = shown.serving ? 1 : 0;
    known.cause = shown.cause ? static_cast<int>(shown.cause->code) : 0;
    known.cause_detail = shown.cause ? shown.cause->detail.c_str() : "";
    std::memcpy(status, &known, known.struct_bytes);
    return 0;
  });
}

int weft_agent_wait_ended(weft_agent* agent, uint64_t timeout_ms) {
  return guarded([&]() -> int {
    if (agent == nullptr) return fail("no agent");
    const auto longest = std::chrono::milliseconds(std::chrono::hours(24));
    const auto wanted = std::min<std::uint64_t>(timeout_ms, longest.count());
    if (agent->agent->wait_ended(std::chrono::milliseconds(wanted))) return 0;
    return fail(
        weft::failure(weft::ErrorCode::kTimeout, weft::Stage::kPublish, "the agent serves still"));
  });
}

int weft_agent_stop(weft_agent* agent) {
  return guarded([&]() -> int {
    if (agent == nullptr) return fail("no agent");
    const weft::Status stopped = agent->agent->stop();
    return stopped ? 0 : fail(stopped.error());
  });
}

void weft_agent_close(weft_agent* agent) {
  guarded([&] {
    delete agent;
    return 0;
  });
}
