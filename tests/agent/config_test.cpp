// SPDX-License-Identifier: Apache-2.0
#include "agent/lib/config.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <regex>
#include <set>
#include <string>

namespace weft::agent {
namespace {

using namespace std::chrono_literals;

constexpr const char* kLeastAgent =
    "fleet.coordinator = \"localhost:7443\"\n"
    "weights.dir = \"/srv/weights\"\n"
    "state.dir = \"/srv/state\"\n";

std::string source_file(const std::string& path) {
  return std::string(WEFT_SOURCE_DIR) + "/" + path;
}

TEST(AgentConfig, LeastFileHasTheDefaults) {
  const auto loaded = parse_agent_config(kLeastAgent, "a.toml");
  ASSERT_TRUE(loaded) << loaded.error().message();
  const AgentConfig defaults;
  EXPECT_EQ(to_string(loaded->config.coordinator), "localhost:7443");
  EXPECT_EQ(loaded->config.state_bytes_max, defaults.state_bytes_max);
  EXPECT_EQ(loaded->config.fabric.numa_node, -1);
  EXPECT_FALSE(loaded->config.http.listen);
}

TEST(AgentConfig, MissingKeysAreNamedTogether) {
  const auto loaded = parse_agent_config("", "a.toml");
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().code, ErrorCode::kConfig);
  for (const char* key : {"fleet.coordinator", "weights.dir", "state.dir"}) {
    EXPECT_NE(loaded.error().detail.find(std::string("a.toml: ") + key + ": must be set"),
              std::string::npos)
        << loaded.error().detail;
  }
}

TEST(AgentConfig, BrokenTomlIsToldWithItsLine) {
  const auto loaded = parse_agent_config("[fleet]\ncoordinator = \n", "a.toml");
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().code, ErrorCode::kConfig);
  EXPECT_TRUE(loaded.error().detail.starts_with("a.toml:2: ")) << loaded.error().detail;
}

// One line behind the least file (so it is line 4), and what the message must contain.
struct BadLine {
  const char* line;
  const char* says;
};

class BadAgentLine : public ::testing::TestWithParam<BadLine> {};

TEST_P(BadAgentLine, IsAConfigErrorWithFileLineKeyAndRange) {
  const auto loaded = parse_agent_config(kLeastAgent + std::string(GetParam().line), "a.toml");
  ASSERT_FALSE(loaded) << GetParam().line;
  EXPECT_EQ(loaded.error().code, ErrorCode::kConfig);
  EXPECT_NE(loaded.error().detail.find("a.toml:4: "), std::string::npos) << loaded.error().detail;
  EXPECT_NE(loaded.error().detail.find(GetParam().says), std::string::npos)
      << loaded.error().detail;
}

