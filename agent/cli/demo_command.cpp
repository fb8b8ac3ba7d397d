// SPDX-License-Identifier: Apache-2.0
// weft demo: the whole job on one machine, verified byte by byte.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "agent/cli/commands.hpp"
#include "agent/cli/demo_fleet.hpp"
#include "agent/cli/log_event_sink.hpp"
#include "agent/cli/progress.hpp"
#include "agent/cli/report.hpp"
#include "agent/lib/json_writer.hpp"
#include "agent/lib/publisher.hpp"
#include "agent/lib/units.hpp"
#include "bench/make_checkpoint.hpp"

namespace weft::cli {
namespace {

namespace fs = std::filesystem;
constexpr std::array<double, 3> kChangedPercents = {1, 3, 5};

struct DemoRefit {
  std::string what;
  Version version;
  agent::PublishReport report;
  std::uint32_t lost = 0;
};

struct DemoNode {
  std::string id;
  std::string state;
  Digest root;
  bool verified = false;
};

// The work directory of a run: the caller's, or a temporary one that goes away.
// Threads: one at a time.
class WorkDirectory {
 public:
  static Result<std::unique_ptr<WorkDirectory>> make(const DemoOptions& options) {
    auto made = std::make_unique<WorkDirectory>();
    made->kept_ = options.keep;
    std::error_code error;
    if (!options.work_dir.empty()) {
      made->kept_ = true;
      fs::create_directories(options.work_dir, error);
      made->path_ = fs::absolute(options.work_dir).string();
      if (!error && !fs::is_empty(made->path_, error)) {
        return failure(ErrorCode::kConfig, Stage::kConfig,
                       options.work_dir + ": the demo's directory must be empty or new");
      }
    } else {
      std::string pattern = (fs::temp_directory_path(error) / "weft-demo-XXXXXX").string();
      if (::mkdtemp(pattern.data()) == nullptr) error.assign(errno, std::system_category());
      made->path_ = pattern;
    }
    if (error) {
      return failure(ErrorCode::kIoFailed, Stage::kOpen,
                     "the demo's directory cannot be made: " + error.message(), error.value());
    }
    return made;
  }
  ~WorkDirectory() {
    std::error_code error;
    if (!kept_ && !path_.empty()) fs::remove_all(path_, error);
  }
  const std::string& path() const { return path_; }
  void keep() { kept_ = true; }

 private:
  std::string path_;
  bool kept_ = false;
};

// Plain reads, nothing of weft's own: an independent comparison.
bool same_file(const fs::path& left, const fs::path& right) {
  std::ifstream left_file(left, std::ios::binary);
  std::ifstream right_file(right, std::ios::binary);
  std::vector<char> left_block(1 << 20);
  std::vector<char> right_block(1 << 20);
  while (left_file && right_file) {
    left_file.read(left_block.data(), static_cast<std::streamsize>(left_block.size()));
    right_file.read(right_block.data(), static_cast<std::streamsize>(right_block.size()));
    if (left_file.gcount() != right_file.gcount()) return false;
    const auto count = static_cast<std::size_t>(left_file.gcount());
    if (!std::equal(left_block.begin(), left_block.begin() + static_cast<std::ptrdiff_t>(count),
                    right_block.begin())) {
      return false;
    }
  }
  return left_file.eof() && right_file.eof();
}

bool same_checkpoint(const fs::path& weights, const fs::path& target) {
  std::error_code error;
  std::size_t files = 0;
  for (const auto& entry : fs::directory_iterator(target, error)) {
    if (!same_file(weights / entry.path().filename(), entry.path())) return false;
    ++files;
  }
  return !error && files > 0;
}

// One run of the demo.
// Threads: one at a time.
class Demo {
 public:
  Demo(const DemoOptions& options, StopToken& stop, std::string work_dir)
      : options_(options),
        stop_(stop),
        work_dir_(std::move(work_dir)),
        progress_(options.common.json, "demo"),
        events_(quiet_log()) {}

  Status run();
  std::string json() const;
  void print() const;
  bool all_verified() const {
    return std::all_of(nodes_.begin(), nodes_.end(),
                       [](const DemoNode& node) { return node.verified; });
  }

