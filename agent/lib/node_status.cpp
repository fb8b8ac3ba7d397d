// SPDX-License-Identifier: Apache-2.0
#include "agent/lib/node_status.hpp"

#include <array>
#include <cstdio>
#include <string>
#include <vector>

#include "agent/lib/json_writer.hpp"
#include "agent/lib/scrub_status.hpp"
#include "agent/lib/status_text.hpp"

namespace weft::agent {
namespace {

double seconds_since(TimePoint then, TimePoint now) {
  return std::chrono::duration<double>(now - then).count();
}

void write_member(JsonWriter& json, const NodeSnapshot& node) {
  json.begin_object().member("id", node.agent_id).member("role", "agent");
  json.member("state", wire::to_string(node.state));
  json.member("version", node.content.version.value).member("root", to_hex(node.content.root));
  json.key("cause");
  if (node.cause) {
    json.begin_object().member("code", to_string(node.cause->code));
    json.member("detail", node.cause->detail).end_object();
  } else {
    json.null();
  }
  json.member("ready", node.ready).member("connected", node.connected);
  json.member("parent", "").member("bytes", std::uint64_t{0}).end_object();
}

void write_links(JsonWriter& json, const NodeSnapshot& node) {
  json.key("links").begin_array();
  for (const transport::LinkStatus& link : node.links) {
    json.begin_object().member("refit", to_string(link.refit)).member("tree", link.tree);
    json.member("producer", link.producer.value);
    json.member(link.from_parent ? "parent" : "child", link.member_id);
    json.member("phase", link.phase).member("suspect", link.suspect);
    json.member("demoted", link.demoted).member("demotions", link.demotions);
    json.member("slots", link.slots).member("credits", link.credits);
    json.member("waiting", link.waiting).member("frames", link.frames);
    json.member("bytes", link.bytes).end_object();
  }
  json.end_array();
}

void write_node(JsonWriter& json, const NodeSnapshot& node, TimePoint now) {
  json.key("node").begin_object().member("weights", node.weights_path);
  json.member("applies", node.times.applies);
  json.member("prove_seconds", node.times.prove_seconds);
  json.member("apply_seconds", node.times.apply_seconds);
  json.member("pause_seconds", node.times.pause_seconds);
  json.key("rail").begin_object().member("provider", node.rail.provider);
  json.member("protocol", node.rail.protocol);
  json.member("device", node.rail.device).member("address", node.rail.address);
  json.member("libfabric", node.rail.library_version).member("slots", node.rail.slot_count);
  json.key("numa_node");
  node.rail.numa_node < 0 ? json.null() : json.value(node.rail.numa_node);
  json.end_object();
  write_links(json, node);
  write_scrub(json, scrub_report(node.scrub, now));
  json.end_object();
}

std::string number(double value) {
  char text[32];
  const int count = std::snprintf(text, sizeof(text), "%.6f", value);
  return {text, static_cast<std::size_t>(count)};
}

// One line per link and value; a label per link.
std::string link_metrics(const NodeSnapshot& node) {
  using transport::LinkStatus;
  struct Value {
    const char* name;
    const char* about;
    std::uint64_t (*of)(const LinkStatus&);
  };
  constexpr std::array kValues = {
      Value{"slots", "Slots of the receiving side: the width of the link.",
            [](const LinkStatus& link) -> std::uint64_t { return link.slots; }},
      Value{"credits", "Of these, granted and not used.",
            [](const LinkStatus& link) -> std::uint64_t { return link.credits; }},
      Value{"waiting_frames", "Frames that a child has not taken.",
            [](const LinkStatus& link) -> std::uint64_t { return link.waiting; }},
      Value{"demotions", "Times that a child was left to read from spools.",
            [](const LinkStatus& link) -> std::uint64_t { return link.demotions; }},
      Value{"frames", "Taken from a parent or written to a child.",
            [](const LinkStatus& link) { return link.frames; }},
      Value{"bytes", "Of these frames.", [](const LinkStatus& link) { return link.bytes; }},
  };
  std::string text;
  for (const Value& value : kValues) {
    const std::string name = std::string("weft_link_") + value.name;
    text += "# HELP " + name + " " + value.about + " Of the open refit, else of the last.\n";
    text += "# TYPE " + name + " gauge\n";
    for (const LinkStatus& link : node.links) {
      text += name + "{" + (link.from_parent ? "parent=" : "child=") +
              metric_label(link.member_id) + ",tree=\"" + std::to_string(link.tree) + "\"} " +
              std::to_string(value.of(link)) + "\n";
    }
  }
  return text;
}

}  // namespace

std::string node_status_text(const NodeSnapshot& node) {
  const NodeSnapshot::Rail& rail = node.rail;
  std::string text = "node " + node.agent_id + ", " + wire::to_string(node.state) + ", version " +
                     std::to_string(node.content.version.value) + "\n";
  text += "rail " + rail.provider + ", protocol " + std::to_string(rail.protocol) + ", device " +
          rail.device + ", " + rail.address + ", libfabric " + rail.library_version + ", " +
          std::to_string(rail.slot_count) + " slots, NUMA node " +
          (rail.numa_node < 0 ? "no preference" : std::to_string(rail.numa_node)) + "\n";
  std::vector<std::vector<std::string>> rows = {
      {"LINK", "TREE", "PHASE", "SLOTS", "CREDITS", "WAITING", "DEMOTIONS", "FRAMES", "BYTES"}};
  for (const transport::LinkStatus& link : node.links) {
    const char* mark = link.demoted ? ", demoted" : link.suspect ? ", suspect" : "";
    rows.push_back({(link.from_parent ? "from " : "to ") + link.member_id,
                    std::to_string(link.tree), std::string(link.phase) + mark,
                    std::to_string(link.slots), std::to_string(link.credits),
                    std::to_string(link.waiting), std::to_string(link.demotions),
                    std::to_string(link.frames), std::to_string(link.bytes)});
  }
  if (rows.size() == 1) return text + "no link since the start\n";
  return text + "refit " + to_string(node.links.front().refit) + "\n" + text_table(rows);
}

std::string node_status_json(const NodeSnapshot& node, TimePoint now) {
  JsonWriter json;
  json.begin_object().member("fleet", to_hex(node.fleet));
  json.member("epoch", node.epoch.number).member("version", node.committed.version.value);
  json.member("root", to_hex(node.committed.root)).key("members").begin_array();
  write_member(json, node);
  json.end_array().key("refit").null().key("last").null();
  write_node(json, node, now);
  return json.end_object().take();
}

std::string node_metrics(const NodeSnapshot& node, TimePoint now) {
  std::string text;
  const auto gauge = [&](const char* name, const char* about, const std::string& value) {
    text += std::string("# HELP ") + name + " " + about + "\n# TYPE " + name + " gauge\n" + name +
            " " + value + "\n";
  };
  const auto count = [](std::uint64_t value) { return std::to_string(value); };
  const std::uint64_t version = node.content.version.value;
  const std::uint64_t committed = node.committed.version.value;
  gauge("weft_node_ready", "1 when readers may use this node.", node.ready ? "1" : "0");
  gauge("weft_node_version", "Version of the weight files; 0: unknown.", count(version));
  gauge("weft_committed_version", "The fleet's last committed version, as far as known.",
        count(committed));
  gauge("weft_node_lag_versions", "Versions behind the fleet.",
        count(committed > version ? committed - version : 0));
  gauge("weft_node_connected", "1 with a session to the coordinator.", node.connected ? "1" : "0");
  text += std::string("# HELP weft_node_state The node's state; one line, value 1.\n") +
          "# TYPE weft_node_state gauge\nweft_node_state{state=\"" + wire::to_string(node.state) +
          "\"} 1\n";
  gauge("weft_prove_seconds", "Last refit: from its seal to PREPARED.",
        number(node.times.prove_seconds));
  gauge("weft_apply_seconds", "Last refit: from COMMIT to published and synced.",
        number(node.times.apply_seconds));
  gauge("weft_pause_seconds", "Last refit: readers were kept out so long.",
        number(node.times.pause_seconds));
  gauge("weft_scrub_chunks_checked", "Chunks of this scrub pass.",
        count(node.scrub.chunks_checked));
  gauge("weft_scrub_damaged_chunks", "Chunks that were not what the digest table says.",
        count(node.scrub.damaged_chunks));
  if (node.scrub.pass_ended) {
    gauge("weft_scrub_age_seconds", "Since every chunk was last verified.",
          number(seconds_since(*node.scrub.pass_ended, now)));
  }
  return text + link_metrics(node);
}

}  // namespace weft::agent
