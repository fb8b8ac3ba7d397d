// SPDX-License-Identifier: Apache-2.0
#include "agent/lib/session_options.hpp"

namespace weft::agent {

transport::SlabOptions slab_options(const FabricConfig& fabric, const SlotsConfig& slots) {
  transport::SlabOptions options;
  options.slot_count = slots.count;
  if (fabric.numa_node >= 0) options.numa_node = static_cast<std::uint32_t>(fabric.numa_node);
  return options;
}

transport::RelayOptions relay_options(const FabricConfig& fabric, const SlotsConfig& slots,
                                      const std::string& member_id, ProcessId process) {
  transport::RelayOptions options;
  options.member_id = member_id;
  options.process = process;
  options.fabric.provider = fabric.provider;
  options.fabric.interface = fabric.interface;
  options.fabric.address = fabric.address;
  options.fabric.port = fabric.port;
  options.times.heartbeat = fabric.heartbeat_interval;
  options.times.lost = fabric.lost_after;
  options.send_reserve = slots.send_reserve;
  options.low_percent = slots.low_percent;
  return options;
}

transport::ControlClientOptions client_options(const ControlConfig& control,
                                               const transport::TlsOptions& tls,
                                               const transport::HostPort& coordinator) {
  transport::ControlClientOptions options;
  options.coordinator = coordinator;
  options.tls = tls;
  options.connect_timeout = control.connect_timeout;
  options.heartbeat_interval = control.heartbeat_interval;
  options.lost_after = control.lost_after;
  options.backoff_max = control.backoff_max;
  return options;
}

}  // namespace weft::agent
