// SPDX-License-Identifier: Apache-2.0
#include "agent/lib/scrub_status.hpp"

#include <algorithm>
#include <chrono>

namespace weft::agent {

wire::ScrubReport scrub_report(const apply::ScrubProgress& progress, TimePoint now) {
  wire::ScrubReport report{std::nullopt, progress.passes, progress.chunks_checked,
                           progress.chunk_count, progress.damaged_chunks};
  if (progress.pass_ended) {
    const auto age = std::chrono::duration_cast<std::chrono::milliseconds>(
        std::max(now - *progress.pass_ended, Duration::zero()));
    report.age_ms = static_cast<std::uint64_t>(age.count());
  }
  return report;
}

void write_scrub(JsonWriter& json, const std::optional<wire::ScrubReport>& scrub) {
  json.key("scrub");
  if (!scrub) {
    json.null();
    return;
  }
  json.begin_object().member("chunks_checked", scrub->chunks_checked);
  json.member("chunk_count", scrub->chunk_count).member("passes", scrub->passes);
  json.member("damaged_chunks", scrub->damaged_chunks).key("last_pass_seconds_ago");
  if (scrub->age_ms) {
    json.value(static_cast<double>(*scrub->age_ms) / 1e3);
  } else {
    json.null();
  }
  json.end_object();
}

}  // namespace weft::agent
