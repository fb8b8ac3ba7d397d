// SPDX-License-Identifier: Apache-2.0
// Which local IP address a rail binds to: never left open, since a provider's first choice may be a
// container bridge.
#pragma once

#include <string>
#include <vector>

#include "transport/fabric/fabric_options.hpp"
#include "weft/base/result.hpp"

namespace weft::transport {

// One address of one interface that is up.
struct LocalAddress {
  std::string interface = {};
  std::string address = {};  // numeric, without scope
  bool ipv6 = false;
  bool loopback = false;
  bool link_local = false;
  bool bridge = false;  // a bridge, or one end of a container's pair
};

// Every address of every interface that is up.
std::vector<LocalAddress> list_local_addresses();

// The one the options pin, or, without a pin: the first address of a plain interface, IPv4 before
// IPv6, loopback when there is nothing else. Errors: kConfig, naming what there is.
Result<LocalAddress> choose_local_address(const FabricOptions& options,
                                          const std::vector<LocalAddress>& present);

}  // namespace weft::transport
