// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>
#include <thread>

#include "agent/cli/commands.hpp"
#include "agent/cli/progress.hpp"
#include "agent/cli/report.hpp"
#include "agent/lib/json_writer.hpp"
#include "agent/lib/units.hpp"
#include "apply/patch/apply_delta.hpp"

namespace weft::cli {
namespace {

std::string as_json(const apply::ApplyDeltaSummary& summary, bool dry_run) {
  agent::JsonWriter json;
  json.begin_object();
  json.member("applied", summary.applied).member("dry_run", dry_run);
  json.member("already_there", summary.already_there);
  json.member("finished_earlier_run", summary.finished_earlier);
  json.member("base_root", to_hex(summary.base.root));
  json.member("target_root", to_hex(summary.target.root));
  json.member("changed_elements", summary.changed_elements);
  json.member("delta_bytes", summary.delta_bytes);
  json.member("written_bytes", summary.patch.written_bytes);
  return json.end_object().take();
}

std::string as_text(const apply::ApplyDeltaSummary& summary, bool dry_run) {
  std::string text;
  if (summary.finished_earlier) text = "finished an earlier run that was cut off\n";
  if (summary.already_there) {
    return text + "already at root " + to_hex(summary.target.root) + ": nothing to do";
  }
  text += dry_run ? "verified, nothing written: " : "applied: ";
  text += std::to_string(summary.changed_elements) + " changed elements from " +
          agent::human_bytes(summary.delta_bytes);
  if (!dry_run) text += ", " + agent::human_bytes(summary.patch.written_bytes) + " written";
  return text + "\n  base   " + to_hex(summary.base.root) + "\n  target " +
         to_hex(summary.target.root);
}

}  // namespace

int run_apply(const ApplyOptions& options, StopToken& stop) {
  Progress progress(options.common.json, "apply");
  apply::ApplyDeltaOptions wanted;
  wanted.dry_run = options.dry_run;
  wanted.state_dir = options.state_dir;
  wanted.threads = std::max(1U, std::thread::hardware_concurrency());
  wanted.patch.threads = wanted.threads;
  wanted.on_progress = [&](std::string_view step, std::uint64_t done, std::uint64_t total) {
    progress.show_bytes(step == "apply" ? 0 : done, step == "apply" ? 0 : total, step);
    return !stop.requested();
  };
  NullEventSink events;
  const auto summary = apply::apply_delta_file(options.dir, options.delta_file, wanted, events);
  progress.clear();
  if (!summary) return report_failure(summary.error(), options.common);
  return report_result(options.common.json ? as_json(*summary, options.dry_run)
                                           : as_text(*summary, options.dry_run));
}

}  // namespace weft::cli
