// SPDX-License-Identifier: Apache-2.0
// Agent: the node agent inside a process of its user's own, as `weft agent` runs it.
//
//     weft::AgentOptions options;
//     options.config_file = "/etc/weft/agent.toml";
//     auto agent = weft::Agent::open(options, events);   // serves from here on
//     ... (*agent)->status() ...
//     Status done = (*agent)->stop();                    // or destroy it
//
// A runtime reads the weights as ever: WeightView of weights.dir. No exception leaves a call.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "weft/base/clock.hpp"
#include "weft/base/event_sink.hpp"
#include "weft/base/ids.hpp"
#include "weft/base/result.hpp"

namespace weft {

// Threads: a value; one at a time.
struct AgentOptions {
  // The configuration of `weft agent --config`: a file, or its text. [http] and [log] are the
  // process's own affair and are not used.
  std::string config_file;
  std::string config_text;
};

// Threads: a value; one at a time.
struct AgentStatus {
  std::string agent_id;
  // As `weft status` shows it: starting, clean, streaming, prepared, applying, lagging, ...
  std::string state;
  std::optional<Error> cause;  // why it lags or is not ready
  Content content;             // of its weight files
  Content committed;           // the fleet's, as far as it knows
  std::string weights_path;    // where readers find the files now
  bool ready = false;          // may serve: what /readyz says
  bool connected = false;      // to the coordinator
  bool serving = false;        // false: it has stopped, or ended with an error
};

// Agent is one node of a fleet, on threads of its own.
// Owns:    the directories' locks, a fabric rail, its slots, threads; a process if a hook is a
//          command (docs/adr/0035). It sets no signal handlers.
// Life:    open -> stop, which an error can forestall; destroying it stops it.
// Threads: any; stop and the destructor: one at a time.
class Agent {
 public:
  virtual ~Agent() = default;

  // Takes the directories, reads the state and starts serving; it joins the fleet by itself,
  // however long the coordinator is away. Errors: kConfig, kBusy (another agent owns a directory),
  // those of the checkpoint. `events` must outlive it.
  static Result<std::unique_ptr<Agent>> open(const AgentOptions& options, EventSink& events);

  virtual AgentStatus status() const = 0;
  // Whether it serves no more, at most `timeout` later.
  virtual bool wait_ended(Duration timeout) = 0;
  // Finishes an apply that is under way, at most agent.stop_grace, and leaves the fleet. Gives the
  // error that had ended it before, if any. May be said again.
  virtual Status stop() = 0;
};

}  // namespace weft
