// SPDX-License-Identifier: Apache-2.0
#include "agent/lib/config.hpp"

#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "agent/lib/config_reader.hpp"
#include "apply/patch/patcher.hpp"
#include "transport/control/tls_files.hpp"
#include "transport/tree/relay_plan.hpp"

namespace weft::agent {
namespace {

using namespace std::chrono_literals;
using std::chrono::milliseconds;
using transport::PortZero;

constexpr std::uintmax_t kConfigBytesMax = 1024 * 1024;
constexpr milliseconds kDay = 24h;
constexpr std::size_t kHookCallsMax = 16;
constexpr std::size_t kHookBytesMax = 8192;

constexpr std::array kLogLevels = {
    std::pair{std::string_view("debug"), LogLevel::kDebug},
    std::pair{std::string_view("info"), LogLevel::kInfo},
    std::pair{std::string_view("warning"), LogLevel::kWarning},
    std::pair{std::string_view("error"), LogLevel::kError},
    std::pair{std::string_view("off"), LogLevel::kOff},
};
constexpr std::array kLogFormats = {
    std::pair{std::string_view("text"), LogFormat::kText},
    std::pair{std::string_view("json"), LogFormat::kJson},
};
constexpr std::array kDurabilities = {
    std::pair{std::string_view("disk"), Durability::kDisk},
    std::pair{std::string_view("process"), Durability::kProcess},
};
constexpr std::array kEngines = {
    std::pair{std::string_view("auto"), ApplyEngine::kAuto},
    std::pair{std::string_view("uring"), ApplyEngine::kUring},
    std::pair{std::string_view("posix"), ApplyEngine::kPosix},
};
constexpr std::array kApplyModes = {
    std::pair{std::string_view("in_place"), ApplyMode::kInPlace},
    std::pair{std::string_view("double_buffer"), ApplyMode::kDoubleBuffer},
};

template <typename Enum, std::size_t kCount>
void take(ConfigReader& in, const char* key, Enum& target,
          const std::array<std::pair<std::string_view, Enum>, kCount>& choices) {
  in.take_choice(key, target, std::span<const std::pair<std::string_view, Enum>>(choices));
}

void take(ConfigReader& in, LogConfig& log) {
  take(in, "log.level", log.level, kLogLevels);
  take(in, "log.format", log.format, kLogFormats);
  in.take_text("log.file", log.file);
  in.take_duration("log.summary_interval", log.summary_interval, 1s, 1h);
}

void take(ConfigReader& in, HttpConfig& http) {
  in.take_address("http.listen", http.listen, PortZero::kAllow);
}

void take(ConfigReader& in, ControlConfig& control) {
  in.take_duration("control.heartbeat_interval", control.heartbeat_interval, 50ms, 1min);
  in.take_duration("control.lost_after", control.lost_after, 200ms, 10min);
  in.take_duration("control.connect_timeout", control.connect_timeout, 100ms, 5min);
  in.take_duration("control.backoff_max", control.backoff_max, 100ms, 10min);
  if (control.lost_after < 2 * control.heartbeat_interval) {
    in.reject("control.lost_after", "must be at least twice control.heartbeat_interval");
  }
}

void take(ConfigReader& in, transport::TlsOptions& tls) {
  in.take_text("tls.cert", tls.certificate_file);
  in.take_text("tls.key", tls.key_file);
  in.take_text("tls.ca", tls.authority_file);
  in.take_text("tls.server_name", tls.server_name, 253);
  in.take_flag("tls.insecure", tls.insecure);
  const bool all =
      !tls.certificate_file.empty() && !tls.key_file.empty() && !tls.authority_file.empty();
  if (tls.enabled() && !all) {
    const bool cert = !tls.certificate_file.empty();
    in.reject(cert                    ? "tls.cert"
              : !tls.key_file.empty() ? "tls.key"
                                      : "tls.ca",
              "tls.cert, tls.key and tls.ca belong together: set all three");
  }
  if (tls.insecure && tls.enabled()) {
    in.reject("tls.insecure", "contradicts tls.cert, tls.key and tls.ca");
  }
}

void check_plaintext(ConfigReader& in, const char* key, const transport::TlsOptions& tls,
                     const transport::HostPort& address) {
  if (tls.enabled()) return;
  if (const Status status = transport::check_plaintext(tls, address); !status) {
    in.reject(key, status.error().detail);
  }
}

void take(ConfigReader& in, FabricConfig& fabric) {
  in.take_text("fabric.provider", fabric.provider, limits::kProviderNameBytesMax);
  in.take_name("fabric.interface", fabric.interface, 15);
  in.take_text("fabric.address", fabric.address, 63);
  in.take_number("fabric.port", fabric.port, 0, 65'535);
  in.take_flag("fabric.allow_fallback", fabric.allow_fallback);
  in.take_number("fabric.numa_node", fabric.numa_node, -1, 1023);
  in.take_duration("fabric.heartbeat_interval", fabric.heartbeat_interval, 50ms, 1min);
  in.take_duration("fabric.lost_after", fabric.lost_after, 200ms, 10min);
  if (fabric.provider.empty()) in.reject("fabric.provider", "must not be empty; \"auto\" chooses");
  if (fabric.lost_after < 4 * fabric.heartbeat_interval) {
    in.reject("fabric.lost_after", "must be at least four times fabric.heartbeat_interval");
  }
  if (!fabric.interface.empty() && !fabric.address.empty()) {
    in.reject("fabric.address", "contradicts fabric.interface: pin by one of them");
  }
}

void take(ConfigReader& in, SlotsConfig& slots) {
  in.take_number("slots.count", slots.count, 8, 65'536);
  in.take_number("slots.send_reserve", slots.send_reserve, 2, 1024);
  in.take_number("slots.low_percent", slots.low_percent, 1, 90);
  if (slots.send_reserve * 2 > slots.count) {
    in.reject("slots.send_reserve", "must be at most half of slots.count");
  }
}

void take(ConfigReader& in, ProducerConfig& producer) {
  in.take_bytes("producer.spool_bytes", producer.spool_bytes, 16 * kMiB, 1024 * kGiB);
  in.take_text("producer.state_dir", producer.state_dir);
  in.take_text("producer.baseline_dir", producer.baseline_dir);
  in.take_number("producer.threads", producer.threads, 0, 1024);
  in.take_number("producer.retries", producer.retries, 0, limits::kRefitRetriesMax);
  in.take_duration("producer.outcome_timeout", producer.outcome_timeout, 1s, kDay);
}

void take_hook(ConfigReader& in, const char* key, std::vector<apply::HookCall>& calls) {
  std::vector<std::string> texts;
  in.take_texts(key, texts, kHookCallsMax, kHookBytesMax);
  auto parsed = apply::parse_hook(texts);
  if (parsed) {
    calls = *std::move(parsed);
  } else {
    in.reject(key, parsed.error().detail);
  }
}

void take(ConfigReader& in, HookConfig& hook) {
  take_hook(in, "hook.before_apply", hook.before_apply);
  take_hook(in, "hook.after_apply", hook.after_apply);
  in.take_duration("hook.timeout", hook.timeout, 100ms, 1h);
  in.take_duration("hook.give_up", hook.give_up, 1s, kDay);
}

void take(ConfigReader& in, ScrubConfig& scrub) {
  in.take_duration("scrub.period", scrub.period, 0s, 365 * kDay);
  in.take_bytes("scrub.bytes_per_second", scrub.bytes_per_second, 1 * kMiB, 1024 * kGiB);
}

// True when they certainly name one directory: by path, or by what is there already.
bool same_directory(const std::string& a, const std::string& b) {
  std::error_code error;
  if (std::filesystem::path(a).lexically_normal() == std::filesystem::path(b).lexically_normal()) {
    return true;
  }
  return std::filesystem::equivalent(a, b, error) && !error;
}

Result<AgentConfig> read(ConfigReader& in, AgentConfig config) {
  std::optional<transport::HostPort> coordinator;
  in.take_address("fleet.coordinator", coordinator, PortZero::kRefuse);
  in.require("fleet.coordinator", false);
  config.coordinator = coordinator.value_or(transport::HostPort{"localhost", 1});
  in.take_name("agent.id", config.agent_id, limits::kMemberIdBytesMax);
  in.take_name("agent.region", config.region, limits::kRegionBytesMax);
  in.take_number("agent.threads", config.resolve_threads, 0, 1024);
  in.take_duration("agent.stop_grace", config.stop_grace, 1s, 1h);
  in.take_text("weights.dir", config.weights_dir);
  in.require("weights.dir", false);
  in.take_text("state.dir", config.state_dir);
  in.require("state.dir", false);
  in.take_bytes("state.max_bytes", config.state_bytes_max, 64 * kMiB, 1024 * 1024 * kGiB);
  in.take_number("state.retain_refits", config.retain_refits, 0, 1024);
  take(in, "state.durability", config.durability, kDurabilities);
  take(in, "apply.engine", config.apply_engine, kEngines);
  take(in, "apply.mode", config.apply_mode, kApplyModes);
  std::uint64_t block_bytes = config.apply_block_bytes;
  in.take_bytes("apply.block_bytes", block_bytes, 64 * kKiB, 16 * kMiB);
  if (!std::has_single_bit(block_bytes)) in.reject("apply.block_bytes", "must be a power of two");
  config.apply_block_bytes = static_cast<std::uint32_t>(block_bytes);
  in.take_duration("apply.lock_timeout", config.apply_lock_timeout, 100ms, 1h);
  in.take_number("apply.threads", config.apply_threads, 0, apply::kPatchThreadsMax);
  in.take_number("apply.nice", config.apply_nice, 0, 19);
  in.take_number("ready.max_lag", config.ready_max_lag, 0, 1000);
  take(in, config.hook);
  take(in, config.scrub);
  take(in, config.control);
  take(in, config.fabric);
  take(in, config.slots);
  take(in, config.tls);
  take(in, config.http);
  take(in, config.log);
  if (in.present("weights.dir") && config.weights_dir.empty()) {
    in.reject("weights.dir", "must not be empty");
  }
  if (in.present("state.dir") && config.state_dir.empty()) {
    in.reject("state.dir", "must not be empty");
  }
  if (!config.state_dir.empty() && same_directory(config.state_dir, config.weights_dir)) {
    in.reject("state.dir", "must not be weights.dir");
  }
  if (coordinator) check_plaintext(in, "fleet.coordinator", config.tls, *coordinator);
  WEFT_TRY_STATUS(in.finish());
  return config;
}

Result<CoordinatorConfig> read(ConfigReader& in, CoordinatorConfig config) {
  std::optional<transport::HostPort> listen = config.listen;
  in.take_address("fleet.listen", listen, PortZero::kAllow);
  config.listen = *listen;
  in.take_text("state.dir", config.state_dir);
  in.require("state.dir", false);
  if (in.present("state.dir") && config.state_dir.empty()) {
    in.reject("state.dir", "must not be empty");
  }
  take(in, "state.durability", config.durability, kDurabilities);
  in.take_fraction("commit.quorum", config.quorum);
  in.take_fraction("commit.min_fraction", config.min_fraction);
  in.take_number("commit.members_min", config.members_min, 1, limits::kMembersMax);
  in.take_flag("commit.late_leaves", config.late_leaves);
  in.take_duration("commit.begin_timeout", config.begin_timeout, 100ms, kDay);
  in.take_duration("commit.settle_timeout", config.settle_timeout, 100ms, kDay);
  in.take_duration("commit.rehash_timeout", config.rehash_timeout, 100ms, kDay);
  in.take_duration("commit.stall_timeout", config.stall_timeout, 100ms, kDay);
  in.take_duration("commit.prepare_timeout", config.prepare_timeout, 100ms, kDay);
  in.take_text("tree.shape", config.tree_shape, limits::kShapeBytesMax);
  if (const auto tree = transport::plan_relays({config.tree_shape, 1, 2}); !tree) {
    in.reject("tree.shape", tree.error().detail);
  }
  in.take_number("tree.open_max", config.trees_open_max, 1, limits::kProducersMax);
  take(in, config.control);
  take(in, config.tls);
  take(in, config.http);
  take(in, config.log);
  check_plaintext(in, "fleet.listen", config.tls, config.listen);
  WEFT_TRY_STATUS(in.finish());
  return config;
}

Result<PublisherConfig> read(ConfigReader& in, PublisherConfig config) {
  in.take_address("fleet.coordinator", config.coordinator, PortZero::kRefuse);
  in.take_name("producer.id", config.producer_id, limits::kMemberIdBytesMax);
  if (config.producer_id.empty()) in.reject("producer.id", "must not be empty");
  in.take_name("producer.region", config.region, limits::kRegionBytesMax);
  take(in, config.producer);
  take(in, config.control);
  take(in, config.fabric);
  take(in, config.slots);
  take(in, config.tls);
  take(in, config.log);
  if (config.coordinator) check_plaintext(in, "fleet.coordinator", config.tls, *config.coordinator);
  WEFT_TRY_STATUS(in.finish());
  return config;
}

template <typename Config>
Result<Loaded<Config>> parse(std::string_view toml, const std::string& name) {
  WEFT_TRY(auto reader, ConfigReader::open(toml, name));
  WEFT_TRY(auto config, read(reader, Config{}));
  return Loaded<Config>{std::move(config), std::move(reader).effective()};
}

template <typename Config>
Result<Loaded<Config>> load(const std::string& file) {
  std::error_code error;
  const auto bytes = std::filesystem::file_size(file, error);
  if (error) {
    return failure(ErrorCode::kIoFailed, Stage::kConfig, file + ": " + error.message(),
                   error.value());
  }
  if (bytes > kConfigBytesMax) {
    return failure(ErrorCode::kConfig, Stage::kConfig, file + ": larger than 1 MiB");
  }
  std::ifstream in(file, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  if (!in) {
    return failure(ErrorCode::kIoFailed, Stage::kConfig, file + ": " + std::strerror(errno), errno);
  }
  return parse<Config>(text, file);
}

}  // namespace

Result<Loaded<AgentConfig>> load_agent_config(const std::string& file) {
  return load<AgentConfig>(file);
}
Result<Loaded<CoordinatorConfig>> load_coordinator_config(const std::string& file) {
  return load<CoordinatorConfig>(file);
}
Result<Loaded<PublisherConfig>> load_publisher_config(const std::string& file) {
  return load<PublisherConfig>(file);
}
Result<Loaded<AgentConfig>> parse_agent_config(std::string_view toml, const std::string& name) {
  return parse<AgentConfig>(toml, name);
}
Result<Loaded<CoordinatorConfig>> parse_coordinator_config(std::string_view toml,
                                                           const std::string& name) {
  return parse<CoordinatorConfig>(toml, name);
}
Result<Loaded<PublisherConfig>> parse_publisher_config(std::string_view toml,
                                                       const std::string& name) {
  return parse<PublisherConfig>(toml, name);
}

}  // namespace weft::agent
