// SPDX-License-Identifier: Apache-2.0
#include "transport/fabric/local_address.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <memory>
#include <optional>
#include <string_view>

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <unistd.h>

namespace weft::transport {
namespace {

using AddressBytes = std::vector<std::uint8_t>;

std::optional<AddressBytes> parse_address(const std::string& text) {
  AddressBytes bytes(16);
  if (inet_pton(AF_INET, text.c_str(), bytes.data()) == 1) {
    bytes.resize(4);
    return bytes;
  }
  if (inet_pton(AF_INET6, text.c_str(), bytes.data()) == 1) return bytes;
  return std::nullopt;
}

bool is_bridge(std::string_view interface) {
  const std::string directory = "/sys/class/net/" + std::string(interface);
  if (access((directory + "/bridge").c_str(), F_OK) == 0) return true;
  for (const std::string_view prefix : {"docker", "br-", "virbr", "cni", "flannel", "lxc"}) {
    if (interface.starts_with(prefix)) return true;
  }
  return false;
}

std::optional<LocalAddress> describe(const ifaddrs& entry) {
  if (entry.ifa_addr == nullptr || (entry.ifa_flags & IFF_UP) == 0) return std::nullopt;
  LocalAddress found;
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (entry.ifa_addr->sa_family == AF_INET) {
    sockaddr_in address;
    std::memcpy(&address, entry.ifa_addr, sizeof(address));
    inet_ntop(AF_INET, &address.sin_addr, text.data(), text.size());
  } else if (entry.ifa_addr->sa_family == AF_INET6) {
    sockaddr_in6 address;
    std::memcpy(&address, entry.ifa_addr, sizeof(address));
    inet_ntop(AF_INET6, &address.sin6_addr, text.data(), text.size());
    found.ipv6 = true;
    found.link_local = IN6_IS_ADDR_LINKLOCAL(&address.sin6_addr);
  } else {
    return std::nullopt;
  }
  found.interface = entry.ifa_name;
  found.address = text.data();
  found.loopback = (entry.ifa_flags & IFF_LOOPBACK) != 0;
  found.bridge = is_bridge(found.interface);
  return found;
}

// "10.0.0.0/24"; none when it is no subnet.
struct Subnet {
  AddressBytes prefix;
  std::uint32_t bits = 0;

  static std::optional<Subnet> parse(const std::string& text) {
    const std::size_t slash = text.find('/');
    if (slash == std::string::npos) return std::nullopt;
    const auto prefix = parse_address(text.substr(0, slash));
    Subnet subnet;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data() + slash + 1, end, subnet.bits);
    if (!prefix || error != std::errc{} || stop != end || subnet.bits > prefix->size() * 8) {
      return std::nullopt;
    }
    subnet.prefix = *prefix;
    return subnet;
  }

  bool contains(const std::string& text) const {
    const auto address = parse_address(text);
    if (!address || address->size() != prefix.size()) return false;
    for (std::uint32_t bit = 0; bit < bits; ++bit) {
      const int mask = 0x80 >> (bit % 8);
      if (((*address)[bit / 8] & mask) != (prefix[bit / 8] & mask)) return false;
    }
    return true;
  }
};

Error no_such(const std::string& what, const std::vector<LocalAddress>& present) {
  std::string detail = what + "; this host has";
  for (const LocalAddress& entry : present) detail += " " + entry.interface + "=" + entry.address;
  if (present.empty()) detail += " no interface that is up";
  return failure(ErrorCode::kConfig, Stage::kOpen, detail);
}

// Lower is better.
int preference(const LocalAddress& entry) {
  return (entry.loopback ? 8 : 0) + (entry.link_local ? 16 : 0) + (entry.bridge ? 4 : 0) +
         (entry.ipv6 ? 1 : 0);
}

}  // namespace

std::vector<LocalAddress> list_local_addresses() {
  std::vector<LocalAddress> present;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return present;
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, freeifaddrs);
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (auto found = describe(*entry)) present.push_back(std::move(*found));
  }
  return present;
}

Result<LocalAddress> choose_local_address(const FabricOptions& options,
                                          const std::vector<LocalAddress>& present) {
  std::vector<LocalAddress> fitting = present;
  const auto keep = [&](auto&& fits) {
    fitting.erase(std::remove_if(fitting.begin(), fitting.end(),
                                 [&](const LocalAddress& entry) { return !fits(entry); }),
                  fitting.end());
  };
  std::string pin;
  if (!options.interface.empty()) {
    pin += " interface '" + options.interface + "'";
    keep([&](const LocalAddress& entry) { return entry.interface == options.interface; });
  }
  if (!options.address.empty()) {
    pin += " address '" + options.address + "'";
    const auto wanted = parse_address(options.address);
    keep([&](const LocalAddress& entry) {
      return wanted && parse_address(entry.address) == wanted;
    });
  }
  if (!options.subnet.empty()) {
    pin += " subnet '" + options.subnet + "'";
    const auto subnet = Subnet::parse(options.subnet);
    keep([&](const LocalAddress& entry) { return subnet && subnet->contains(entry.address); });
  }
  // Link-local addresses need a scope that a peer on another host cannot know.
  keep([&](const LocalAddress& entry) { return !entry.link_local; });
  const auto best = std::min_element(
      fitting.begin(), fitting.end(),
      [](const LocalAddress& a, const LocalAddress& b) { return preference(a) < preference(b); });
  if (best == fitting.end()) return no_such("no usable address for" + pin, present);
  return *best;
}

}  // namespace weft::transport
