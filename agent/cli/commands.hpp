// SPDX-License-Identifier: Apache-2.0
// One function per subcommand, each in agent/cli/<name>_command.cpp. CMake looks which of those
// files exist: a command without its file is not offered. Every function returns the process's exit
// code: 0, or weft::exit_code(code) through report_failure() (report.hpp).
#pragma once

#include "agent/cli/options.hpp"
#include "agent/cli/stop_token.hpp"

namespace weft::cli {

int run_diff(const DiffOptions& options, StopToken& stop);
int run_apply(const ApplyOptions& options, StopToken& stop);
int run_verify(const VerifyOptions& options, StopToken& stop);
int run_inspect(const InspectOptions& options, StopToken& stop);
int run_plan(const PlanOptions& options, StopToken& stop);
int run_coordinator(const CoordinatorOptions& options, StopToken& stop);
int run_agent(const AgentOptions& options, StopToken& stop);
int run_publish(const PublishOptions& options, StopToken& stop);
int run_status(const StatusOptions& options, StopToken& stop);
int run_demo(const DemoOptions& options, StopToken& stop);
int run_make_checkpoint(const MakeCheckpointOptions& options, StopToken& stop);

}  // namespace weft::cli
