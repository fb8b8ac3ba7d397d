// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace weft::transport {

// Which rail to open. Empty interface, address, subnet and device: no preference, which is allowed
// only with a provider that passes the self-check.
struct FabricOptions {
  std::string provider = "auto";       // or a name as fi_info prints it: "tcp;ofi_rxm", "net", ...
  std::string interface = {};          // e.g. "eth0"
  std::string address = {};            // e.g. "10.0.0.7" or "::1"
  std::string subnet = {};             // e.g. "10.0.0.0/24"
  std::string device = {};             // libfabric domain name, e.g. "rdmap16s27"
  std::uint16_t port = 0;              // IP providers: fixed port, 0 for any
  std::uint32_t doorbells_max = 4096;  // slots that peers may write to at once: sizes the queue
  std::uint32_t control_receives = 64;
  std::uint32_t control_sends = 64;
  std::uint64_t pinned_bytes = 0;  // slab and ranges, for the RLIMIT_MEMLOCK check
};

}  // namespace weft::transport
