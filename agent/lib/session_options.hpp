// SPDX-License-Identifier: Apache-2.0
// From a configuration's tables to what the transport is opened with: the same for agents and
// producers.
#pragma once

#include <string>

#include "agent/lib/config.hpp"
#include "transport/buffer/slab_pool.hpp"
#include "transport/control/control_client.hpp"
#include "transport/relay/relay.hpp"

namespace weft::agent {

transport::SlabOptions slab_options(const FabricConfig& fabric, const SlotsConfig& slots);
transport::RelayOptions relay_options(const FabricConfig& fabric, const SlotsConfig& slots,
                                      const std::string& member_id, ProcessId process);
transport::ControlClientOptions client_options(const ControlConfig& control,
                                               const transport::TlsOptions& tls,
                                               const transport::HostPort& coordinator);

}  // namespace weft::agent
