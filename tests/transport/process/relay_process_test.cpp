// SPDX-License-Identifier: Apache-2.0
// Relays in processes of their own over real libfabric on loopback.
#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ;

namespace weft::transport {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kLostMs = 1500;
constexpr milliseconds kAnswerTimeout = seconds(40);
constexpr std::uint32_t kPayloadBytes = 1'000'000;

// One relay_node process and the pipes to it.
// Threads: one at a time.
class NodeProcess {
 public:
  NodeProcess(const std::string& name, const std::string& provider, int low_percent) : name_(name) {
    std::array<int, 2> in{};
    std::array<int, 2> out{};
    if (pipe2(in.data(), O_CLOEXEC) != 0 || pipe2(out.data(), O_CLOEXEC) != 0) return;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], 0);
    posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    const std::string lost = std::to_string(kLostMs);
    std::string program = WEFT_RELAY_NODE;
    std::vector<std::string> words{program, name, provider, lost, std::to_string(low_percent)};
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    if (posix_spawn(&pid_, program.c_str(), &actions, nullptr, arguments.data(), environ) != 0) {
      pid_ = -1;
    }
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]);
    close(out[1]);
    to_ = in[1];
    from_ = out[0];
  }
  ~NodeProcess() {
    stop(SIGKILL);
    if (to_ >= 0) close(to_);
    if (from_ >= 0) close(from_);
  }
  NodeProcess(const NodeProcess&) = delete;
  NodeProcess& operator=(const NodeProcess&) = delete;

  const std::string& name() const { return name_; }
  void tell(const std::string& line) {
    const std::string text = line + "\n";
    EXPECT_EQ(write(to_, text.data(), text.size()), static_cast<ssize_t>(text.size())) << name_;
  }
  // The next line, or "timeout".
  std::string hear() {
    const auto deadline = std::chrono::steady_clock::now() + kAnswerTimeout;
    for (;;) {
      const std::size_t end = heard_.find('\n');
      if (end != std::string::npos) {
        const std::string line = heard_.substr(0, end);
        heard_.erase(0, end + 1);
        return line;
      }
      const auto left =
          std::chrono::duration_cast<milliseconds>(deadline - std::chrono::steady_clock::now());
      pollfd waiting{from_, POLLIN, 0};
      if (left.count() <= 0 || poll(&waiting, 1, static_cast<int>(left.count())) <= 0) {
        return "timeout";
      }
      std::array<char, 4096> part{};
      const ssize_t count = read(from_, part.data(), part.size());
      if (count <= 0) return "gone";
      heard_.append(part.data(), static_cast<std::size_t>(count));
    }
  }
  std::string ask(const std::string& line) {
    tell(line);
    return hear();
  }
  void signal(int number) const {
    if (pid_ > 0) kill(pid_, number);
  }
  void stop(int number) {
    if (pid_ <= 0) return;
    kill(pid_, SIGCONT);
    kill(pid_, number);
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
  }

 private:
  std::string name_;
  pid_t pid_ = -1;
  int to_ = -1;
  int from_ = -1;
  std::string heard_;
};

// A producer and agents that have entered one refit.
class RelayProcesses : public testing::TestWithParam<const char*> {
 protected:
  static void SetUpTestSuite() { ::signal(SIGPIPE, SIG_IGN); }

  // Without demotions (low_percent 0) every frame must be passed on, however busy the machine is.
  void start(const std::string& shape, std::uint32_t agents, int low_percent = 0) {
    shape_ = shape;
    nodes_.push_back(std::make_unique<NodeProcess>("producer", GetParam(), low_percent));
    for (std::uint32_t i = 0; i < agents; ++i) {
      nodes_.push_back(
          std::make_unique<NodeProcess>("agent-" + std::to_string(i), GetParam(), low_percent));
    }
    for (const auto& node : nodes_) {
      const std::string ready = node->hear();
      ASSERT_EQ(ready.substr(0, 6), "ready ") << node->name() << ": " << ready;
      endpoints_ += " " + node->name() + ready.substr(5);
    }
    enter_all(1);
  }
  void enter_all(int attempt) {
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      nodes_[i]->tell("enter " + std::to_string(attempt) + " " + shape_ + " 1 " +
                      std::to_string(nodes_.size() - 1) + " " + std::to_string(i) + endpoints_);
    }
    for (const auto& node : nodes_) ASSERT_EQ(node->hear(), "entered") << node->name();
  }
  void expect_whole(std::uint32_t frames) {
    for (std::size_t i = 1; i < nodes_.size(); ++i) {
      EXPECT_EQ(nodes_[i]->ask("check"), "check frames=" + std::to_string(frames) +
                                             " bad=0 faults=0 lost=0 posted_where_received=yes")
          << nodes_[i]->name();
    }
  }
  void expect_all_slots_back() {
    for (const auto& node : nodes_) node->tell("quit");
    for (const auto& node : nodes_) EXPECT_EQ(node->hear(), "closed in_time 32/32") << node->name();
  }
  void run_whole(const std::string& shape, std::uint32_t agents, std::uint32_t frames) {
    start(shape, agents);
    if (HasFatalFailure()) return;
    const std::string count = std::to_string(frames);
    EXPECT_EQ(nodes_[0]->ask("send " + count + " " + std::to_string(kPayloadBytes)),
              "sent " + count);
    for (std::size_t i = 1; i < nodes_.size(); ++i) {
      EXPECT_EQ(nodes_[i]->ask("wait " + count + " 30000"), "frames " + count);
    }
    // A leaf may have a frame before its parent's post of it has returned.
    for (const auto& node : nodes_) EXPECT_EQ(node->ask("drain 10000"), "drained") << node->name();
    expect_whole(frames);
    expect_all_slots_back();
  }

  std::string shape_;
  std::string endpoints_;
  std::vector<std::unique_ptr<NodeProcess>> nodes_;
};

