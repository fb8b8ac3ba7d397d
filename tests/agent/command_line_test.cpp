// SPDX-License-Identifier: Apache-2.0
// What the program says to right and wrong command lines.
#include "agent/cli/command_line.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "agent/cli/report.hpp"
#include "agent/lib/parse_ids.hpp"

namespace weft::cli {
namespace {

struct Outcome {
  int code = 0;
  std::string out;
  std::string err;
};

Outcome run(std::vector<const char*> words) {
  words.insert(words.begin(), "weft");
  StopToken stop;
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  Outcome outcome;
  outcome.code = run_command_line(static_cast<int>(words.size()), words.data(), stop);
  std::fflush(stdout);
  outcome.out = ::testing::internal::GetCapturedStdout();
  outcome.err = ::testing::internal::GetCapturedStderr();
  return outcome;
}

TEST(CommandLine, HelpOfEveryCommandNamesItsExitCodes) {
  for (const std::vector<const char*>& words : {std::vector<const char*>{"--help"},
                                                {"status", "--help"},
                                                {"plan", "--help"},
                                                {"coordinator", "--help"}}) {
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.code, 0);
    EXPECT_NE(outcome.out.find("Exit codes"), std::string::npos) << outcome.out;
    EXPECT_EQ(outcome.err, "");
  }
}

TEST(CommandLine, WrongOnesNameTheOptionAndTheHelp) {
  struct Case {
    std::vector<const char*> words;
    const char* says;
    const char* help;
  };
  for (const Case& c : {
           Case{{}, "subcommand", "weft --help"},
           {{"fly"}, "fly", "weft --help"},
           {{"status"}, "--fleet is required", "weft status --help"},
           {{"status", "--fleet", "::1"}, "--fleet", "weft status --help"},
           {{"status", "--fleet", "host:0"}, "port 0", "weft status --help"},
           {{"status", "--fleet", "h:1", "--timeout", "3"}, "--timeout", "weft status --help"},
           {{"status", "--fleet", "h:1", "--log-level", "loud"}, "--log-level", "weft status"},
           {{"status", "--fleet", "h:1", "extra"}, "extra", "weft status --help"},
           {{"plan"}, "--nodes is required", "weft plan --help"},
           {{"plan", "--nodes", "0"}, "--nodes", "weft plan --help"},
           {{"plan", "--nodes", "5000"}, "--nodes", "weft plan --help"},
           {{"plan", "--nodes", "2", "--bytes", "4G"}, "'4G' is not a size", "weft plan --help"},
           {{"coordinator", "--config", "x", "--resolve", "e1"}, "--resolve", "weft coordinator"},
           {{"coordinator", "--config", "x", "--resolve", "e1-a1", "commit"}, "no refit", "weft"},
       }) {
    const Outcome outcome = run(c.words);
    EXPECT_EQ(outcome.code, kExitUsage) << c.says;
    EXPECT_NE(outcome.err.find(c.says), std::string::npos) << outcome.err;
    EXPECT_NE(outcome.err.find(c.help), std::string::npos) << outcome.err;
    EXPECT_EQ(outcome.out, "");
  }
}

TEST(CommandLine, ErrorsHaveTheirExitCodeAndNextStep) {
  const Outcome text = run({"plan", "--nodes", "2", "--shape", "ring"});
  EXPECT_EQ(text.code, exit_code(ErrorCode::kConfig));
  EXPECT_TRUE(text.err.starts_with("weft: config (config): ")) << text.err;
  EXPECT_NE(text.err.find("next: fix the request"), std::string::npos) << text.err;
  const Outcome json = run({"plan", "--nodes", "2", "--shape", "ring", "--json"});
  EXPECT_EQ(json.code, exit_code(ErrorCode::kConfig));
  EXPECT_TRUE(json.out.starts_with(R"({"error":{"code":"config","stage":"config","detail":")"))
      << json.out;
  EXPECT_NE(json.out.find(R"("next_step":"fix the request","exit_code":30}})"), std::string::npos);
  EXPECT_EQ(json.err, "");
}

TEST(PlanCommand, ShowsTheTreeAsTextDotAndJson) {
  const Outcome text = run({"plan", "--nodes", "3", "--shape", "chain"});
  EXPECT_EQ(text.code, 0);
  EXPECT_EQ(text.out,
            "chain: depth 3, at most 1 children\n  producer-0\n    agent-0\n      agent-1\n"
            "        agent-2\n");
  const Outcome dot = run({"plan", "--nodes", "2", "--shape", "star", "--format", "dot"});
  EXPECT_NE(dot.out.find("\"producer-0\" -> \"agent-1\";"), std::string::npos) << dot.out;
  const Outcome json = run({"plan", "--nodes", "1", "--shape", "star", "--json"});
  EXPECT_EQ(json.out, R"({"shape":"star","agents":1,"producers":1,"stripes":1,"trees":[)"
                      R"({"producer":"producer-0","stripe":0,"depth":1,"children_max":1,)"
                      R"("region_crossings":0,"egress":1,)"
                      R"("nodes":[{"id":"agent-0","parent":"producer-0","depth":1}]}]})"
                      "\n");
}

TEST(PlanCommand, ShowsStripesAndRegions) {
  const Outcome striped = run({"plan", "--nodes", "4", "--shape", "striped(2)"});
  EXPECT_NE(striped.out.find("striped(2), stripe 2 of 2: depth 3"), std::string::npos)
      << striped.out;
  const Outcome regional =
      run({"plan", "--nodes", "4", "--shape", "regional(chain, chain)", "--regions", "2"});
  EXPECT_EQ(regional.out,
            "regional(chain, chain): depth 2, at most 2 children, enters a region 1 time\n"
            "  producer-0 (region-0)\n    agent-0 (region-0)\n      agent-1 (region-0)\n"
            "    agent-2 (region-1)\n      agent-3 (region-1)\n");
  const Outcome chosen = run({"plan", "--nodes", "64", "--shape", "auto", "--json"});
  EXPECT_EQ(chosen.out.find("\"shape\":\"auto\""), std::string::npos) << chosen.out;
}

TEST(PlanCommand, PredictsOnlyWithBytesAndRate) {
  EXPECT_EQ(run({"plan", "--nodes", "7", "--bytes", "40MiB"}).out.find("predicted"),
            std::string::npos);
  const Outcome both = run({"plan", "--nodes", "7", "--bytes", "40MiB", "--rate", "200Mbit"});
  EXPECT_NE(both.out.find("predicted: 3.6"), std::string::npos) << both.out;
}

TEST(StatusCommand, WithoutACoordinatorIsPeerLost) {
  const Outcome outcome = run({"status", "--fleet", "127.0.0.1:1", "--timeout", "2s"});
  EXPECT_EQ(outcome.code, exit_code(ErrorCode::kPeerLost));
  EXPECT_NE(outcome.err.find("127.0.0.1:1"), std::string::npos) << outcome.err;
}

TEST(ParseIds, PrintedFormsComeBack) {
  const RefitId refit{{12, ProcessId{0xABCDEF0123456789}}, 3};
  const auto parsed = agent::parse_refit_id(to_string(refit));
  ASSERT_TRUE(parsed);
  EXPECT_EQ(*parsed, refit);
  const Digest digest{{1, 0xFEDC}};
  EXPECT_EQ(*agent::parse_digest(to_hex(digest)), digest);
}

TEST(ParseIds, OtherFormsAreConfigErrors) {
  for (const char* text :
       {"", "e1", "e1-a1", "1-abcdef0123456789-a1", "e1-abcdef0123456789-1",
        "e1-abcdef012345678-a1", "e-abcdef0123456789-a1", "e1-abcdef0123456789-a",
        "e1-abcdef0123456789-a1x", "e-1-abcdef0123456789-a1", "e1-abcdef012345678g-a1"}) {
    EXPECT_FALSE(agent::parse_refit_id(text)) << text;
  }
  for (const char* text : {"", "0", "0123456789abcdef0123456789abcde", "0x", "g"}) {
    EXPECT_FALSE(agent::parse_digest(text)) << text;
  }
}

}  // namespace
}  // namespace weft::cli
