// SPDX-License-Identifier: Apache-2.0
// The only file that knows CLI11: options in, plain structs out.
#include "agent/cli/command_line.hpp"

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "agent/cli/bench_fabric_command.hpp"
#include "agent/cli/commands.hpp"
#include "agent/cli/report.hpp"
#include "agent/lib/parse_ids.hpp"
#include "agent/lib/units.hpp"
#include "codec/kernels/kernel_set.hpp"

namespace weft::cli {
namespace {

// Words for values. (CLI11's own transformer shows values of small enums as characters.)
template <typename Value>
CLI::Validator one_of(std::vector<std::pair<std::string, Value>> words) {
  std::string shown;
  for (const auto& [word, value] : words) shown += (shown.empty() ? "" : "|") + word;
  const auto translate = [words = std::move(words), shown](std::string& text) -> std::string {
    for (const auto& [word, value] : words) {
      if (text != word) continue;
      text = std::to_string(static_cast<int>(value));
      return {};
    }
    return "'" + text + "' is none of " + shown;
  };
  return CLI::Validator(translate, shown);
}

constexpr const char* kExitCodes =
    "Exit codes: 0 done; 1 a comparison found a difference; 2 wrong command line; 11 to 33 an "
    "error of docs/errors.md.";

[[maybe_unused]] Result<Version> parse_version(const std::string& text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value == 0) {
    return failure(ErrorCode::kConfig, Stage::kConfig,
                   "'" + text + "' is no version: a whole number from 1");
  }
  return Version{value};
}

// The whole command line; the options struct of a subcommand lives as long as it does.
// Threads: one at a time.
class CommandLine {
 public:
  CommandLine() : app_("Ships weight deltas to a fleet, bit by bit exact.", "weft") {
    app_.set_version_flag("--version", "weft " WEFT_VERSION);
    app_.require_subcommand(1);
    app_.footer(
        std::string(kExitCodes) +
        "\n`weft COMMAND --help` explains one command.\n"
        "WEFT_KERNELS=scalar|avx2|avx512 in the environment forces the codec's instructions.");
  }

  int run(int argc, const char* const* argv, StopToken& stop);

 private:
  using Start = std::function<int(StopToken&)>;

  // A new subcommand with the options that all have.
  template <typename Options>
  std::pair<CLI::App*, std::shared_ptr<Options>> add(CLI::App& parent, const char* name,
                                                     const char* about,
                                                     int (*start)(const Options&, StopToken&));
  void add_all();
  void add_diff();
  void add_apply();
  void add_verify();
  void add_inspect();
  void add_plan();
  void add_coordinator();
  void add_agent();
  void add_publish();
  void add_status();
  void add_demo();
  void add_make_checkpoint();
  void add_bench_fabric();

  CLI::App& bench();

  static void add_common(CLI::App& command, CommonOptions& common);
  static void add_fleet(CLI::App& command, FleetOptions& fleet, bool required);
  // An option whose text `parse` turns into `target`; a wrong text is a usage error with its
  // reason.
  template <typename T, typename Target, typename Parse>
  static CLI::Option* add_parsed(CLI::App& command, const char* names, Target& target,
                                 const char* about, Parse parse);

