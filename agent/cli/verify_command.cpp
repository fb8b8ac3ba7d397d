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

// The command did its work and found that it is not what was asked for.
constexpr ErrorCode kMismatch = ErrorCode::kBaseMismatch;

std::string as_json(const apply::VerifySummary& summary) {
  agent::JsonWriter json;
  json.begin_object();
  json.member("matches", summary.matches).member("root", to_hex(summary.root));
  json.member("lattice", to_hex(summary.lattice)).member("lattice_name", summary.lattice_name);
  json.member("schema", to_hex(summary.schema)).member("tensor_bytes", summary.tensor_bytes);
  json.member("different_elements", summary.different_elements);
  json.key("differences").begin_array();
  for (const apply::VerifyDifference& difference : summary.differences) {
    json.begin_object();
    json.member("tensor", difference.tensor).member("element", difference.element);
    json.member("count", difference.count);
    json.end_object();
  }
  return json.end_array().end_object().take();
}

std::string as_text(const apply::VerifySummary& summary, const VerifyOptions& options) {
  std::string text = "root " + to_hex(summary.root) + " (lattice " + summary.lattice_name + ", " +
                     agent::human_bytes(summary.tensor_bytes) + ")";
  if (options.root) {
    text += *options.root == summary.root ? "\nas expected"
                                          : "\nexpected " + to_hex(*options.root) + ": different";
  }
  if (options.against_dir.empty()) return text;
  if (summary.different_elements == 0) return text + "\nequal bit by bit to " + options.against_dir;
  text += "\n" + std::to_string(summary.different_elements) + " elements differ:";
  for (const apply::VerifyDifference& difference : summary.differences) {
    text += "\n  " + difference.tensor + ": " + std::to_string(difference.count) +
            ", first at element " + std::to_string(difference.element);
  }
  return text;
}

}  // namespace

int run_verify(const VerifyOptions& options, StopToken& stop) {
  Progress progress(options.common.json, "verify");
  apply::VerifyDirOptions wanted;
  wanted.root = options.root;
  wanted.against_dir = options.against_dir;
  wanted.threads = std::max(1U, std::thread::hardware_concurrency());
  wanted.on_progress = [&](std::string_view step, std::uint64_t done, std::uint64_t total) {
    progress.show_bytes(done, total, step);
    return !stop.requested();
  };
  NullEventSink events;
  const auto summary = apply::verify_dir(options.dir, wanted, events);
  progress.clear();
  if (!summary) return report_failure(summary.error(), options.common);
  const int printed =
      report_result(options.common.json ? as_json(*summary) : as_text(*summary, options));
  if (printed != 0) return printed;
  return summary->matches ? 0 : exit_code(kMismatch);
}

}  // namespace weft::cli
