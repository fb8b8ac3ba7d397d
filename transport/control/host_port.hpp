// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "weft/base/result.hpp"

namespace weft::transport {

// An address to listen on or to connect to. The one parser for all of them: `name:port`,
// `1.2.3.4:port`, `[v6]:port`, `[fe80::1%eth0]:port`; an IPv6 literal without brackets is refused,
// because its last group would be read as a port.
struct HostPort {
  std::string host;  // without brackets
  std::uint16_t port = 0;

  bool is_ipv6() const { return host.find(':') != std::string::npos; }
  bool is_ipv4() const;
  // 127.0.0.0/8, ::1 or the name "localhost".
  bool is_loopback() const;
  auto operator<=>(const HostPort&) const = default;
};

enum class PortZero : std::uint8_t { kRefuse, kAllow };  // 0: "any free port", to listen on only

// Errors: kConfig, with the text and what a right one looks like.
Result<HostPort> parse_host_port(std::string_view text, PortZero zero = PortZero::kRefuse);

// Parses to the same value again.
std::string to_string(const HostPort& address);

}  // namespace weft::transport
