// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <string>

#include "agent/cli/commands.hpp"
#include "agent/cli/progress.hpp"
#include "agent/cli/report.hpp"
#include "agent/lib/json_writer.hpp"
#include "agent/lib/units.hpp"
#include "bench/make_checkpoint.hpp"

namespace weft::cli {
namespace {

std::string as_json(const bench::MadeCheckpoint& made) {
  agent::JsonWriter json;
  json.begin_object();
  json.member("tensor_count", made.tensor_count).member("file_count", made.file_count);
  json.member("tensor_bytes", made.tensor_bytes).member("element_count", made.element_count);
  json.key("directories").begin_array();
  for (const std::string& directory : made.directories) json.value(directory);
  json.end_array().key("steps").begin_array();
  for (const bench::MadeStep& step : made.steps) {
    json.begin_object();
    json.member("changed_count", step.changed_count);
    json.member("changed_percent", step.changed_percent).member("step_size", step.step);
    json.end_object();
  }
  return json.end_array().end_object().take();
}

std::string as_text(const bench::MadeCheckpoint& made) {
  std::string text = agent::human_bytes(made.tensor_bytes) + " in " +
                     std::to_string(made.tensor_count) + " tensors and " +
                     std::to_string(made.file_count) + " files each:\n  " + made.directories[0];
  for (std::size_t i = 0; i < made.steps.size(); ++i) {
    char percent[32];
    std::snprintf(percent, sizeof(percent), "%.4f", made.steps[i].changed_percent);
    text += "\n  " + made.directories[i + 1] + "  " + percent + " % changed (" +
            std::to_string(made.steps[i].changed_count) + " elements)";
  }
  return text;
}

}  // namespace

int run_make_checkpoint(const MakeCheckpointOptions& options, StopToken& stop) {
  Progress progress(options.common.json, "make-checkpoint");
  bench::MakeCheckpointOptions wanted;
  wanted.directory = options.output_dir;
  wanted.bytes = options.model_bytes;
  wanted.changed_percents = options.changed_percents;
  wanted.seed = options.seed;
  wanted.file_count = options.file_count;
  wanted.on_progress = [&](std::uint64_t done, std::uint64_t total) {
    progress.show_bytes(done, total);
  };
  wanted.stop_requested = [&] { return stop.requested(); };
  const Result<bench::MadeCheckpoint> made = bench::make_checkpoint(wanted);
  progress.clear();
  if (!made) return report_failure(made.error(), options.common);
  return report_result(options.common.json ? as_json(*made) : as_text(*made));
}

}  // namespace weft::cli