  CLI::App app_;
  CLI::App* bench_ = nullptr;
  std::vector<std::pair<CLI::App*, Start>> starts_;
};

template <typename T, typename Target, typename Parse>
CLI::Option* CommandLine::add_parsed(CLI::App& command, const char* names, Target& target,
                                     const char* about, Parse parse) {
  const std::string option = std::string(names).substr(std::string(names).rfind(',') + 1);
  return command.add_option_function<std::string>(
      names,
      [&target, parse, option](const std::string& text) {
        Result<T> parsed = parse(text);
        if (!parsed) throw CLI::ValidationError(option, parsed.error().detail);
        target = *std::move(parsed);
      },
      about);
}

template <typename Options>
std::pair<CLI::App*, std::shared_ptr<Options>> CommandLine::add(CLI::App& parent, const char* name,
                                                                const char* about,
                                                                int (*start)(const Options&,
                                                                             StopToken&)) {
  auto options = std::make_shared<Options>();
  CLI::App* command = parent.add_subcommand(name, about);
  command->footer(kExitCodes);
  add_common(*command, options->common);
  starts_.emplace_back(command, [options, start](StopToken& stop) {
    // A wrong WEFT_KERNELS would else come up only when the first chunk is coded.
    if (const Status& kernels = codec::kernels_status(); !kernels) {
      return report_failure(kernels.error(), options->common);
    }
    return start(*options, stop);
  });
  return {command, options};
}

void CommandLine::add_common(CLI::App& command, CommonOptions& common) {
  command.add_flag("--json", common.json, "The result as one JSON object (docs/json.md)");
  command
      .add_option_function<LogLevel>(
          "--log-level", [&common](const LogLevel& level) { common.log_level = level; },
          "What is logged to stderr")
      ->type_name("LEVEL")
      ->transform(one_of<LogLevel>({{"debug", LogLevel::kDebug},
                                    {"info", LogLevel::kInfo},
                                    {"warning", LogLevel::kWarning},
                                    {"error", LogLevel::kError},
                                    {"off", LogLevel::kOff}}));
  command
      .add_option_function<LogFormat>(
          "--log-format", [&common](const LogFormat& format) { common.log_format = format; },
          "How lines of the log look")
      ->type_name("FORMAT")
      ->transform(one_of<LogFormat>({{"text", LogFormat::kText}, {"json", LogFormat::kJson}}));
}

void CommandLine::add_fleet(CLI::App& command, FleetOptions& fleet, bool required) {
  add_parsed<transport::HostPort>(
      command, "--fleet", fleet.coordinator, "The coordinator",
      [](const std::string& text) { return transport::parse_host_port(text); })
      ->type_name("HOST:PORT")
      ->required(required);
  command.add_option("--tls-cert", fleet.tls.certificate_file, "Our certificate (PEM)");
  command.add_option("--tls-key", fleet.tls.key_file, "Its key (PEM)");
  command.add_option("--tls-ca", fleet.tls.authority_file, "The fleet's authority (PEM)");
  command.add_option("--tls-server-name", fleet.tls.server_name,
                     "The name in the coordinator's certificate, if not its host name");
  command.add_flag("--tls-insecure", fleet.tls.insecure, "Plaintext beyond loopback");
  add_parsed<std::chrono::milliseconds>(command, "--timeout", fleet.timeout,
                                        "For one answer of the coordinator [10s]",
                                        agent::parse_duration)
      ->type_name("DURATION");
}

[[maybe_unused]] void CommandLine::add_diff() {
#ifdef WEFT_COMMAND_DIFF
  const auto [command, options] = add<DiffOptions>(
      app_, "diff", "What changed between two checkpoints; optionally writes a delta file",
      run_diff);
  command->add_option("OLD", options->base_dir, "Directory of the base checkpoint")->required();
  command->add_option("NEW", options->target_dir, "Directory of the target checkpoint")->required();
  command->add_option("-o,--output", options->output_file, "Delta file to write");
  command
      ->add_option("--format", options->format, "table, or json or csv for programs (docs/json.md)")
      ->type_name("FORMAT")
      ->excludes(command->get_option("--json"))
      ->transform(one_of<DiffFormat>(
          {{"table", DiffFormat::kTable}, {"json", DiffFormat::kJson}, {"csv", DiffFormat::kCsv}}));
  command->add_option("--tensors", options->tensors_shown, "Tensors in the table; 0: all")
      ->capture_default_str();
  command->add_option("--profile", options->profile, "compact is smallest, fast for fast links")
      ->type_name("PROFILE")
      ->transform(one_of<codec::Profile>(
          {{"compact", codec::Profile::kCompact}, {"fast", codec::Profile::kFast}}));
  command->add_option("--threads", options->threads, "Workers; 0: one per core")
      ->check(CLI::Range(0, 1024));
#endif
}

[[maybe_unused]] void CommandLine::add_apply() {
#ifdef WEFT_COMMAND_APPLY
  const auto [command, options] = add<ApplyOptions>(
      app_, "apply", "Applies a delta file as an agent would: verify, journal, apply", run_apply);
  command->add_option("DIR", options->dir, "Directory of the checkpoint that changes")->required();
  command->add_option("FILE", options->delta_file, "Delta file")->required();
  command->add_option("--state", options->state_dir, "Directory of the journal [DIR/.weft-state]");
  command->add_flag("--dry-run", options->dry_run, "Verify only; no weight byte is written");
#endif
}

[[maybe_unused]] void CommandLine::add_verify() {
#ifdef WEFT_COMMAND_VERIFY
  const auto [command, options] = add<VerifyOptions>(
      app_, "verify", "Computes the root digest, or compares two checkpoints bit by bit",
      run_verify);
  command->add_option("DIR", options->dir, "Directory of the checkpoint")->required();
  CLI::Option* against =
      command->add_option("--against", options->against_dir, "Directory of another checkpoint");
  add_parsed<Digest>(*command, "--root", options->root, "The root digest that it must have",
                     agent::parse_digest)
      ->type_name("DIGEST")
      ->excludes(against);
#endif
}

[[maybe_unused]] void CommandLine::add_inspect() {
#ifdef WEFT_COMMAND_INSPECT
  const auto [command, options] = add<InspectOptions>(
      app_, "inspect", "Shows a delta file, a frame, a journal or a checkpoint in readable form",
      run_inspect);
  command->add_option("PATH", options->path, "File or directory")->required();
  command->add_flag("--chunks", options->chunks, "One line per chunk; of a checkpoint, per tensor");
  command->add_option("--weights", options->weights_dir,
                      "Of a journal: its checkpoint's directory");
#endif
}

[[maybe_unused]] void CommandLine::add_plan() {
#ifdef WEFT_COMMAND_PLAN
  const auto [command, options] =
      add<PlanOptions>(app_, "plan", "Prints a relay tree and its predicted times", run_plan);
  command
      ->add_option("--shape", options->shape,
                   "star, chain, kary(k), binomial, pipeline, striped(k), regional(inner, outer) "
                   "or auto")
      ->capture_default_str();
  command->add_option("--nodes", options->node_count, "Agents")
      ->required()
      ->check(CLI::Range(1U, limits::kMembersMax));
  command->add_option("--producers", options->producer_count, "Producers, each the root of a tree")
      ->capture_default_str()
      ->check(CLI::Range(1U, 1024U));
  command
      ->add_option("--regions", options->region_count,
                   "Regions that the agents are spread over; producers are in the first")
      ->capture_default_str()
      ->check(CLI::Range(1U, 1024U));
  command->add_option("--format", options->format, "text, or dot for Graphviz")
      ->type_name("FORMAT")
      ->transform(one_of<PlanFormat>({{"text", PlanFormat::kText}, {"dot", PlanFormat::kDot}}));
  add_parsed<std::uint64_t>(*command, "--bytes", options->refit_bytes,
                            "Bytes of one refit, for the prediction", agent::parse_bytes)
      ->type_name("SIZE");
  add_parsed<double>(*command, "--rate", options->link_bits_per_second,
                     "Rate of every link, for the prediction", agent::parse_bit_rate)
      ->type_name("RATE");
  add_parsed<std::chrono::nanoseconds>(
      *command, "--hop-delay", options->hop_delay, "Delay of one hop, for the prediction",
      [](const std::string& text) -> Result<std::chrono::nanoseconds> {
        WEFT_TRY(const auto delay, agent::parse_duration(text));
        return std::chrono::nanoseconds(delay);
      })
      ->type_name("DURATION");
#endif
}

[[maybe_unused]] void CommandLine::add_coordinator() {
#ifdef WEFT_COMMAND_COORDINATOR
  const auto [command, options] = add<CoordinatorOptions>(
      app_, "coordinator", "Plans, decides, keeps the decision log", run_coordinator);
  command->add_option("--config", options->config_file, "TOML file (configs/dev-coordinator.toml)")
      ->required();
  CLI::Option* check = command->add_flag("--check-config", options->check_config,
                                         "Check the file, print the effective values, end");
  add_parsed<transport::HostPort>(
      *command, "--fleet", options->resolve_at,
      "With --resolve: where the coordinator is, if not at fleet.listen",
      [](const std::string& text) { return transport::parse_host_port(text); })
      ->type_name("HOST:PORT");
  CLI::Option* resolve = command
                             ->add_option_function<std::vector<std::string>>(
                                 "--resolve",
                                 [options = options](const std::vector<std::string>& words) {
                                   const auto refit = agent::parse_refit_id(words[0]);
                                   if (!refit)
                                     throw CLI::ValidationError("--resolve", refit.error().detail);
                                   if (words[1] != "commit" && words[1] != "abort") {
                                     throw CLI::ValidationError(
                                         "--resolve", "'" + words[1] + "' is not commit or abort");
                                   }
                                   options->resolve = {{*refit, words[1] == "commit"}};
                                 },
                                 "Decide a refit that is in doubt: REFIT commit|abort, told to the "
                                 "running coordinator")
                             ->expected(2)
                             ->type_name("REFIT VERDICT")
                             ->excludes(check);
  CLI::Option* lost = command->add_flag(
      "--log-lost", options->log_lost,
      "With --resolve, and no coordinator running: the decision log is gone. Listens to the "
      "members "
      "at fleet.listen, writes a new log from what they say and this verdict, ends");
  lost->needs(resolve);
  add_parsed<std::chrono::milliseconds>(
      *command, "--wait", options->wait, "With --log-lost: how long members may take to come [15s]",
      [](const std::string& text) { return agent::parse_duration(text); })
      ->type_name("DURATION")
      ->needs(lost);
#endif
}

[[maybe_unused]] void CommandLine::add_agent() {
#ifdef WEFT_COMMAND_AGENT
  const auto [command, options] =
      add<AgentOptions>(app_, "agent", "The node agent: joins, relays, stages, applies", run_agent);
  command->add_option("--config", options->config_file, "TOML file (configs/dev-agent.toml)")
      ->required();
  command->add_flag("--check-config", options->check_config,
                    "Check the file, print the effective values, end");
#endif
}

[[maybe_unused]] void CommandLine::add_publish() {
#ifdef WEFT_COMMAND_PUBLISH
  const auto [command, options] = add<PublishOptions>(
      app_, "publish", "Ships one refit from two checkpoints on disk", run_publish);
  command->add_option("--base", options->base_dir, "Directory of the base checkpoint")->required();
  command->add_option("--target", options->target_dir, "Directory of the target")->required();
  add_parsed<Version>(*command, "--version", options->target_version, "Version of the target",
                      parse_version)
      ->type_name("N")
      ->required();
  add_parsed<Version>(*command, "--base-version", options->base_version,
                      "Version of the base [the fleet's]", parse_version)
      ->type_name("M");
  command->add_flag("--full", options->full, "Send every chunk whole: an anchor");
  command->add_option("--shape", options->shape, "Relay tree [the coordinator's]");
  command->add_option("--config", options->config_file,
                      "TOML file with [fabric], [slots], [producer], [tls], [log]");
  add_fleet(*command, options->fleet, true);
#endif
}

[[maybe_unused]] void CommandLine::add_status() {
#ifdef WEFT_COMMAND_STATUS
  const auto [command, options] =
      add<StatusOptions>(app_, "status", "Members, versions, the open refit", run_status);
  add_fleet(*command, options->fleet, false);
  add_parsed<transport::HostPort>(
      *command, "--node", options->node,
      "Instead of the fleet: one agent's rail and links, from its pages (http.listen)",
      [](const std::string& text) { return transport::parse_host_port(text); })
      ->type_name("HOST:PORT")
      ->excludes(command->get_option("--fleet"));
  command->parse_complete_callback([command = command, options = options] {
    if (!options->node && command->count("--fleet") == 0) throw CLI::RequiredError("--fleet");
  });
  command->add_flag("--watch", options->watch, "Show it again and again, until Ctrl-C");
  add_parsed<std::chrono::milliseconds>(*command, "--interval", options->interval,
                                        "Of --watch [1s]", agent::parse_duration)
      ->type_name("DURATION");
#endif
}

[[maybe_unused]] void CommandLine::add_demo() {
#ifdef WEFT_COMMAND_DEMO
  const auto [command, options] = add<DemoOptions>(
      app_, "demo", "A fleet on this machine that takes a few refits and loses an agent", run_demo);
  command->add_option("--dir", options->work_dir, "Where it works [a temporary directory]");
  command->add_option("--agents", options->agent_count, "Agents")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  command->add_option("--shape", options->shape, "Relay tree")->capture_default_str();
  add_parsed<std::uint64_t>(*command, "--model", options->model_bytes, "Size of the model [256MiB]",
                            agent::parse_bytes)
      ->type_name("SIZE");
  command->add_option("--refits", options->refit_count, "Refits")
      ->capture_default_str()
      ->check(CLI::Range(1, 100));
  command->add_option("--seed", options->seed, "The same seed makes the same model")
      ->capture_default_str();
  command->add_flag("--keep", options->keep, "Keep the directory");
#endif
}

[[maybe_unused]] CLI::App& CommandLine::bench() {
  if (bench_ == nullptr) {
    bench_ = app_.add_subcommand("bench", "The harness: figures and what they need");
    bench_->require_subcommand(1);
  }
  return *bench_;
}

[[maybe_unused]] void CommandLine::add_bench_fabric() {
#ifdef WEFT_COMMAND_BENCH_FABRIC
  const auto [command, options] = add<BenchFabricOptions>(
      bench(), "fabric", "Relays over libfabric beside plain TCP and bare writes, in one run",
      run_bench_fabric);
  command->add_option("--providers", options->providers, "libfabric's names [net,tcp;ofi_rxm]")
      ->delimiter(',')
      ->expected(1, 8);
  command->add_option("--address", options->address, "Local address that all processes use")
      ->capture_default_str();
  command->add_option("--seconds", options->seconds, "Of one measurement")
      ->capture_default_str()
      ->check(CLI::Range(0.1, 30.0));
  command->add_option("--rounds", options->rounds, "Medians of so many")
      ->capture_default_str()
      ->check(CLI::Range(1U, 99U));
  command->add_option("--hops", options->hops, "Receivers of the chain and of the fan-out")
      ->capture_default_str()
      ->check(CLI::Range(2U, 16U));
#endif
}

[[maybe_unused]] void CommandLine::add_make_checkpoint() {
#ifdef WEFT_COMMAND_MAKE_CHECKPOINT
  const auto [command, options] = add<MakeCheckpointOptions>(
      bench(), "make-checkpoint", "Makes checkpoints that differ as optimizer steps make them",
      run_make_checkpoint);
  command->add_option("DIR", options->output_dir, "Gets base/ and target/, or step-0/, step-1/ ...")
      ->required();
  add_parsed<std::uint64_t>(*command, "--bytes", options->model_bytes,
                            "Tensor bytes of one checkpoint [1GiB]", agent::parse_bytes)
      ->type_name("SIZE");
  command
      ->add_option("--changed", options->changed_percents,
                   "Percent of the elements that change, one per step [3]")
      ->delimiter(',')
      ->expected(1, 64);
  command->add_option("--seed", options->seed, "The same seed makes the same bytes")
      ->capture_default_str();
  command->add_option("--files", options->file_count, "Files; 0: one per 256 MiB")
      ->capture_default_str();
#endif
}

void CommandLine::add_all() {
  add_demo();
  add_diff();
  add_apply();
  add_verify();
  add_inspect();
  add_plan();
  add_coordinator();
  add_agent();
  add_publish();
  add_status();
  add_make_checkpoint();
  add_bench_fabric();
}

int CommandLine::run(int argc, const char* const* argv, StopToken& stop) {
  try {
    add_all();
    app_.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app_.exit(error);  // --help, --version
    std::string called = "weft";
    for (const CLI::App* at = &app_; !at->get_subcommands().empty();) {
      at = at->get_subcommands().front();
      called += " " + at->get_name();
    }
    std::string why = error.what();
    if (called == "weft" && argc > 1 && argv[1][0] != '-') {
      why = "there is no command '" + std::string(argv[1]) + "'";
    }
    std::fprintf(stderr, "weft: %s\n      try: %s --help\n", why.c_str(), called.c_str());
    return kExitUsage;
  }
  for (const auto& [command, start] : starts_) {
    if (command->parsed()) return start(stop);
  }
  return kExitUsage;
}

}  // namespace

int run_command_line(int argc, const char* const* argv, StopToken& stop) {
  CommandLine command_line;
  return command_line.run(argc, argv, stop);
}

}  // namespace weft::cli
