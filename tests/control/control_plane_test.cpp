// SPDX-License-Identifier: Apache-2.0
// Server and client over real loopback sockets.
#include <arpa/inet.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <random>
#include <string>
#include <thread>

#include "control/control_fixture.hpp"
#include "transport/control/message_codec.hpp"
#include "weft/base/limits.hpp"

namespace weft::transport {
namespace {

using tests::ControlTest;
using tests::Member;
using tests::sample_hello;

// A plain TCP connection to loopback, or -1.
int connect_plain(std::uint16_t port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) return fd;
  close(fd);
  return -1;
}

TEST_F(ControlTest, EveryMessageArrivesInBothDirections) {
  const auto server = serve(quick_server());
  const Member member = join(quick_client(server->address()), sample_hello());
  const SessionId session = seen_.wait_messages(1).messages[0].first;
  member.seen->wait_connected(1);
  for (const wire::MemberMessage& message : tests::sample_member_messages()) {
    if (std::holds_alternative<wire::Hello>(message)) continue;
    ASSERT_TRUE(member.client->send(message));
  }
  for (const wire::CoordinatorMessage& message : tests::sample_coordinator_messages()) {
    if (std::holds_alternative<wire::SessionRefused>(message)) continue;
    ASSERT_TRUE(server->send(session, message));
  }
  EXPECT_TRUE(member.seen->wait_for<wire::Plan>() == tests::sample_plan());
  member.seen->wait_for<wire::RefitOutcome>();
  const auto seen = seen_.wait([](const auto& s) { return s.count(7) >= 1; },
                               "the last of the member's messages");
  for (std::size_t alternative = 0; alternative < 8; ++alternative) {
    EXPECT_GE(seen.count(alternative), 1U) << alternative;
  }
}

TEST_F(ControlTest, HeartbeatsKeepAnIdleSessionAlive) {
  const auto server = serve(quick_server());
  const Member member = join(quick_client(server->address()), sample_hello());
  // Ten heartbeats each way at 100 ms with nothing lost in between.
  const std::size_t heartbeat = 8;
  const auto seen =
      seen_.wait([&](const auto& s) { return s.count(heartbeat) >= 20; }, "heartbeats");
  EXPECT_TRUE(seen.closed.empty());
  EXPECT_EQ(member.seen->wait_connected(1).connected, 1);
}

TEST_F(ControlTest, ClientComesBackAfterTheServerRestarts) {
  auto server = serve(quick_server());
  const HostPort address = server->address();
  const Member member = join(quick_client(address), sample_hello());
  const std::uint64_t first = seen_.wait_messages(1).messages[0].first.value;
  server.reset();
  EXPECT_EQ(member.seen->wait_disconnected(1).disconnected[0].code, ErrorCode::kPeerLost);
  EXPECT_FALSE(member.client->connected());
  EXPECT_EQ(member.client->send(wire::Heartbeat{}).error().code, ErrorCode::kPeerLost);
  ControlServerOptions options = quick_server();
  options.listen = address;  // the same port at once: no TIME_WAIT in the way
  server = serve(options);
  ASSERT_NE(server, nullptr);
  member.seen->wait_connected(2);
  seen_.wait([](const auto& s) { return s.count(0) >= 2; }, "a second Hello");
  EXPECT_GE(first, 1U);
}

TEST_F(ControlTest, ClientWaitsForAServerThatIsNotThereYet) {
  auto server = serve(quick_server());
  const HostPort address = server->address();
  server.reset();
  const Member member = join(quick_client(address), sample_hello());
  const auto seen = member.seen->wait_disconnected(2);
  EXPECT_EQ(seen.disconnected[0].code, ErrorCode::kPeerLost);
  EXPECT_NE(seen.disconnected[0].detail.find(to_string(address)), std::string::npos);
  ControlServerOptions options = quick_server();
  options.listen = address;
  server = serve(options);
  seen_.wait_messages(1);
}

TEST_F(ControlTest, RestartsFiftyTimesOnOnePort) {
  ControlServerOptions options = quick_server();
  for (int round = 0; round < 50; ++round) {
    const auto server = serve(options);
    ASSERT_NE(server, nullptr) << round;
    options.listen = server->address();
    const int fd = connect_plain(options.listen.port);
    EXPECT_GE(fd, 0);
    close(fd);
  }
}

TEST_F(ControlTest, TakenPortIsAConfigErrorThatNamesIt) {
  const auto server = serve(quick_server());
  ControlServerOptions options = quick_server();
  options.listen = server->address();
  const auto second = ControlServer::open(options, seen_, events_);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::kConfig);
  EXPECT_EQ(second.error().native, EADDRINUSE);
  EXPECT_NE(second.error().detail.find(to_string(options.listen)), std::string::npos);
}