TEST_P(RelayProcesses, AChainOfFourForwardsEveryFrameFromWhereItArrived) {
  run_whole("chain", 4, 300);
}

TEST_P(RelayProcesses, ATreeOfSevenForwardsEveryFrameFromWhereItArrived) {
  run_whole("kary(2)", 7, 300);
}

TEST_P(RelayProcesses, AStarServesEveryAgent) { run_whole("star", 3, 100); }

TEST_P(RelayProcesses, ABinomialTreeForwardsEveryFrameFromWhereItArrived) {
  run_whole("binomial", 7, 100);
}

// Several trees over the same processes: each node has children in some and none in others.
TEST_P(RelayProcesses, StripesForwardEveryFrameFromWhereItArrived) {
  run_whole("striped(3)", 7, 200);
}

TEST_P(RelayProcesses, APipelineForwardsEveryFrameFromWhereItArrived) {
  run_whole("pipeline", 7, 200);
}

TEST_P(RelayProcesses, AutoAndOneRegionForwardEveryFrameFromWhereItArrived) {
  run_whole("auto", 5, 100);
  nodes_.clear();
  endpoints_.clear();
  run_whole("regional(binomial,chain)", 5, 100);
}

TEST_P(RelayProcesses, RefitsFollowEachOtherOverTheSameProcesses) {
  start("chain", 2);
  for (int attempt = 2; attempt < 8; ++attempt) {
    ASSERT_EQ(nodes_[0]->ask("send 20 100000"), "sent 20");
    ASSERT_EQ(nodes_[0]->ask("drain 10000"), "drained");
    const std::string total = std::to_string((attempt - 1) * 20);
    ASSERT_EQ(nodes_[2]->ask("wait " + total + " 10000"), "frames " + total);
    for (const auto& node : nodes_) ASSERT_EQ(node->ask("leave"), "left");
    enter_all(attempt);
    ASSERT_FALSE(HasFatalFailure());
  }
  expect_all_slots_back();
}

// B-043: the dead leaf is named in time, the others are not disturbed.
TEST_P(RelayProcesses, AKilledLeafIsNamedInTimeAndTheOthersFinish) {
  start("kary(2)", 6);
  ASSERT_FALSE(HasFatalFailure());
  nodes_[0]->tell("send 300 " + std::to_string(kPayloadBytes));
  ASSERT_EQ(nodes_[5]->ask("wait 50 30000").substr(0, 7), "frames ");
  nodes_[6]->stop(SIGKILL);  // agent-5, a child of agent-1
  EXPECT_EQ(nodes_[2]->ask("waitlost 6000"), "lost agent-5 peer_lost");
  EXPECT_EQ(nodes_[0]->hear(), "sent 300");
  for (std::size_t i = 1; i < 6; ++i) {
    EXPECT_EQ(nodes_[i]->ask("wait 300 30000"), "frames 300") << nodes_[i]->name();
  }
  nodes_.pop_back();
  expect_all_slots_back();
}

