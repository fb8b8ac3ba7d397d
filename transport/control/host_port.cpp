// SPDX-License-Identifier: Apache-2.0
#include "transport/control/host_port.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>
#include <optional>

namespace weft::transport {
namespace {

constexpr std::size_t kHostBytesMax = 253;  // RFC 1035
constexpr std::size_t kZoneBytesMax = 15;   // IFNAMSIZ - 1

bool is_letter_or_digit(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

bool is_v4(const std::string& host) {
  in_addr address{};
  return inet_pton(AF_INET, host.c_str(), &address) == 1;
}

// With an optional zone: "fe80::1%eth0".
bool is_v6(const std::string& host) {
  const std::size_t percent = host.find('%');
  if (percent != std::string::npos) {
    const std::string_view zone = std::string_view(host).substr(percent + 1);
    const bool clean = std::all_of(zone.begin(), zone.end(), [](char c) {
      return is_letter_or_digit(c) || c == '-' || c == '_' || c == '.';
    });
    if (zone.empty() || zone.size() > kZoneBytesMax || !clean) return false;
  }
  in6_addr address{};
  return inet_pton(AF_INET6, host.substr(0, percent).c_str(), &address) == 1;
}

// A DNS name: labels of letters, digits, '-' and '_', not all of it digits and dots (that would be
// a broken IPv4 address).
bool is_name(std::string_view host) {
  if (host.empty() || host.size() > kHostBytesMax) return false;
  bool label_open = false;
  bool letter_seen = false;
  for (const char c : host) {
    if (c == '.') {
      if (!label_open) return false;
      label_open = false;
    } else if (is_letter_or_digit(c) || c == '_' || (c == '-' && label_open)) {
      label_open = true;
      letter_seen = letter_seen || !(c >= '0' && c <= '9');
    } else {
      return false;
    }
  }
  return label_open && letter_seen;
}

std::optional<std::uint16_t> parse_port(std::string_view text) {
  const bool digits_only =
      std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (text.empty() || text.size() > 5 || !digits_only) return std::nullopt;
  unsigned value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  if (value > 65'535) return std::nullopt;
  return static_cast<std::uint16_t>(value);
}

}  // namespace

bool HostPort::is_ipv4() const { return is_v4(host); }

bool HostPort::is_loopback() const {
  return host == "localhost" || host == "::1" || (is_v4(host) && host.starts_with("127."));
}

Result<HostPort> parse_host_port(std::string_view text, PortZero zero) {
  const auto wrong = [&](const std::string& why) {
    return failure(ErrorCode::kConfig, Stage::kConfig,
                   "address '" + std::string(text) + "': " + why +
                       " (expected name:port, 192.0.2.1:port or [2001:db8::1]:port)");
  };
  std::string host;
  std::string_view port_text;
  if (text.starts_with('[')) {
    const std::size_t end = text.find(']');
    if (end == std::string_view::npos) return wrong("']' is missing");
    host = std::string(text.substr(1, end - 1));
    if (!is_v6(host)) return wrong("no IPv6 address within the brackets");
    if (end + 1 >= text.size() || text[end + 1] != ':') return wrong("the port is missing");
    port_text = text.substr(end + 2);
  } else {
    const std::size_t colon = text.rfind(':');
    if (colon == std::string_view::npos) return wrong("the port is missing");
    host = std::string(text.substr(0, colon));
    port_text = text.substr(colon + 1);
    if (host.find(':') != std::string::npos) return wrong("an IPv6 address needs brackets");
    if (!is_v4(host) && !is_name(host)) return wrong("no host name or address before the port");
  }
  const auto port = parse_port(port_text);
  if (!port) return wrong("the port is not a number from 1 to 65535");
  if (*port == 0 && zero == PortZero::kRefuse) return wrong("port 0 is only for listening");
  return HostPort{std::move(host), *port};
}

std::string to_string(const HostPort& address) {
  const std::string port = ":" + std::to_string(address.port);
  return address.is_ipv6() ? "[" + address.host + "]" + port : address.host + port;
}

}  // namespace weft::transport