TEST_F(ControlTest, AddressThatIsNotOursIsAConfigError) {
  ControlServerOptions options = quick_server();
  options.tls.insecure = true;
  options.listen = {"192.0.2.1", 0};
  const auto server = ControlServer::open(options, seen_, events_);
  ASSERT_FALSE(server);
  EXPECT_EQ(server.error().code, ErrorCode::kConfig);
}

TEST_F(ControlTest, PlaintextBeyondLoopbackMustBeAskedForByName) {
  ControlServerOptions options = quick_server();
  options.listen = {"0.0.0.0", 0};
  EXPECT_EQ(ControlServer::open(options, seen_, events_).error().code, ErrorCode::kConfig);
  options.tls.insecure = true;
  EXPECT_NE(serve(options), nullptr);
  tests::SeenByClient seen{std::nullopt};
  EXPECT_EQ(ControlClient::open(quick_client({"192.0.2.1", 1}), seen, events_).error().code,
            ErrorCode::kConfig);
}

TEST_F(ControlTest, WorksOverIpv6Loopback) {
  ControlServerOptions options = quick_server();
  options.listen = {"::1", 0};
  const auto server = serve(options);
  ASSERT_NE(server, nullptr);
  const Member member = join(quick_client(server->address()), sample_hello());
  seen_.wait_messages(1);
  EXPECT_TRUE(fetch_status({server->address(), {}}));
}

TEST_F(ControlTest, NewerProcessOfAMemberReplacesTheOlderForGood) {
  const auto server = serve(quick_server());
  const Member older = join(quick_client(server->address()), sample_hello("node", 1));
  const SessionId first = seen_.wait_messages(1).messages[0].first;
  const Member newer = join(quick_client(server->address()), sample_hello("node", 2));
  const auto seen = seen_.wait_closed(1);
  EXPECT_EQ(seen.closed[0].first, first);
  EXPECT_EQ(seen.closed[0].second.code, ErrorCode::kFenced);
  EXPECT_EQ(older.seen->wait_for<wire::SessionRefused>().cause.code, ErrorCode::kFenced);
  EXPECT_EQ(older.seen->wait_disconnected(1).disconnected[0].code, ErrorCode::kFenced);
  // Neither comes back: not the older, which was refused, nor the newer, which was never closed.
  seen_.wait([](const auto& s) { return s.count(8) >= 10; }, "heartbeats of the newer");
  EXPECT_EQ(seen_.now().closed.size(), 1U);
  EXPECT_EQ(server->session_count(), 1U);
}

TEST_F(ControlTest, SameProcessThatReconnectsIsNotRefused) {
  const auto server = serve(quick_server());
  const Member older = join(quick_client(server->address()), sample_hello("node", 1));
  seen_.wait_messages(1);
  const Member again = join(quick_client(server->address()), sample_hello("node", 1));
  const auto seen = seen_.wait_closed(1);
  EXPECT_EQ(seen.closed[0].second.code, ErrorCode::kPeerLost);
  again.client->close();
  older.client->close();
}

TEST_F(ControlTest, AgentAndProducerMayShareAName) {
  const auto server = serve(quick_server());
  wire::Hello producer = sample_hello("node", 2);
  producer.role = wire::Role::kProducer;
  const Member agent = join(quick_client(server->address()), sample_hello("node", 1));
  const Member publisher = join(quick_client(server->address()), producer);
  seen_.wait([](const auto& s) { return s.count(8) >= 20; }, "heartbeats");
  EXPECT_TRUE(seen_.now().closed.empty());
}

TEST_F(ControlTest, SilentMemberIsLostAfterTheConfiguredTime) {
  const auto server = serve(quick_server());
  ControlClientOptions options = quick_client(server->address());
  options.heartbeat_interval = std::chrono::hours(1);
  const Member member = join(options, sample_hello());
  const auto seen = seen_.wait_closed(1);
  EXPECT_EQ(seen.closed[0].second.code, ErrorCode::kPeerLost);
  EXPECT_NE(seen.closed[0].second.detail.find("silent for"), std::string::npos);
}

