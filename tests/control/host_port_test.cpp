// SPDX-License-Identifier: Apache-2.0
#include "transport/control/host_port.hpp"

#include <gtest/gtest.h>

namespace weft::transport {
namespace {

struct Accepted {
  const char* text;
  const char* host;
  int port;
};

TEST(HostPort, AcceptedFormsPrintAndParseBack) {
  for (const Accepted& c : {
           Accepted{"localhost:7443", "localhost", 7443},
           {"node-1.rack_2.example.com:1", "node-1.rack_2.example.com", 1},
           {"127.0.0.1:65535", "127.0.0.1", 65'535},
           {"0.0.0.0:9000", "0.0.0.0", 9000},
           {"[::1]:9000", "::1", 9000},
           {"[::]:9000", "::", 9000},
           {"[fe80::1%eth0]:9000", "fe80::1%eth0", 9000},
           {"[2001:db8::a:1]:443", "2001:db8::a:1", 443},
           {"1a:80", "1a", 80},
       }) {
    const auto parsed = parse_host_port(c.text);
    ASSERT_TRUE(parsed) << parsed.error().message();
    EXPECT_EQ(parsed->host, c.host);
    EXPECT_EQ(parsed->port, c.port);
    EXPECT_EQ(to_string(*parsed), c.text);
  }
}

TEST(HostPort, OtherFormsAreConfigErrorsThatQuoteTheText) {
  for (const char* text : {"",
                           "::1",
                           "[::1]",
                           "[::1",
                           "[[::1]]:9",
                           "[[::1]:9",
                           "[::1]]:9",
                           "[::1]9",
                           "::1:9000",
                           "fe80::1%eth0",
                           "fe80::1%eth0:1",
                           "host",
                           "host:",
                           ":9000",
                           "host:0",
                           "host:65536",
                           "host:-1",
                           "host:+1",
                           "host: 1",
                           " host:1",
                           "host:1 ",
                           "host:1x",
                           "host:99999999999999999999",
                           "[host]:1",
                           "[]:1",
                           "[1.2.3.4]:1",
                           "1.2.3:1",
                           "1.2.3.256:1",
                           "1.2.3.4.5:1",
                           "a..b:1",
                           ".a:1",
                           "a.:1",
                           "-a:1",
                           "ho st:1",
                           "host/x:1",
                           "http://host:1",
                           "[fe80::1%]:1",
                           "[fe80::1%a/b]:1",
                           "[fe80::1%aaaaaaaaaaaaaaaa]:1",
                           "1:1:1"}) {
    const auto parsed = parse_host_port(text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_EQ(parsed.error().code, ErrorCode::kConfig) << text;
    EXPECT_NE(parsed.error().detail.find("'" + std::string(text) + "'"), std::string::npos);
  }
}

TEST(HostPort, PortZeroIsForListeningOnly) {
  EXPECT_FALSE(parse_host_port("127.0.0.1:0"));
  const auto any = parse_host_port("127.0.0.1:0", PortZero::kAllow);
  ASSERT_TRUE(any);
  EXPECT_EQ(any->port, 0);
}

TEST(HostPort, LoopbackIsKnown) {
  for (const char* text : {"127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "localhost:1"}) {
    EXPECT_TRUE(parse_host_port(text)->is_loopback()) << text;
  }
  for (const char* text : {"0.0.0.0:1", "[::]:1", "128.0.0.1:1", "127.example.com:1"}) {
    EXPECT_FALSE(parse_host_port(text)->is_loopback()) << text;
  }
}

}  // namespace
}  // namespace weft::transport
