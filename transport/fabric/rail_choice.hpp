// SPDX-License-Identifier: Apache-2.0
// Asks fi_getinfo for one named provider by the rules of docs/formats/fabric-wire.md, "Providers".
#pragma once

#include <rdma/fabric.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "transport/fabric/fabric_options.hpp"
#include "weft/base/result.hpp"

namespace weft::transport {

struct InfoDeleter {
  void operator()(fi_info* info) const { fi_freeinfo(info); }
};
using FabricInfo = std::unique_ptr<fi_info, InfoDeleter>;

// Tried in this order by provider "auto". Not shm: it hangs and crashes when a peer dies.
inline constexpr std::string_view kProviderOrder[] = {"efa", "verbs;ofi_rxm", "tcp", "net",
                                                      "tcp;ofi_rxm"};

// Before the first libfabric call of the process: no registration cache, no malloc hooks.
void prepare_environment();

// The information of `provider` on the pinned address or device. Errors: kConfig, saying why not.
Result<FabricInfo> find_provider(const FabricOptions& options, std::string_view provider);

// Names of the reliable-datagram providers that this host offers.
std::vector<std::string> list_providers();

// The own address of an entry as text, "" when it names none.
std::string readable_source(fid_av& peers, const fi_info& info);

// Whether a provider pins registered memory, which counts against RLIMIT_MEMLOCK.
bool pins_memory(std::string_view provider);
// `limit`: the soft limit; UINT64_MAX for none. Errors: kResourceLimit with need, have and the
// knob.
Status check_locked_memory(std::uint64_t need_bytes, std::uint64_t limit_bytes);
// This process's limit, UINT64_MAX when it is exempt.
std::uint64_t locked_memory_limit();

}  // namespace weft::transport
