// SPDX-License-Identifier: Apache-2.0
#include "apply/hook/hooks.hpp"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "apply/store/descriptor.hpp"
#include "support/temp_directory.hpp"

namespace weft::apply {
namespace {

using namespace std::chrono_literals;
using test_support::TempDirectory;

const HookFacts kFacts{
    "/srv/we\"ights/b", {Version{7}, Digest{{1, 2}}, Digest{{3, 4}}}, {{2, ProcessId{9}}, 1}};

std::string text_of(const std::string& path) {
  const auto bytes = test_support::read_file(path);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// A plain HTTP server for one request at a time: keeps what it was asked, answers as told.
// Owns:    its socket and thread.
// Threads: one at a time; read requests() when the client is done.
class TinyServer {
 public:
  explicit TinyServer(std::string answer) : answer_(std::move(answer)) {
    socket_ = Descriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    EXPECT_EQ(::bind(socket_.number(), reinterpret_cast<sockaddr*>(&address), length), 0);
    EXPECT_EQ(::listen(socket_.number(), 8), 0);
    ::getsockname(socket_.number(), reinterpret_cast<sockaddr*>(&address), &length);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  ~TinyServer() {
    stop_ = true;
    thread_.join();
  }
  std::string url(const std::string& path) const {
    return "http://127.0.0.1:" + std::to_string(port_) + path;
  }
  const std::vector<std::string>& requests() {
    stop_ = true;
    if (thread_.joinable()) {
      thread_.join();
      thread_ = std::thread([] {});
    }
    return requests_;
  }

 private:
  void serve() {
    while (!stop_) {
      pollfd ready{socket_.number(), POLLIN, 0};
      if (::poll(&ready, 1, 20) != 1) continue;
      const Descriptor peer(::accept4(socket_.number(), nullptr, nullptr, SOCK_CLOEXEC));
      answer(peer);
    }
  }
  void answer(const Descriptor& peer) {
    std::string request;
    std::size_t wanted = std::string::npos;
    while (request.size() < wanted && !stop_) {
      pollfd ready{peer.number(), POLLIN, 0};
      if (::poll(&ready, 1, 20) != 1) continue;
      char part[4096];
      const ssize_t count = ::read(peer.number(), part, sizeof(part));
      if (count <= 0) break;
      request.append(part, static_cast<std::size_t>(count));
      const std::size_t head = request.find("\r\n\r\n");
      if (head == std::string::npos) continue;
      const std::size_t length = request.find("Content-Length: ");
      wanted = head + 4 + (length > head ? 0 : std::stoul(request.substr(length + 16)));
    }
    requests_.push_back(request);
    if (answer_.empty()) {  // never answers
      while (!stop_) {
        pollfd ready{peer.number(), 0, 0};
        ::poll(&ready, 1, 20);
      }
      return;
    }
    EXPECT_EQ(::write(peer.number(), answer_.data(), answer_.size()),
              static_cast<ssize_t>(answer_.size()));
  }

  Descriptor socket_;
  std::string answer_;
  std::uint16_t port_ = 0;
  std::atomic<bool> stop_{false};
  std::vector<std::string> requests_;
  std::thread thread_;
};

constexpr const char* kFine = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";
constexpr const char* kBusyAnswer =
    "HTTP/1.1 503 Busy\r\nContent-Length: 10\r\nConnection: close\r\n\r\nno new one";

std::unique_ptr<Hooks> hooks_of(const std::vector<std::string>& after, Duration timeout = 20s) {
  HookOptions options;
  options.after_apply = *parse_hook(after);
  options.timeout = timeout;
  return *Hooks::open(std::move(options));
}

TEST(HookCalls, RefusesWhatItDoesNotKnowAndSaysWhichCall) {
  for (const char* bad : {"DELETE http://x/", "POST", "POST ftp://x/", "GET http://x/ {}", "run",
                          "run sh -c true", "", "post http://x/"}) {
    const auto parsed = parse_hook({"GET http://x/", bad});
    ASSERT_FALSE(parsed) << bad;
    EXPECT_EQ(parsed.error().code, ErrorCode::kConfig);
    EXPECT_NE(parsed.error().detail.find("call 2"), std::string::npos);
  }
}

TEST(HookCalls, FillsInWhatTheHookIsAbout) {
  EXPECT_EQ(fill_in(R"({"p":"{path}","v":{version},"x":{y}})", kFacts, true),
            R"({"p":"/srv/we\"ights/b","v":7,"x":{y}})");
  EXPECT_EQ(fill_in("{path}", kFacts, false), kFacts.path);
}

TEST(Hooks, PostsTheBodyAndTakesAnyTwoHundredForAnAnswer) {
  TinyServer server(kFine);
  const auto hooks = hooks_of({"POST " + server.url("/reload") + R"( {"path": "{path}"})",
                               "POST " + server.url("/resume")});
  const Status told = hooks->after_apply(kFacts);
  ASSERT_TRUE(told) << told.error().message();
  ASSERT_EQ(server.requests().size(), 2U);
  EXPECT_TRUE(server.requests()[0].starts_with("POST /reload HTTP/1.1"));
  EXPECT_TRUE(server.requests()[0].ends_with(R"({"path": "/srv/we\"ights/b"})"));
  EXPECT_TRUE(server.requests()[1].starts_with("POST /resume HTTP/1.1"));
}

TEST(Hooks, AnotherStatusIsAnErrorWithTheAnswerAndEndsTheHook) {
  TinyServer server(kBusyAnswer);
  const auto hooks =
      hooks_of({"POST " + server.url("/reload") + " {}", "POST " + server.url("/resume")});
  const Status told = hooks->after_apply(kFacts);
  ASSERT_FALSE(told);
  EXPECT_EQ(told.error().code, ErrorCode::kBusy);
  EXPECT_NE(told.error().detail.find("503"), std::string::npos);
  EXPECT_NE(told.error().detail.find("no new one"), std::string::npos);
  EXPECT_EQ(server.requests().size(), 1U);
}

TEST(Hooks, SilentServerIsATimeout) {
  TinyServer server("");
  const Status told = hooks_of({"GET " + server.url("/")}, 100ms)->after_apply(kFacts);
  ASSERT_FALSE(told);
  EXPECT_EQ(told.error().code, ErrorCode::kTimeout);
}

TEST(Hooks, NobodyListeningIsAnError) {
  const Status told = hooks_of({"GET http://127.0.0.1:1/"})->after_apply(kFacts);
  ASSERT_FALSE(told);
  EXPECT_EQ(told.error().code, ErrorCode::kBusy);
}

TEST(Hooks, CommandGetsArgumentsAndEnvironmentAndNoDescriptors) {
  const TempDirectory directory;
  const std::string script = directory / "hook.sh";
  const std::string_view text =
      "#!/bin/sh\necho \"$1 $WEFT_EVENT $WEFT_VERSION $WEFT_PATH\" > \"$2\"\n"
      "ls /proc/self/fd | wc -l >> \"$2\"\n";
  test_support::write_file(script, std::as_bytes(std::span(text)));
  const auto hooks = hooks_of({"run /bin/sh " + script + " {version} " + (directory / "out")});
  const Status told = hooks->after_apply(kFacts);
  ASSERT_TRUE(told) << told.error().message();
  // 0, 1, 2 and the one that ls has of the folder: nothing of ours.
  EXPECT_EQ(text_of(directory / "out"), "7 after_apply 7 /srv/we\"ights/b\n4\n");
}

TEST(Hooks, FailingMissingAndEndlessCommandsAreErrorsAndTheNextOneRuns) {
  const TempDirectory directory;
  const auto failing = hooks_of({"run /bin/false"});
  EXPECT_EQ(failing->after_apply(kFacts).error().code, ErrorCode::kBusy);
  EXPECT_EQ(hooks_of({"run /no/such/program"})->after_apply(kFacts).error().code, ErrorCode::kBusy);
  HookOptions options;
  options.before_apply = *parse_hook({"run /bin/sleep 1000"});
  options.after_apply = *parse_hook({"run /bin/true"});
  options.timeout = 200ms;
  const auto hooks = *Hooks::open(std::move(options));
  EXPECT_EQ(hooks->before_apply(kFacts).error().code, ErrorCode::kTimeout);
  EXPECT_TRUE(hooks->after_apply(kFacts));
}

}  // namespace
}  // namespace weft::apply