INSTANTIATE_TEST_SUITE_P(
    Table, BadAgentLine,
    ::testing::Values(
        BadLine{"agent.nmae = \"x\"", "agent.nmae: unknown key"},
        BadLine{"fabric.prot = 1", "fabric.prot: unknown key"},
        BadLine{"extra = {a = 1}", "extra: unknown key"},
        BadLine{"agent.id = \"a b\"", "letters, digits"},
        BadLine{"agent.id = \"../x\"", "letters, digits"},
        BadLine{"agent.id = 7", "agent.id = 7: expected"},
        BadLine{"state.max_bytes = 0", "from 64MiB"}, BadLine{"state.max_bytes = -1", "from 64MiB"},
        BadLine{"state.max_bytes = \"\"", "from 64MiB"},
        BadLine{"state.max_bytes = \"4G\"", "such as \"64MiB\""},
        BadLine{"state.max_bytes = \"4g\"", "such as \"64MiB\""},
        BadLine{"state.max_bytes = \"4GiB \"", "such as \"64MiB\""},
        BadLine{"state.max_bytes = \"99999999TiB\"", "to 1024TiB"},
        BadLine{"state.max_bytes = 1.5", "such as \"64MiB\""},
        BadLine{"state.retain_refits = -1", "from 0 to 1024"},
        BadLine{"state.retain_refits = \"4\"", "a whole number"},
        BadLine{"state.durability = \"Disk\"", "one of \"disk\", \"process\""},
        BadLine{"apply.mode = \"in-place\"", "one of \"in_place\""},
        BadLine{"hook.before_apply = \"POST http://h/\"", "array"},
        BadLine{"hook.after_apply = [\"post http://h/\"]", "call 1"},
        BadLine{"scrub.bytes_per_second = \"1B\"", "1MiB"},
        BadLine{"apply.engine = \"\"", "one of \"auto\""},
        BadLine{"apply.block_bytes = \"96KiB\"", "power of two"},
        BadLine{"apply.block_bytes = \"4KiB\"", "from 64KiB"},
        BadLine{"apply.threads = 9", "from 0 to 8"}, BadLine{"apply.nice = -1", "from 0 to 19"},
        BadLine{"apply.nice = 20", "from 0 to 19"},
        BadLine{"control.lost_after = 3", "such as \"250ms\""},
        BadLine{"control.lost_after = \"3\"", "such as \"250ms\""},
        BadLine{"control.lost_after = \"0s\"", "from 200ms"},
        BadLine{"control.lost_after = \"1500ms\"", "at least twice control.heartbeat_interval"},
        BadLine{"fabric.lost_after = \"1s\"", "at least four times fabric.heartbeat_interval"},
        BadLine{"fabric.port = 65536", "from 0 to 65535"},
        BadLine{"fabric.port = -1", "from 0 to 65535"},
        BadLine{"fabric.numa_node = -2", "from -1 to 1023"},
        BadLine{"fabric.provider = \"\"", "must not be empty"},
        BadLine{"fabric.allow_fallback = \"true\"", "true or false"},
        BadLine{"fabric.allow_fallback = 1", "true or false"},
        BadLine{"fabric = {interface = \"eth0\", address = \"10.0.0.1\"}", "contradicts"},
        BadLine{"slots.count = 0", "from 8 to 65536"},
        BadLine{"slots = {count = 8, send_reserve = 5}", "at most half"},
        BadLine{"http.listen = \"::1:9000\"", "an IPv6 address needs brackets"},
        BadLine{"http.listen = \"localhost\"", "the port is missing"},
        BadLine{"http.listen = 9464", "an address"},
        BadLine{"tls.cert = \"a.pem\"", "belong together"},
        BadLine{"tls = {cert = \"a\", key = \"b\", ca = \"c\", insecure = true}", "contradicts"},
        BadLine{"log.level = \"verbose\"", "one of \"debug\""},
        BadLine{"log.file = \"a\\u0000b\"", "control characters"},
        BadLine{"log.summary_interval = \"0s\"", "from 1s"}));

TEST(AgentConfig, NumaMinusOneMeansNoPreference) {
  const auto loaded = parse_agent_config(kLeastAgent + std::string("fabric.numa_node = -1"), "a");
  ASSERT_TRUE(loaded);
  EXPECT_EQ(loaded->config.fabric.numa_node, -1);
}

TEST(AgentConfig, StateWithinTheWeightsDirectoryIsRefused) {
  const auto loaded = parse_agent_config(
      "fleet.coordinator = \"localhost:1\"\nweights.dir = \"/a/b\"\nstate.dir = \"/a/./b\"\n", "a");
  ASSERT_FALSE(loaded);
  EXPECT_NE(loaded.error().detail.find("a:3: state.dir: must not be weights.dir"),
            std::string::npos)
      << loaded.error().detail;
}

