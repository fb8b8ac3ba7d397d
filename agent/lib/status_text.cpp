// SPDX-License-Identifier: Apache-2.0
#include "agent/lib/status_text.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <vector>

#include "agent/lib/json_writer.hpp"
#include "agent/lib/scrub_status.hpp"
#include "agent/lib/units.hpp"

namespace weft::agent {
namespace {

void write_cause(JsonWriter& json, const std::optional<wire::Cause>& cause) {
  json.key("cause");
  if (!cause) {
    json.null();
    return;
  }
  json.begin_object().member("code", to_string(cause->code)).member("detail", cause->detail);
  json.end_object();
}

void write_member(JsonWriter& json, const transport::MemberStatus& member) {
  json.begin_object().member("id", member.id).member("role", to_string(member.role));
  json.member("state", to_string(member.state)).member("version", member.content.version.value);
  json.member("root", to_hex(member.content.root));
  write_cause(json, member.cause);
  json.member("ready", member.ready).member("connected", member.connected);
  json.member("unconfirmed", member.unconfirmed).member("region", member.region);
  json.member("silent_ms", member.silent_ms).member("frames", member.frames);
  json.member("bytes", member.bytes).member("parent", member.parent);
  write_scrub(json, member.scrub);
  json.end_object();
}

void write_refit(JsonWriter& json, const transport::RefitStatus& refit) {
  json.begin_object().member("id", to_string(refit.id)).member("phase", refit.phase);
  json.member("base_version", refit.base.value).member("target_version", refit.target.value);
  json.member("shape", refit.shape).member("planned", refit.planned).member("lost", refit.lost);
  json.member("yes", refit.yes).member("no", refit.no).member("frames_min", refit.frames_min);
  json.member("open_ms", refit.open_ms).end_object();
}

void write_last(JsonWriter& json, const wire::RefitOutcome& last) {
  json.begin_object().member("id", to_string(last.refit));
  json.member("verdict", to_string(last.verdict)).member("planned", last.planned);
  json.member("prepared", last.prepared).member("lost", last.lost).member("applied", last.applied);
  json.member("settled", last.settled);
  json.member("prepare_seconds", static_cast<double>(last.prepare_ns) / 1e9);
  write_cause(json, last.cause);
  json.end_object();
}

std::string short_hex(const Digest& digest) {
  return digest.is_zero() ? "-" : to_hex(digest).substr(0, 12);
}

std::string in_words(const std::optional<wire::Cause>& cause) {
  return cause ? std::string(to_string(cause->code)) + ": " + cause->detail : std::string();
}

// When all of a member's chunks were last found to be what they should be.
std::string verified_ago(const std::optional<wire::ScrubReport>& scrub) {
  if (!scrub) return "-";
  if (!scrub->age_ms) return "never";
  const std::uint64_t seconds = *scrub->age_ms / 1000;
  if (seconds < 120) return std::to_string(seconds) + " s ago";
  if (seconds < 7200) return std::to_string(seconds / 60) + " min ago";
  if (seconds < 172'800) return std::to_string(seconds / 3600) + " h ago";
  return std::to_string(seconds / 86'400) + " d ago";
}

}  // namespace

// Prometheus knows three escapes.
std::string metric_label(const std::string& value) {
  std::string escaped;
  for (const char c : value) {
    if (c == '\\' || c == '"') escaped += '\\';
    escaped += c == '\n' ? ' ' : c;
  }
  return "\"" + escaped + "\"";
}

std::string text_table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths(rows.front().size());
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      line += row[i] + std::string(widths[i] - row[i].size() + 2, ' ');
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string status_json(const transport::FleetStatus& status) {
  JsonWriter json;
  json.begin_object().member("fleet", to_hex(status.fleet));
  json.member("epoch", status.epoch.number).member("version", status.committed.version.value);
  json.member("root", to_hex(status.committed.root)).key("members").begin_array();
  for (const transport::MemberStatus& member : status.members) write_member(json, member);
  json.end_array().key("refit");
  if (status.refit) {
    write_refit(json, *status.refit);
  } else {
    json.null();
  }
  json.key("last");
  if (status.last) {
    write_last(json, *status.last);
  } else {
    json.null();
  }
  return json.end_object().take();
}

std::string status_text(const transport::FleetStatus& status) {
  const Content& committed = status.committed;
  std::string text =
      "fleet " + to_hex(status.fleet) + ", epoch " + std::to_string(status.epoch.number) + ", " +
      (committed.version.value == 0 ? std::string("nothing committed yet")
                                    : "version " + std::to_string(committed.version.value) +
                                          ", root " + to_hex(committed.root)) +
      "\n";
  if (status.refit) {
    const transport::RefitStatus& refit = *status.refit;
    text += "refit " + to_string(refit.id) + ": " + refit.phase + ", " +
            std::to_string(refit.base.value) + " -> " + std::to_string(refit.target.value) + ", " +
            std::to_string(refit.yes) + " of " + std::to_string(refit.planned) + " prepared, " +
            std::to_string(refit.no) + " no, " + std::to_string(refit.lost) + " lost, " +
            std::to_string(refit.open_ms / 1000) + " s, " + refit.shape + "\n";
  }
  if (status.last) {
    const wire::RefitOutcome& last = *status.last;
    text += "last  " + to_string(last.refit) + ": " + to_string(last.verdict) + ", " +
            std::to_string(last.applied) + " of " + std::to_string(last.planned) + " applied" +
            (last.settled ? "" : " so far") +
            (last.cause ? ", " + in_words(last.cause) : std::string()) + "\n";
  }
  std::vector<std::vector<std::string>> rows = {
      {"MEMBER", "STATE", "VERSION", "ROOT", "READY", "BYTES", "VERIFIED", "CAUSE"}};
  for (const transport::MemberStatus& member : status.members) {
    rows.push_back({member.id + (member.role == wire::Role::kProducer ? " (producer)" : ""),
                    to_string(member.state), std::to_string(member.content.version.value),
                    short_hex(member.content.root), member.ready ? "yes" : "no",
                    member.bytes == 0 ? "-" : human_bytes(member.bytes), verified_ago(member.scrub),
                    in_words(member.cause)});
  }
  text += status.members.empty() ? "no members\n" : text_table(rows);
  text.pop_back();
  return text;
}

std::string status_metrics(const transport::FleetStatus& status) {
  std::string text;
  const auto gauge = [&](const char* name, const char* about, std::uint64_t value) {
    text += std::string("# HELP ") + name + " " + about + "\n# TYPE " + name + " gauge\n" + name +
            " " + std::to_string(value) + "\n";
  };
  gauge("weft_epoch_number", "Epoch of this coordinator start.", status.epoch.number);
  gauge("weft_committed_version", "Last committed version; 0: none.",
        status.committed.version.value);
  gauge("weft_refit_open", "1 while a refit is under way.", status.refit ? 1 : 0);
  std::map<std::string, std::uint64_t> states;
  for (const auto& member : status.members) ++states[to_string(member.state)];
  text += "# HELP weft_members Members by state.\n# TYPE weft_members gauge\n";
  for (const auto& [state, count] : states) {
    text += "weft_members{state=" + metric_label(state) + "} " + std::to_string(count) + "\n";
  }
  text += "# HELP weft_member_version Version of each member.\n# TYPE weft_member_version gauge\n";
  for (const auto& member : status.members) {
    text += "weft_member_version{member=" + metric_label(member.id) + "} " +
            std::to_string(member.content.version.value) + "\n";
  }
  return text;
}

std::string counter_metrics(const std::map<std::string, std::uint64_t>& counters) {
  std::string text;
  for (const auto& [name, value] : counters) {
    text += "# TYPE weft_" + name + " counter\nweft_" + name + " " + std::to_string(value) + "\n";
  }
  return text;
}

}  // namespace weft::agent