TEST_F(ControlTest, ClientLeavesACoordinatorThatIsSilent) {
  ControlServerOptions quiet = quick_server();
  quiet.heartbeat_interval = std::chrono::hours(1);
  const auto server = serve(quiet);
  const Member member = join(quick_client(server->address()), sample_hello());
  const auto seen = member.seen->wait_disconnected(1);
  EXPECT_EQ(seen.disconnected[0].code, ErrorCode::kPeerLost);
  EXPECT_NE(seen.disconnected[0].detail.find("silent for"), std::string::npos);
  member.seen->wait_connected(2);
}

TEST_F(ControlTest, SessionThatDoesNotStartWithHelloIsRefused) {
  const auto server = serve(quick_server());
  const Member member = join(quick_client(server->address()), std::nullopt);
  member.seen->wait_connected(1);
  ASSERT_TRUE(member.client->send(wire::DecisionQuery{}));
  EXPECT_EQ(member.seen->wait_for<wire::SessionRefused>().cause.code, ErrorCode::kProtocol);
  EXPECT_TRUE(seen_.now().messages.empty());
  EXPECT_TRUE(seen_.now().closed.empty());
}

TEST_F(ControlTest, SessionCannotChangeItsMember) {
  const auto server = serve(quick_server());
  const Member member = join(quick_client(server->address()), sample_hello("a"));
  seen_.wait_messages(1);
  ASSERT_TRUE(member.client->send(sample_hello("b")));
  EXPECT_EQ(seen_.wait_closed(1).closed[0].second.code, ErrorCode::kProtocol);
}

TEST_F(ControlTest, RefuseSendsWhatIsQueuedAndTheCause) {
  const auto server = serve(quick_server());
  const Member member = join(quick_client(server->address()), sample_hello());
  const SessionId session = seen_.wait_messages(1).messages[0].first;
  ASSERT_TRUE(server->send(session, tests::sample_plan()));
  server->refuse(session, {ErrorCode::kDenied, "wrong fleet"});
  member.seen->wait_for<wire::Plan>();
  EXPECT_EQ(member.seen->wait_for<wire::SessionRefused>().cause.detail, "wrong fleet");
  EXPECT_EQ(seen_.wait_closed(1).closed[0].second.code, ErrorCode::kDenied);
  EXPECT_EQ(member.seen->wait_disconnected(1).disconnected[0].code, ErrorCode::kDenied);
  EXPECT_EQ(server->send(session, wire::Heartbeat{}).error().code, ErrorCode::kPeerLost);
}

TEST_F(ControlTest, EndedSessionMayComeBack) {
  const auto server = serve(quick_server());
  const Member member = join(quick_client(server->address()), sample_hello());
  server->end(seen_.wait_messages(1).messages[0].first);
  seen_.wait_closed(1);
  member.seen->wait_connected(2);
}

TEST_F(ControlTest, TooLargeMessageIsRefusedWhereItIsSent) {
  const auto server = serve(quick_server());
  const Member member = join(quick_client(server->address()), sample_hello());
  const SessionId session = seen_.wait_messages(1).messages[0].first;
  wire::Plan plan = tests::sample_plan();
  plan.requests.resize(limits::kProducersMax, 7);
  plan.nodes.resize(10'000, plan.nodes[0]);
  EXPECT_EQ(server->send(session, plan).error().code, ErrorCode::kResourceLimit);
  wire::Hello hello = sample_hello();
  hello.endpoint.rails.resize(5000, hello.endpoint.rails[0]);
  EXPECT_EQ(member.client->send(hello).error().code, ErrorCode::kResourceLimit);
  EXPECT_TRUE(server->send(session, wire::Heartbeat{}));
}

TEST_F(ControlTest, SessionsBeyondTheCapAreTurnedAway) {
  ControlServerOptions options = quick_server();
  options.sessions_max = 1;
  const auto server = serve(options);
  const Member first = join(quick_client(server->address()), sample_hello("a"));
  seen_.wait_messages(1);
  const Member second = join(quick_client(server->address()), sample_hello("b"));
  EXPECT_EQ(second.seen->wait_disconnected(1).disconnected[0].code, ErrorCode::kResourceLimit);
  EXPECT_TRUE(seen_.now().closed.empty());
}

TEST_F(ControlTest, GarbageOnTheSocketDisturbsNobody) {
  const auto server = serve(quick_server());
  const Member member = join(quick_client(server->address()), sample_hello());
  seen_.wait_messages(1);
  std::mt19937_64 random(11);
  for (int round = 0; round < 20; ++round) {
    const int fd = connect_plain(server->address().port);
    ASSERT_GE(fd, 0);
    std::string bytes =
        round % 2 == 0 ? "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" : "GET / HTTP/1.1\r\n\r\n";
    for (int i = 0; i < 4096; ++i) bytes += static_cast<char>(random());
    static_cast<void>(::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL));
    close(fd);
  }
  const std::size_t before = seen_.now().count(8);
  seen_.wait([&](const auto& s) { return s.count(8) >= before + 5; }, "heartbeats after garbage");
  EXPECT_TRUE(seen_.now().closed.empty());
}