TEST(AgentConfig, PlaintextBeyondLoopbackMustBeAskedForByName) {
  const std::string remote =
      "fleet.coordinator = \"192.0.2.1:7443\"\nweights.dir = \"w\"\nstate.dir = \"s\"\n";
  const auto refused = parse_agent_config(remote, "a");
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().detail.find("a:1: fleet.coordinator"), std::string::npos);
  EXPECT_NE(refused.error().detail.find("tls.insecure"), std::string::npos);
  EXPECT_TRUE(parse_agent_config(remote + "tls.insecure = true\n", "a"));
}

TEST(AgentConfig, EffectiveValuesNameEveryKeyOnce) {
  const auto loaded = parse_agent_config(kLeastAgent + std::string("slots.count = 32"), "a");
  ASSERT_TRUE(loaded);
  std::set<std::string> keys;
  for (const auto& [key, value] : loaded->effective) {
    EXPECT_TRUE(keys.insert(key).second) << key;
    EXPECT_TRUE(key != "slots.count" || value == "32") << value;
    EXPECT_TRUE(key != "state.max_bytes" || value == "\"32GiB\"") << value;
  }
}

TEST(AgentConfig, EffectiveValuesAreAFileAgain) {
  const auto loaded = parse_agent_config(kLeastAgent, "a");
  ASSERT_TRUE(loaded);
  std::string file;
  for (const auto& [key, value] : loaded->effective) {
    if (value != "\"\"") file += key + " = " + value + "\n";
  }
  const auto again = parse_agent_config(file, "b");
  ASSERT_TRUE(again) << again.error().message();
  EXPECT_EQ(again->effective, loaded->effective);
}

TEST(CoordinatorConfig, LeastFileHasTheDefaults) {
  const auto loaded = parse_coordinator_config("state.dir = \"/srv/log\"", "c");
  ASSERT_TRUE(loaded) << loaded.error().message();
  EXPECT_EQ(loaded->config.quorum, 1.0);
  EXPECT_EQ(loaded->config.prepare_timeout, 2min);
  EXPECT_EQ(loaded->config.trees_open_max, 8U);
  EXPECT_EQ(to_string(loaded->config.listen), "127.0.0.1:7443");
}

TEST(CoordinatorConfig, ValuesOutOfRangeAreRefused) {
  for (const BadLine& bad : {
           BadLine{"commit.quorum = 0", "above 0 and at most 1"},
           BadLine{"commit.quorum = 1.5", "above 0 and at most 1"},
           BadLine{"commit.quorum = nan", "above 0 and at most 1"},
           BadLine{"commit.min_fraction = \"1\"", "above 0 and at most 1"},
           BadLine{"commit.members_min = 0", "from 1"},
           BadLine{"commit.prepare_timeout = \"0s\"", "from 100ms"},
           BadLine{"tree.shape = \"ring\"", "tree.shape"},
           BadLine{"tree.shape = \"kary(0)\"", "tree.shape"},
           BadLine{"tree.open_max = 0", "from 1 to"},
           BadLine{"fleet.listen = \"0.0.0.0:7443\"", "is not loopback"},
           BadLine{"weights.dir = \"x\"", "unknown key"},
       }) {
    const auto loaded =
        parse_coordinator_config("state.dir = \"s\"\n" + std::string(bad.line), "c");
    ASSERT_FALSE(loaded) << bad.line;
    EXPECT_NE(loaded.error().detail.find("c:2: "), std::string::npos) << loaded.error().detail;
    EXPECT_NE(loaded.error().detail.find(bad.says), std::string::npos) << loaded.error().detail;
  }
  EXPECT_TRUE(parse_coordinator_config("state.dir = \"s\"\ncommit.quorum = 1", "c"));
}

TEST(PublisherConfig, EverythingHasADefault) {
  const auto loaded = parse_publisher_config("", "p");
  ASSERT_TRUE(loaded) << loaded.error().message();
  EXPECT_FALSE(loaded->config.coordinator);
  EXPECT_EQ(loaded->config.producer.retries, 1U);
  EXPECT_FALSE(parse_publisher_config("producer.retries = 17", "p"));
}

