// SPDX-License-Identifier: Apache-2.0
// The configuration of each role as plain structs, and the loaders that fill them from TOML. Every
// key has its default here; configs/ has a commented file per role.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "apply/hook/hook_call.hpp"
#include "apply/store/store.hpp"
#include "transport/control/host_port.hpp"
#include "transport/control/tls_options.hpp"
#include "weft/base/limits.hpp"
#include "weft/base/result.hpp"
#include "weft/base/units.hpp"

namespace weft::agent {

using Durability = apply::Durability;
using ApplyEngine = apply::Engine;
enum class ApplyMode : std::uint8_t { kInPlace, kDoubleBuffer };
enum class LogFormat : std::uint8_t { kText, kJson };
enum class LogLevel : std::uint8_t { kDebug, kInfo, kWarning, kError, kOff };

// [log]
struct LogConfig {
  LogLevel level = LogLevel::kInfo;
  LogFormat format = LogFormat::kText;
  std::string file;                                    // empty: stderr
  std::chrono::milliseconds summary_interval{10'000};  // repeated causes: one line per so long
};

// [http]: /metrics, /healthz, /readyz, status page.
struct HttpConfig {
  std::optional<transport::HostPort> listen;  // none: not served
};

// [control]
struct ControlConfig {
  std::chrono::milliseconds heartbeat_interval{1000};
  std::chrono::milliseconds lost_after{3000};
  std::chrono::milliseconds connect_timeout{5000};
  std::chrono::milliseconds backoff_max{5000};
};

// [fabric]
struct FabricConfig {
  std::string provider = "auto";
  std::string interface;   // pin by interface name; empty: not pinned
  std::string address;     // pin by address (IP literal); empty: not pinned
  std::uint16_t port = 0;  // 0: any free port
  bool allow_fallback = true;
  std::int32_t numa_node = -1;  // -1: no preference
  std::chrono::milliseconds heartbeat_interval{500};
  std::chrono::milliseconds lost_after{3000};
};

// [slots]
struct SlotsConfig {
  std::uint32_t count = 64;        // of kSlotBytes each, per rail
  std::uint32_t send_reserve = 2;  // never granted
  std::uint32_t low_percent = 25;  // of slots left: a child that holds back others is demoted
};

// [producer]
struct ProducerConfig {
  std::uint64_t spool_bytes =
      4 * kGiB;               // encoded frames kept until the decision: memory, or a file beyond
  std::string state_dir;      // empty: a directory beneath TMPDIR
  std::string baseline_dir;   // weft::Publisher: empty: the baseline is memory
  std::uint32_t threads = 0;  // 0: one per core
  std::uint32_t retries = 1;  // after an abort, with a fresh attempt
  std::chrono::milliseconds outcome_timeout{600'000};
};

// [hook]: what a runtime on the node is told around an apply.
struct HookConfig {
  std::vector<apply::HookCall> before_apply;
  std::vector<apply::HookCall> after_apply;
  std::chrono::milliseconds timeout{30'000};   // of one call
  std::chrono::milliseconds give_up{600'000};  // failing so long makes the node not ready
};

// [scrub]: the weight files are read again in the background and compared with the digest table.
struct ScrubConfig {
  std::chrono::milliseconds period{86'400'000};  // every chunk at least this often; 0: never
  std::uint64_t bytes_per_second = 64 * kMiB;    // read no faster
};

// Lower priority of what goes on beside readers: enough that they come first, and not so much that
// a busy machine's agent falls behind the fleet.
inline constexpr std::uint32_t kApplyNice = 5;

struct AgentConfig {
  transport::HostPort coordinator;            // fleet.coordinator, required
  std::string agent_id;                       // agent.id; empty: made once and kept in state.dir
  std::string region;                         // agent.region
  std::string weights_dir;                    // weights.dir, required
  std::string state_dir;                      // state.dir, required
  std::uint64_t state_bytes_max = 32 * kGiB;  // state.max_bytes: spool and journals
  std::uint32_t retain_refits = limits::kRetainRefits;         // state.retain_refits
  Durability durability = Durability::kDisk;                   // state.durability
  ApplyEngine apply_engine = ApplyEngine::kAuto;               // apply.engine
  ApplyMode apply_mode = ApplyMode::kInPlace;                  // apply.mode
  std::uint32_t apply_block_bytes = limits::kApplyBlockBytes;  // apply.block_bytes
  std::chrono::milliseconds apply_lock_timeout{30'000};        // apply.lock_timeout
  std::uint32_t apply_threads = 0;  // apply.threads; 0: one per core, double_buffer: per two cores
  std::uint32_t apply_nice = kApplyNice;  // apply.nice: of the scrubber; double_buffer: of applies
  std::uint32_t resolve_threads = 0;      // agent.threads: decode workers; 0: one per core
  std::uint32_t ready_max_lag = 1;        // ready.max_lag: versions behind and still ready
  std::chrono::milliseconds stop_grace{
      30'000};  // agent.stop_grace: SIGTERM waits for an apply so long
  HookConfig hook;
  ScrubConfig scrub;
  ControlConfig control;
  FabricConfig fabric;
  SlotsConfig slots;
  transport::TlsOptions tls;
  HttpConfig http;
  LogConfig log;
};

struct CoordinatorConfig {
  transport::HostPort listen{"127.0.0.1", 7443};       // fleet.listen
  std::string state_dir;                               // state.dir, required: the decision log
  double quorum = 1.0;                                 // commit.quorum
  double min_fraction = 0.5;                           // commit.min_fraction
  std::uint32_t members_min = 1;                       // commit.members_min: agents in a plan
  bool late_leaves = false;                            // commit.late_leaves
  std::chrono::milliseconds begin_timeout{30'000};     // commit.begin_timeout: all producers' begin
  std::chrono::milliseconds settle_timeout{30'000};    // commit.settle_timeout: members get ready
  std::chrono::milliseconds rehash_timeout{600'000};   // commit.rehash_timeout: under a new lattice
  std::chrono::milliseconds stall_timeout{60'000};     // commit.stall_timeout: without any progress
  std::chrono::milliseconds prepare_timeout{120'000};  // commit.prepare_timeout: seal to last vote
  std::string tree_shape = "kary(2)";                  // tree.shape
  std::uint32_t trees_open_max = 8;                    // tree.open_max: an agent's at once
  Durability durability = Durability::kDisk;           // state.durability
  ControlConfig control;
  transport::TlsOptions tls;
  HttpConfig http;
  LogConfig log;
};

// What `weft publish --config` may say; the command line wins.
struct PublisherConfig {
  std::optional<transport::HostPort> coordinator;  // fleet.coordinator
  std::string producer_id = "publisher";           // producer.id
  std::string region;                              // producer.region
  ProducerConfig producer;
  ControlConfig control;
  FabricConfig fabric;
  SlotsConfig slots;
  transport::TlsOptions tls;
  LogConfig log;
};

// A configuration and its effective value per key, defaults included, in the file's key order: for
// the one log line at start and --check-config.
template <typename Config>
struct Loaded {
  Config config;
  std::vector<std::pair<std::string, std::string>> effective;
};

// The whole file is checked: syntax, unknown keys, types, ranges, impossible combinations. Errors:
// kConfig, "FILE:LINE: key = value: what is allowed"; kIoFailed (unreadable file).
Result<Loaded<AgentConfig>> load_agent_config(const std::string& file);
Result<Loaded<CoordinatorConfig>> load_coordinator_config(const std::string& file);
Result<Loaded<PublisherConfig>> load_publisher_config(const std::string& file);

// The same from text; `name` stands where the file would in messages.
Result<Loaded<AgentConfig>> parse_agent_config(std::string_view toml, const std::string& name);
Result<Loaded<CoordinatorConfig>> parse_coordinator_config(std::string_view toml,
                                                           const std::string& name);
Result<Loaded<PublisherConfig>> parse_publisher_config(std::string_view toml,
                                                       const std::string& name);

}  // namespace weft::agent