 private:
  static agent::LogConfig quiet_log() {
    agent::LogConfig log;
    log.level = agent::LogLevel::kError;
    return log;
  }
  Status make_steps();
  Status publish(DemoFleet& fleet, const std::string& what, std::size_t base, std::size_t target,
                 bool full, bool kill);
  Status verify(const DemoFleet& fleet, std::size_t target);
  std::string step_dir(std::size_t index) const { return made_.directories[index]; }

  const DemoOptions& options_;
  StopToken& stop_;
  const std::string work_dir_;
  Progress progress_;
  LogEventSink events_;
  bench::MadeCheckpoint made_;
  Version version_{1};  // of the base: versions start at 1
  std::vector<std::uint32_t> alive_;
  std::vector<DemoRefit> refits_;
  std::vector<DemoNode> nodes_;
};

Status Demo::make_steps() {
  bench::MakeCheckpointOptions options;
  options.directory = work_dir_ + "/steps";
  options.bytes = options_.model_bytes;
  options.changed_percents.clear();
  for (std::uint32_t i = 0; i < options_.refit_count; ++i) {
    options.changed_percents.push_back(kChangedPercents[i % kChangedPercents.size()]);
  }
  options.seed = options_.seed;
  options.on_progress = [this](std::uint64_t done, std::uint64_t total) {
    progress_.show_bytes(done, total, "making checkpoints");
  };
  options.stop_requested = [this] { return stop_.requested(); };
  WEFT_TRY(made_, bench::make_checkpoint(options));
  // With one step the directories are called base and target.
  return ok();
}

Status Demo::publish(DemoFleet& fleet, const std::string& what, std::size_t base,
                     std::size_t target, bool full, bool kill) {
  std::atomic<bool> killed{false};
  const std::uint32_t victim = options_.agent_count - 1;  // a leaf in every shape but a chain's end
  agent::PublishRequest request;
  request.coordinator = fleet.coordinator();
  request.base_dir = step_dir(base);
  request.target_dir = step_dir(target);
  request.base_version = version_;
  request.target_version = Version{version_.value + 1};
  request.full = full;
  request.stop_requested = [this] { return stop_.requested(); };
  request.on_progress = [&](const char* stage, std::uint64_t done, std::uint64_t) {
    if (kill && std::string_view(stage) == "encode" && done >= 2 && !killed.exchange(true)) {
      fleet.kill_agent(victim);
    }
  };
  progress_.show("version " + std::to_string(request.target_version.value) + ": " + what);
  agent::PublisherConfig config;
  config.fabric.address = "127.0.0.1";
  WEFT_TRY(agent::PublishReport report, agent::publish(config, request, events_));
  if (killed.load()) std::erase(alive_, victim);
  version_ = request.target_version;
  WEFT_TRY_STATUS(fleet.wait_clean(alive_, version_));
  const std::uint32_t lost = report.outcome ? report.outcome->lost : 0;
  refits_.push_back({what, version_, std::move(report), lost});
  return ok();
}

Status Demo::verify(const DemoFleet& fleet, std::size_t target) {
  progress_.show("comparing every byte");
  WEFT_TRY(const transport::FleetStatus status, fleet.status());
  for (const transport::MemberStatus& member : status.members) {
    if (member.role != wire::Role::kAgent) continue;
    DemoNode node{member.id, std::string(to_string(member.state)), member.content.root, false};
    const bool lost = std::none_of(alive_.begin(), alive_.end(), [&](std::uint32_t index) {
      return fleet.agent_name(index) == member.id;
    });
    if (lost) continue;  // killed on the way: it is at an older version
    for (const std::uint32_t index : alive_) {
      if (fleet.agent_name(index) == member.id) {
        node.verified = same_checkpoint(fleet.weights_dir(index), step_dir(target));
      }
    }
    nodes_.push_back(std::move(node));
  }
  if (nodes_.size() != alive_.size()) {
    return failure(ErrorCode::kInternal, Stage::kPublish, "a node is missing in the status");
  }
  return ok();
}

Status Demo::run() {
  WEFT_TRY_STATUS(make_steps());
  progress_.show("starting the fleet");
  DemoFleet fleet({work_dir_, step_dir(0), options_.shape, options_.agent_count}, stop_);
  WEFT_TRY_STATUS(fleet.start());
  for (std::uint32_t i = 0; i < options_.agent_count; ++i) alive_.push_back(i);
  const std::size_t last = made_.steps.size();
  for (std::size_t step = 0; step < last; ++step) {
    const bool kill = step + 1 == last && options_.agent_count > 1;
    const std::string what = kill ? "an agent is killed on the way" : "";
    WEFT_TRY_STATUS(publish(fleet, what, step, step + 1, false, kill));
  }
  WEFT_TRY_STATUS(publish(fleet, "full checkpoint", last, last - 1, true, false));
  return verify(fleet, last - 1);
}

double changed_percent(const agent::PublishReport& report) {
  if (report.total_elements == 0) return 0;
  return 100.0 * static_cast<double>(report.changed_elements) /
         static_cast<double>(report.total_elements);
}

std::string Demo::json() const {
  agent::JsonWriter json;
  json.begin_object().key("refits").begin_array();
  for (const DemoRefit& refit : refits_) {
    const agent::PublishReport& report = refit.report;
    json.begin_object().member("version", refit.version.value);
    json.member("changed_percent", changed_percent(report));
    json.member("seconds", report.prepare_seconds).member("wire_bytes", report.wire_bytes);
    json.member("full_bytes", report.full_bytes).member("full", refit.what == "full checkpoint");
    json.member("lost_agents", refit.lost).end_object();
  }
  json.end_array().key("nodes").begin_array();
  for (const DemoNode& node : nodes_) {
    json.begin_object().member("id", node.id).member("state", node.state);
    json.member("root", to_hex(node.root)).member("verified", node.verified).end_object();
  }
  json.end_array().member("verified", all_verified()).end_object();
  return json.take();
}

void Demo::print() const {
  std::printf("model %s, %u agents in %s, loopback\n\n",
              agent::human_bytes(made_.tensor_bytes).c_str(), options_.agent_count,
              options_.shape.c_str());
  std::printf("version  changed  on the wire  of the full size  all prepared after\n");
  for (const DemoRefit& refit : refits_) {
    const agent::PublishReport& report = refit.report;
    const double share = static_cast<double>(report.full_bytes) /
                         static_cast<double>(std::max<std::uint64_t>(report.wire_bytes, 1));
    std::printf("%7llu  %5.2f %%  %11s       1 / %-6.1f   %8.3f s  %s\n",
                static_cast<unsigned long long>(refit.version.value), changed_percent(report),
                agent::human_bytes(report.wire_bytes).c_str(), share, report.prepare_seconds,
                refit.what.c_str());
  }
  std::printf("\n");
  for (const DemoNode& node : nodes_) {
    std::printf("%s  %s  root %s  %s\n", node.id.c_str(), node.state.c_str(),
                to_hex(node.root).c_str(),
                node.verified ? "every byte as published" : "NOT AS PUBLISHED");
  }
  if (alive_.size() < options_.agent_count) {
    std::printf("%s was killed on the way; the refit committed on the others\n",
                ("node-" + std::to_string(options_.agent_count - 1)).c_str());
  }
}

}  // namespace

int run_demo(const DemoOptions& options, StopToken& stop) {
  auto work = WorkDirectory::make(options);
  if (!work) return report_failure(work.error(), options.common);
  Demo demo(options, stop, (*work)->path());
  if (auto done = demo.run(); !done) {
    const bool stopped = stop.requested();
    if (!stopped) (*work)->keep();
    Error error = done.error();
    if (!stopped) error.detail += "; everything is kept in " + (*work)->path();
    return report_failure(error, options.common);
  }
  if (options.common.json) {
    static_cast<void>(report_result(demo.json()));
  } else {
    demo.print();
    if (options.keep || !options.work_dir.empty()) {
      std::printf("kept in %s\n", (*work)->path().c_str());
    }
  }
  return demo.all_verified() ? 0 : exit_code(ErrorCode::kCorruptPayload);
}

}  // namespace weft::cli
