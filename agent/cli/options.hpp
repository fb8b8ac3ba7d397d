// SPDX-License-Identifier: Apache-2.0
// What the command line says, as plain structs: one per subcommand, filled by command_line.cpp
// only. Sizes, durations and addresses are already parsed and range-checked here.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "agent/lib/config.hpp"
#include "codec/encode/encode_chunk.hpp"
#include "transport/control/host_port.hpp"
#include "transport/control/tls_options.hpp"
#include "weft/base/ids.hpp"

namespace weft::cli {

using agent::LogFormat;
using agent::LogLevel;

// Of every subcommand.
struct CommonOptions {
  bool json = false;                    // the result on stdout is one JSON object
  std::optional<LogLevel> log_level;    // overrides the configuration file
  std::optional<LogFormat> log_format;  // overrides the configuration file
};

// How to reach the coordinator, for commands that have no configuration file.
struct FleetOptions {
  transport::HostPort coordinator;
  transport::TlsOptions tls;
  std::chrono::milliseconds timeout{10'000};
};

enum class DiffFormat : std::uint8_t { kTable, kJson, kCsv };

struct DiffOptions {
  CommonOptions common;  // json: as format kJson
  DiffFormat format = DiffFormat::kTable;
  codec::Profile profile = codec::Profile::kCompact;
  std::uint32_t tensors_shown = 10;  // in the table; 0: all that changed
  std::string base_dir;
  std::string target_dir;
  std::string output_file;  // empty: only count
  unsigned threads = 0;     // 0: one per core
};

struct ApplyOptions {
  CommonOptions common;
  std::string dir;
  std::string delta_file;
  std::string state_dir;  // empty: `<dir>/.weft-state`
  bool dry_run = false;   // verify only, no weight byte is written
};

struct VerifyOptions {
  CommonOptions common;
  std::string dir;
  std::string against_dir;     // empty: not compared
  std::optional<Digest> root;  // expected
};

struct InspectOptions {
  CommonOptions common;
  std::string path;         // a delta file, a frame, a journal or a checkpoint directory
  bool chunks = false;      // one line per chunk (of a checkpoint: per tensor)
  std::string weights_dir;  // of a journal: the checkpoint that it is for
};

enum class PlanFormat : std::uint8_t { kText, kDot };

struct PlanOptions {
  CommonOptions common;
  std::string shape = "kary(2)";
  std::uint32_t node_count = 0;  // agents
  std::uint32_t producer_count = 1;
  std::uint32_t region_count = 1;  // over which the agents are spread; producers are in the first
  PlanFormat format = PlanFormat::kText;
  std::uint64_t refit_bytes = 0;    // 0: no prediction
  double link_bits_per_second = 0;  // of every link; 0: no prediction
  std::chrono::nanoseconds hop_delay{0};
};

struct CoordinatorOptions {
  CommonOptions common;
  std::string config_file;
  bool check_config = false;
  // --resolve REFIT commit|abort, sent to the running coordinator of this configuration.
  struct Resolve {
    RefitId refit;
    bool commit = false;
  };
  std::optional<Resolve> resolve;
  std::optional<transport::HostPort> resolve_at;  // none: where the configuration listens
  bool log_lost = false;                          // no coordinator can run: the log is made anew
  std::chrono::milliseconds wait{15'000};         // for members, with log_lost
};

struct AgentOptions {
  CommonOptions common;
  std::string config_file;
  bool check_config = false;
};

struct PublishOptions {
  CommonOptions common;
  FleetOptions fleet;
  std::string base_dir;
  std::string target_dir;
  Version target_version;
  std::optional<Version> base_version;  // none: the fleet's committed version
  bool full = false;                    // every chunk as raw: an anchor
  std::string shape;                    // empty: the coordinator's
  std::string config_file;              // optional: fabric, slots, producer, tls, log
};

struct StatusOptions {
  CommonOptions common;
  FleetOptions fleet;
  std::optional<transport::HostPort> node;  // the pages of one agent are asked instead
  bool watch = false;
  std::chrono::milliseconds interval{1000};
};

struct DemoOptions {
  CommonOptions common;
  std::string work_dir;  // empty: a temporary directory, removed at the end
  std::uint32_t agent_count = 7;
  std::string shape = "kary(2)";
  std::uint64_t model_bytes = 256ULL << 20;
  std::uint32_t refit_count = 3;
  std::uint64_t seed = 1;
  bool keep = false;
};

// weft bench make-checkpoint
struct MakeCheckpointOptions {
  CommonOptions common;
  std::string output_dir;  // gets base/ and target/; with more than one step step-0/, step-1/, ...
  std::uint64_t model_bytes = 1ULL << 30;
  std::vector<double> changed_percents{3.0};  // --changed 3 or --changed 1,3,5: one per step
  std::uint64_t seed = 1;
  std::uint32_t file_count = 0;  // 0: one per 256 MiB
};

}  // namespace weft::cli
