// SPDX-License-Identifier: Apache-2.0
// A coordinator and agents as child processes of this program, on loopback.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "agent/cli/stop_token.hpp"
#include "transport/control/fleet_status.hpp"
#include "transport/control/host_port.hpp"
#include "weft/base/result.hpp"

namespace weft::cli {

struct DemoFleetOptions {
  std::string work_dir;  // gets a directory per process
  std::string base_dir;  // copied to every agent
  std::string shape;
  std::uint32_t agent_count = 7;
};

// DemoFleet starts the processes, waits for states, ends what it started.
// Owns:    the child processes (ended by the destructor); the work directory stays.
// Threads: one at a time, except kill_agent: any.
class DemoFleet {
 public:
  DemoFleet(DemoFleetOptions options, StopToken& stop);
  ~DemoFleet();
  DemoFleet(const DemoFleet&) = delete;
  DemoFleet& operator=(const DemoFleet&) = delete;

  // Copies the base to every agent, starts all, waits until each has told its root. Errors:
  // kIoFailed, kTimeout (names the process and its log file), kBusy (stopped).
  Status start();
  // SIGKILL, as a crash.
  void kill_agent(std::uint32_t index);
  Status restart_agent(std::uint32_t index);

  // Until every agent of `indices` is clean at the version. Errors: kTimeout, kBusy.
  Status wait_clean(const std::vector<std::uint32_t>& indices, Version version);
  Result<transport::FleetStatus> status() const;

  const transport::HostPort& coordinator() const { return coordinator_; }
  std::string agent_name(std::uint32_t index) const { return "node-" + std::to_string(index); }
  std::string weights_dir(std::uint32_t index) const;

 private:
  struct Child {
    std::string name;
    pid_t process = -1;
  };
  Status start_coordinator();
  Status start_agent(std::uint32_t index);
  Status spawn(Child& child, const std::string& role, const std::string& config);
  Status wait_until(const std::string& what,
                    const std::function<bool(const transport::FleetStatus&)>& reached);

  DemoFleetOptions options_;
  StopToken& stop_;
  transport::HostPort coordinator_;
  Child coordinator_child_;
  std::vector<Child> agents_;
};

}  // namespace weft::cli