TEST_P(RelayProcesses, AKilledInteriorRelayIsNamedByParentAndChildren) {
  start("kary(2)", 6);
  ASSERT_FALSE(HasFatalFailure());
  nodes_[0]->tell("send 300 " + std::to_string(kPayloadBytes));
  ASSERT_EQ(nodes_[1]->ask("wait 50 30000").substr(0, 7), "frames ");
  nodes_[1]->stop(SIGKILL);  // agent-0: agents 2 and 3 are its children
  EXPECT_EQ(nodes_[3]->ask("waitlost 6000"), "lost agent-0 peer_lost");
  EXPECT_EQ(nodes_[4]->ask("waitlost 6000"), "lost agent-0 peer_lost");
  EXPECT_EQ(nodes_[0]->hear(), "sent 300");
  EXPECT_EQ(nodes_[0]->ask("waitlost 6000"), "lost agent-0 peer_lost");
  for (const std::size_t i : {2U, 5U, 6U}) {
    EXPECT_EQ(nodes_[i]->ask("wait 300 30000"), "frames 300") << nodes_[i]->name();
  }
  EXPECT_EQ(nodes_[0]->ask("drain 10000"), "drained");
  nodes_.erase(nodes_.begin() + 1);
  expect_all_slots_back();
}

TEST_P(RelayProcesses, AStoppedAgentIsLostInTimeAndAShortStopIsHealed) {
  start("star", 2);
  ASSERT_FALSE(HasFatalFailure());
  // A short stop: while the other agent takes some frames.
  nodes_[1]->signal(SIGSTOP);
  ASSERT_EQ(nodes_[0]->ask("send 10 100000"), "sent 10");
  ASSERT_EQ(nodes_[2]->ask("wait 10 10000"), "frames 10");
  nodes_[1]->signal(SIGCONT);
  EXPECT_EQ(nodes_[1]->ask("wait 10 10000"), "frames 10");
  // A long one.
  nodes_[1]->signal(SIGSTOP);
  EXPECT_EQ(nodes_[0]->ask("waitlost 6000"), "lost agent-0 peer_lost");
  EXPECT_EQ(nodes_[0]->ask("send 100 100000"), "sent 110");
  EXPECT_EQ(nodes_[2]->ask("wait 110 20000"), "frames 110");
  nodes_[1]->stop(SIGKILL);
  nodes_.erase(nodes_.begin() + 1);
  expect_all_slots_back();
}

// B-065: a child that reads at its own pace holds back neither its sibling nor the producer, and
// has everything in the end.
TEST_P(RelayProcesses, ASlowChildDoesNotSlowItsSiblingAndGetsEverything) {
  start("star", 2, 25);
  ASSERT_FALSE(HasFatalFailure());
  ASSERT_EQ(nodes_[1]->ask("pace 20"), "paced");
  nodes_[0]->tell("send 400 200000");
  EXPECT_EQ(nodes_[2]->ask("wait 400 30000"), "frames 400");
  EXPECT_EQ(nodes_[0]->hear(), "sent 400");
  // At its pace it can take 50 in a second.
  const std::string slow = nodes_[1]->ask("wait 0 0");
  EXPECT_LT(std::stoi(slow.substr(7)), 200) << slow;
  EXPECT_EQ(nodes_[1]->ask("wait 400 30000"), "frames 400");
  EXPECT_EQ(nodes_[0]->ask("drain 10000"), "drained");
  ASSERT_EQ(nodes_[1]->ask("pace 0"), "paced");
  expect_all_slots_back();
}

// The same where the slow one is interior: who hangs below it waits with it, nobody else does.
TEST_P(RelayProcesses, ASlowRelayDoesNotSlowThoseThatDoNotHangBelowIt) {
  start("kary(2)", 6, 25);
  ASSERT_FALSE(HasFatalFailure());
  ASSERT_EQ(nodes_[1]->ask("pace 20"), "paced");
  nodes_[0]->tell("send 300 200000");
  for (const std::size_t i : {2U, 5U, 6U}) {
    EXPECT_EQ(nodes_[i]->ask("wait 300 30000"), "frames 300") << nodes_[i]->name();
  }
  EXPECT_EQ(nodes_[0]->hear(), "sent 300");
  const std::string slow = nodes_[1]->ask("wait 0 0");
  EXPECT_LT(std::stoi(slow.substr(7)), 200) << slow;
  for (const std::size_t i : {1U, 3U, 4U}) {
    EXPECT_EQ(nodes_[i]->ask("wait 300 30000"), "frames 300") << nodes_[i]->name();
  }
  ASSERT_EQ(nodes_[1]->ask("pace 0"), "paced");
  expect_all_slots_back();
}

std::string provider_name(const testing::TestParamInfo<const char*>& provider) {
  return std::string(provider.param) == "net" ? "net" : "tcp_rxm";
}

INSTANTIATE_TEST_SUITE_P(Providers, RelayProcesses, testing::Values("net", "tcp;ofi_rxm"),
                         provider_name);

}  // namespace
}  // namespace weft::transport
