// SPDX-License-Identifier: Apache-2.0
// One refit from two checkpoints on disk: the producer of `weft publish`.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "agent/lib/config.hpp"
#include "transport/control/host_port.hpp"
#include "weft/base/event_sink.hpp"
#include "weft/base/result.hpp"
#include "weft/wire/messages.hpp"

namespace weft::agent {

struct PublishRequest {
  transport::HostPort coordinator;
  std::string base_dir;
  std::string target_dir;
  Version target_version;
  std::optional<Version> base_version;  // none: the fleet's committed version
  bool full = false;                    // every chunk as raw
  std::string shape;                    // empty: the coordinator's
  // Stages "hash", "encode", "prepare": bytes of the model, or frames. Called on any thread.
  std::function<void(const char* stage, std::uint64_t done, std::uint64_t total)> on_progress;
  std::function<bool()> stop_requested;  // polled on any thread; gives the attempt up
};

struct PublishReport {
  RefitId refit;
  Content base;
  Content target;
  bool already_committed = false;
  std::uint32_t attempts = 1;
  std::uint64_t frames = 0;
  std::uint64_t wire_bytes = 0;
  std::uint64_t full_bytes = 0;  // of the target's tensors
  std::uint64_t changed_elements = 0;
  std::uint64_t total_elements = 0;
  double encode_seconds = 0;   // plan until the last frame was injected
  double prepare_seconds = 0;  // begin until the last member was PREPARED
  double total_seconds = 0;    // begin until the decision
  std::optional<wire::RefitOutcome> outcome;
};

// Returns after the decision: ok when the version is committed. Members may still be applying.
// Errors: those of the checkpoints; kSchemaChanged; kVersionOrder, kPayloadConflict, kBaseMismatch,
// kBusy from the coordinator; the cause of an abort; kInDoubt (no decision by the deadline: ask
// again with the same versions); kPeerLost, kTimeout (the coordinator cannot be reached).
// Threads: any.
Result<PublishReport> publish(const PublisherConfig& config, const PublishRequest& request,
                              EventSink& events);

}  // namespace weft::agent
