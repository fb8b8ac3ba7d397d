// SPDX-License-Identifier: Apache-2.0
// Mutual TLS with certificates that the test makes with openssl.
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "control/control_fixture.hpp"
#include "support/temp_directory.hpp"

namespace weft::transport {
namespace {

using tests::Member;
using tests::sample_hello;

// An authority and certificates signed by it, in files.
// Threads: one at a time.
class ControlTlsTest : public tests::ControlTest {
 protected:
  std::string path(const std::string& name) const { return directory_ / name; }

  void run(const std::string& command) const {
    const std::string quiet = "cd '" + directory_.path() + "' && " + command + " >openssl.log 2>&1";
    ASSERT_EQ(std::system(quiet.c_str()), 0) << command << " (is openssl installed?)";
  }

  void make_authority(const std::string& name) const {
    run("openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 "
        "-subj '/CN=" +
        name + "' -keyout " + name + ".key -out " + name + ".pem");
  }

  void make_certificate(const std::string& name, const std::string& authority) const {
    std::ofstream(path(name + ".ext")) << "subjectAltName=IP:127.0.0.1,DNS:coordinator\n";
    run("openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj '/CN=" + name +
        "' -keyout " + name + ".key -out " + name + ".csr");
    run("openssl x509 -req -days 2 -in " + name + ".csr -CA " + authority + ".pem -CAkey " +
        authority + ".key -CAcreateserial -extfile " + name + ".ext -out " + name + ".pem");
  }

  TlsOptions files(const std::string& name, const std::string& authority) const {
    TlsOptions tls;
    tls.certificate_file = path(name + ".pem");
    tls.key_file = path(name + ".key");
    tls.authority_file = path(authority + ".pem");
    return tls;
  }

  void SetUp() override {
    make_authority("fleet");
    make_certificate("server", "fleet");
    make_certificate("member", "fleet");
  }

  ControlServerOptions server_options() const {
    ControlServerOptions options = quick_server();
    options.tls = files("server", "fleet");
    return options;
  }

  test_support::TempDirectory directory_;
};

TEST_F(ControlTlsTest, MembersOfTheSameAuthorityAreLetIn) {
  const auto server = serve(server_options());
  ASSERT_NE(server, nullptr);
  ControlClientOptions options = quick_client(server->address());
  options.tls = files("member", "fleet");
  const Member member = join(options, sample_hello());
  seen_.wait_messages(1);
  EXPECT_TRUE(fetch_status({server->address(), options.tls}));
}

TEST_F(ControlTlsTest, StrangersAreNot) {
  make_authority("other");
  make_certificate("stranger", "other");
  const auto server = serve(server_options());
  ASSERT_NE(server, nullptr);
  ControlClientOptions options = quick_client(server->address());
  // Trusts our authority, but shows a certificate of another one.
  options.tls = files("stranger", "other");
  options.tls.authority_file = path("fleet.pem");
  const Member stranger = join(options, sample_hello());
  stranger.seen->wait_disconnected(2);
  // Nor without a certificate, nor without TLS.
  ControlClientOptions plain = quick_client(server->address());
  const Member plaintext = join(plain, sample_hello());
  plaintext.seen->wait_disconnected(2);
  EXPECT_FALSE(fetch_status({server->address(), {}, std::chrono::milliseconds(3000)}));
  EXPECT_TRUE(seen_.now().messages.empty());
}

TEST_F(ControlTlsTest, AFalseCoordinatorIsRefusedByTheMember) {
  make_authority("other");
  make_certificate("impostor", "other");
  ControlServerOptions options = quick_server();
  options.tls = files("impostor", "other");
  options.tls.authority_file = path("fleet.pem");
  const auto server = serve(options);
  ASSERT_NE(server, nullptr);
  ControlClientOptions client = quick_client(server->address());
  client.tls = files("member", "fleet");
  const Member member = join(client, sample_hello());
  member.seen->wait_disconnected(2);
  EXPECT_TRUE(seen_.now().messages.empty());
}

TEST_F(ControlTlsTest, ServerNameReplacesTheHostInTheCheck) {
  const auto server = serve(server_options());
  ASSERT_NE(server, nullptr);
  TlsOptions tls = files("member", "fleet");
  tls.server_name = "coordinator";
  EXPECT_TRUE(fetch_status({server->address(), tls}));
  tls.server_name = "somebody-else";
  EXPECT_FALSE(fetch_status({server->address(), tls, std::chrono::milliseconds(3000)}));
}

TEST_F(ControlTlsTest, RenewedFilesAreUsedWithoutARestart) {
  const auto server = serve(server_options());
  ASSERT_NE(server, nullptr);
  const TlsOptions tls = files("member", "fleet");
  ASSERT_TRUE(fetch_status({server->address(), tls}));
  // A new authority and new certificates under the old names.
  make_authority("fleet");
  make_certificate("server", "fleet");
  make_certificate("member", "fleet");
  ControlClientOptions options = quick_client(server->address());
  options.tls = tls;
  const Member member = join(options, sample_hello());
  seen_.wait_messages(1);
}

TEST_F(ControlTlsTest, MissingAndEmptyFilesAreConfigErrorsThatNameTheSetting) {
  ControlServerOptions options = server_options();
  options.tls.key_file = path("nothing.key");
  const auto missing = ControlServer::open(options, seen_, events_);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::kConfig);
  EXPECT_NE(missing.error().detail.find("tls.key"), std::string::npos);
  std::ofstream(path("empty.pem")) << "\n";
  options = server_options();
  options.tls.certificate_file = path("empty.pem");
  EXPECT_EQ(ControlServer::open(options, seen_, events_).error().code, ErrorCode::kConfig);
  ControlClientOptions client = quick_client({"127.0.0.1", 1});
  client.tls = files("member", "fleet");
  client.tls.authority_file.clear();
  tests::SeenByClient seen{std::nullopt};
  EXPECT_EQ(ControlClient::open(client, seen, events_).error().code, ErrorCode::kConfig);
}

}  // namespace
}  // namespace weft::transport
