// SPDX-License-Identifier: Apache-2.0
// Observers that keep what they are told, and servers and clients on real loopback sockets.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "control/sample_messages.hpp"
#include "transport/control/control_client.hpp"
#include "transport/control/control_server.hpp"
#include "weft/base/guarded.hpp"

namespace weft::tests {

inline constexpr std::chrono::seconds kPatience{20};  // of a test, for what must happen

// Threads: any.
class SeenByServer final : public transport::ControlServerObserver {
 public:
  struct Seen {
    std::vector<std::pair<transport::SessionId, wire::MemberMessage>> messages;
    std::vector<std::pair<transport::SessionId, Error>> closed;
    std::vector<std::pair<RefitId, bool>> resolved;

    std::size_t count(std::size_t alternative) const {
      std::size_t found = 0;
      for (const auto& [session, message] : messages) found += message.index() == alternative;
      return found;
    }
  };

  void on_message(transport::SessionId session, wire::MemberMessage message) override {
    seen_.update([&](Seen& seen) { seen.messages.emplace_back(session, std::move(message)); });
  }
  void on_closed(transport::SessionId session, Error reason) override {
    seen_.update([&](Seen& seen) { seen.closed.emplace_back(session, std::move(reason)); });
  }
  transport::FleetStatus status() override { return answer_; }
  void on_resolve(RefitId refit, bool commit, ResolveReply reply) override {
    seen_.update([&](Seen& seen) { seen.resolved.emplace_back(refit, commit); });
    reply(resolve_answer_);
  }

  // What was seen when `ready` held, or at the end of the patience (the test then fails).
  Seen wait(const std::function<bool(const Seen&)>& ready, const char* what) {
    return seen_.wait_for(kPatience, ready, [&](Seen& seen, bool was_ready) {
      EXPECT_TRUE(was_ready) << "never seen: " << what;
      return seen;
    });
  }
  Seen now() {
    return seen_.with([](Seen& seen) { return seen; });
  }
  Seen wait_messages(std::size_t count) {
    return wait([=](const Seen& s) { return s.messages.size() >= count; }, "messages");
  }
  Seen wait_closed(std::size_t count) {
    return wait([=](const Seen& s) { return s.closed.size() >= count; }, "closed sessions");
  }

  transport::FleetStatus answer_;
  Status resolve_answer_;

 private:
  Guarded<Seen> seen_;
};

// Says `hello` at every connect.
// Threads: any.
class SeenByClient final : public transport::ControlClientObserver {
 public:
  struct Seen {
    int connected = 0;
    std::vector<wire::CoordinatorMessage> messages;
    std::vector<Error> disconnected;
  };

  explicit SeenByClient(std::optional<wire::Hello> hello) : hello_(std::move(hello)) {}

  // The first connect may come before open() has returned the client: then this says Hello. Saying
  // it twice has no second effect.
  void attach(transport::ControlClient* client) {
    client_ = client;
    if (client->connected()) say_hello();
  }

  void on_connected() override {
    say_hello();
    seen_.update([](Seen& seen) { ++seen.connected; });
  }
  void on_message(wire::CoordinatorMessage message) override {
    seen_.update([&](Seen& seen) { seen.messages.push_back(std::move(message)); });
  }
  void on_disconnected(Error reason) override {
    seen_.update([&](Seen& seen) { seen.disconnected.push_back(std::move(reason)); });
  }

  Seen wait(const std::function<bool(const Seen&)>& ready, const char* what) {
    return seen_.wait_for(kPatience, ready, [&](Seen& seen, bool was_ready) {
      EXPECT_TRUE(was_ready) << "never seen: " << what;
      return seen;
    });
  }
  Seen wait_connected(int count) {
    return wait([=](const Seen& s) { return s.connected >= count; }, "connect");
  }
  Seen wait_disconnected(std::size_t count) {
    return wait([=](const Seen& s) { return s.disconnected.size() >= count; }, "disconnect");
  }
  template <typename Message>
  Message wait_for() {
    const Seen seen = wait(
        [](const Seen& s) {
          for (const auto& m : s.messages) {
            if (std::holds_alternative<Message>(m)) return true;
          }
          return false;
        },
        "a message of a type");
    for (const auto& m : seen.messages) {
      if (const auto* found = std::get_if<Message>(&m)) return *found;
    }
    return {};
  }

 private:
  void say_hello() {
    transport::ControlClient* const client = client_.load();
    if (!hello_ || client == nullptr) return;
    const Status sent = client->send(*hello_);
    EXPECT_TRUE(sent || sent.error().code == ErrorCode::kPeerLost) << sent.error().message();
  }

  std::atomic<transport::ControlClient*> client_{nullptr};
  std::optional<wire::Hello> hello_;
  Guarded<Seen> seen_;
};

// A client and what it saw.
struct Member {
  std::unique_ptr<SeenByClient> seen;
  std::unique_ptr<transport::ControlClient> client;
};

// Threads: one at a time.
class ControlTest : public ::testing::Test {
 protected:
  static transport::ControlServerOptions quick_server() {
    transport::ControlServerOptions options;
    options.listen = {"127.0.0.1", 0};
    options.heartbeat_interval = std::chrono::milliseconds(100);
    options.lost_after = std::chrono::milliseconds(1500);
    return options;
  }
  static transport::ControlClientOptions quick_client(const transport::HostPort& address) {
    transport::ControlClientOptions options;
    options.coordinator = address;
    options.heartbeat_interval = std::chrono::milliseconds(100);
    options.lost_after = std::chrono::milliseconds(1500);
    options.backoff_first = std::chrono::milliseconds(20);
    options.backoff_max = std::chrono::milliseconds(200);
    options.jitter_seed = 1;
    return options;
  }

  std::unique_ptr<transport::ControlServer> serve(const transport::ControlServerOptions& options) {
    auto server = transport::ControlServer::open(options, seen_, events_);
    if (!server) {
      ADD_FAILURE() << server.error().message();
      return nullptr;
    }
    return *std::move(server);
  }

  Member join(const transport::ControlClientOptions& options, std::optional<wire::Hello> hello) {
    Member member{std::make_unique<SeenByClient>(std::move(hello)), nullptr};
    auto client = transport::ControlClient::open(options, *member.seen, events_);
    if (!client) {
      ADD_FAILURE() << client.error().message();
      return member;
    }
    member.client = *std::move(client);
    member.seen->attach(member.client.get());
    return member;
  }

  NullEventSink events_;
  SeenByServer seen_;
};

}  // namespace weft::tests