TEST_F(ControlTest, TenThousandHalfOpenConnectionsDisturbNobody) {
  rlimit files{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &files), 0);
  files.rlim_cur = files.rlim_max;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &files), 0);
  const int count = files.rlim_max > 25'000 ? 10'000 : static_cast<int>(files.rlim_max / 3);
  const auto server = serve(quick_server());
  const Member member = join(quick_client(server->address()), sample_hello("a"));
  seen_.wait_messages(1);
  std::vector<int> silent;
  for (int i = 0; i < count; ++i) silent.push_back(connect_plain(server->address().port));
  const Member late = join(quick_client(server->address()), sample_hello("b"));
  seen_.wait([](const auto& s) { return s.count(0) >= 2; }, "a Hello behind the silent ones");
  EXPECT_TRUE(seen_.now().closed.empty());
  for (const int fd : silent) close(fd);
}

TEST_F(ControlTest, StatusAnswersTheSnapshot) {
  const auto server = serve(quick_server());
  seen_.answer_.fleet = FleetId{{1, 2}};
  seen_.answer_.committed = tests::sample_content(3);
  seen_.answer_.members.push_back({"a", wire::Role::kAgent, wire::MemberState::kLagging,
                                   tests::sample_content(2), tests::sample_cause(), "", true, true,
                                   false, ProcessId{4}, 1, 2, 3, "",
                                   wire::ScrubReport{90'000, 3, 17, 4000, 1}});
  const auto status = fetch_status({server->address(), {}});
  ASSERT_TRUE(status) << status.error().message();
  EXPECT_TRUE(*status == seen_.answer_);
}

TEST_F(ControlTest, StatusOfFourThousandMembersFits) {
  const auto server = serve(quick_server());
  MemberStatus member;
  member.cause = wire::Cause{};
  member.cause->detail.assign(512, 'x');
  for (std::uint32_t i = 0; i < limits::kMembersMax; ++i) {
    member.id = "node-" + std::to_string(i);
    seen_.answer_.members.push_back(member);
  }
  const auto status = fetch_status({server->address(), {}});
  ASSERT_TRUE(status) << status.error().message();
  EXPECT_EQ(status->members.size(), limits::kMembersMax);
}

TEST_F(ControlTest, StatusWithoutACoordinatorIsPeerLostWithinItsDeadline) {
  auto server = serve(quick_server());
  const HostPort address = server->address();
  server.reset();
  const auto status = fetch_status({address, {}, std::chrono::milliseconds(2000)});
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kPeerLost);
}

TEST_F(ControlTest, ResolveCarriesTheRefitAndTheAnswer) {
  const auto server = serve(quick_server());
  EXPECT_TRUE(request_resolve({server->address(), {}}, tests::sample_refit(), true));
  const auto seen = seen_.now();
  ASSERT_EQ(seen.resolved.size(), 1U);
  EXPECT_EQ(seen.resolved[0], std::make_pair(tests::sample_refit(), true));
  seen_.resolve_answer_ = failure(ErrorCode::kInDoubt, Stage::kDecide, "the log says otherwise");
  const auto refused = request_resolve({server->address(), {}}, tests::sample_refit(), false);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInDoubt);
  EXPECT_NE(refused.error().detail.find("the log says otherwise"), std::string::npos);
}

TEST_F(ControlTest, CloseDeliversWhatWasQueuedAndEndsTheObserver) {
  const auto server = serve(quick_server());
  Member member = join(quick_client(server->address()), sample_hello());
  member.seen->wait_connected(1);
  seen_.wait_messages(1);
  ASSERT_TRUE(member.client->send(wire::Ack{tests::sample_refit(), {}, std::nullopt}));
  member.client->close(std::chrono::seconds(5));
  const auto seen = seen_.wait_closed(1);
  EXPECT_EQ(seen.count(5), 1U);
  EXPECT_TRUE(member.seen->wait_connected(1).disconnected.empty());
}

}  // namespace
}  // namespace weft::transport