TEST(Config, MissingFileIsNamed) {
  const auto loaded = load_agent_config("/nonexistent/a.toml");
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().code, ErrorCode::kIoFailed);
  EXPECT_NE(loaded.error().detail.find("/nonexistent/a.toml"), std::string::npos);
}

// The examples in configs/ are the documentation: they load, they show every key, and what they
// comment out is the default.
template <typename Load>
void expect_complete_example(const std::string& path, Load&& load) {
  const auto loaded = load(source_file(path));
  ASSERT_TRUE(loaded) << loaded.error().message();
  std::ifstream in(source_file(path));
  const std::regex section(R"(^\[(\w+)\]$)");
  const std::regex shown(R"re(^(#?)(\w+) = ("[^"]*"|[^ ]+)( +#.*)?$)re");
  std::set<std::string> seen;
  std::string line;
  std::string prefix;
  while (std::getline(in, line)) {
    std::smatch match;
    if (std::regex_match(line, match, section)) prefix = match[1].str() + ".";
    if (!std::regex_match(line, match, shown)) continue;
    const std::string key = prefix + match[2].str();
    seen.insert(key);
    EXPECT_TRUE(match[4].matched || key.starts_with("tls.")) << key << " has no comment";
    const auto found = std::find_if(loaded->effective.begin(), loaded->effective.end(),
                                    [&](const auto& entry) { return entry.first == key; });
    ASSERT_NE(found, loaded->effective.end()) << key << " is no key";
    // 1.0 and 1 are the same number.
    const std::string value = match[3].str() == "1.0" ? "1" : match[3].str();
    EXPECT_EQ(found->second, value) << key;
  }
  for (const auto& [key, value] : loaded->effective) {
    EXPECT_TRUE(seen.contains(key)) << path << " does not show " << key;
  }
}

TEST(ConfigExamples, AgentIsCompleteAndShowsTheDefaults) {
  expect_complete_example("configs/dev-agent.toml", load_agent_config);
}

TEST(ConfigExamples, HooksForARuntimeAreThreeCalls) {
  const auto loaded = load_agent_config(source_file("configs/hook-runtime.toml"));
  ASSERT_TRUE(loaded) << loaded.error().message();
  EXPECT_EQ(loaded->config.hook.before_apply.size(), 1U);
  ASSERT_EQ(loaded->config.hook.after_apply.size(), 2U);
  EXPECT_EQ(loaded->config.hook.after_apply[0].body,
            R"({"model_path": "{path}", "weight_version": "{version}"})");
}

TEST(ConfigExamples, CoordinatorIsCompleteAndShowsTheDefaults) {
  expect_complete_example("configs/dev-coordinator.toml", load_coordinator_config);
}

// The others show only what they are about, and explain each line of it.
template <typename Load>
void expect_explained(const std::string& path, Load&& load) {
  const auto loaded = load(source_file(path));
  ASSERT_TRUE(loaded) << loaded.error().message();
  std::ifstream in(source_file(path));
  const std::regex shown(R"re(^\w+ = ("[^"]*"|[^ ]+) +# .+$)re");
  const std::regex other(R"re(^(#.*|\[\w+\]|)$)re");
  std::string line;
  int keys = 0;
  while (std::getline(in, line)) {
    keys += std::regex_match(line, shown) ? 1 : 0;
    EXPECT_TRUE(std::regex_match(line, shown) || std::regex_match(line, other))
        << path << ": " << line;
  }
  EXPECT_GT(keys, 8);
}

TEST(ConfigExamples, OfEachNetworkLoadAndExplainEachLine) {
  for (const char* name : {"agent-tcp-pinned", "agent-efa-p5", "agent-verbs"}) {
    expect_explained("configs/" + std::string(name) + ".toml", load_agent_config);
  }
  expect_explained("configs/coordinator-two-regions.toml", load_coordinator_config);
}

}  // namespace
}  // namespace weft::agent
