// SPDX-License-Identifier: Apache-2.0
#include "transport/fabric/rail_choice.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <sys/resource.h>
#include <unistd.h>

#include "transport/fabric/local_address.hpp"
#include "weft/base/limits.hpp"

namespace weft::transport {
namespace {

constexpr std::uint32_t kEfaVersionMin = FI_VERSION(1, 18);

constexpr std::size_t kTransmitDepth = 256;

bool uses_ip_addresses(std::string_view provider) { return !provider.starts_with("efa"); }

// The newest interface level that this library has, capped at what was tried.
std::uint32_t interface_version() {
  return std::min<std::uint32_t>(fi_version(), FI_VERSION(1, 20));
}

FabricInfo make_hints(const FabricOptions& options, std::string_view provider) {
  FabricInfo hints(fi_allocinfo());
  if (hints == nullptr) return hints;
  hints->caps = FI_MSG | FI_RMA;
  hints->mode = FI_CONTEXT | FI_CONTEXT2;
  hints->ep_attr->type = FI_EP_RDM;
  hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
  hints->domain_attr->threading = FI_THREAD_DOMAIN;
  // Small queues: a provider may keep a bounce buffer of 16 KiB for each receive it promises.
  hints->tx_attr->size = kTransmitDepth;
  hints->rx_attr->size = options.control_receives;
  hints->fabric_attr->prov_name = strdup(std::string(provider).c_str());
  if (!options.device.empty()) hints->domain_attr->name = strdup(options.device.c_str());
  return hints;
}

// Why an entry does not do; empty when it does.
std::string objection(const fi_info& info, const FabricOptions& options,
                      std::string_view provider) {
  const char* const name = info.fabric_attr->prov_name;
  // Layered names are exact: 1.17 answers "tcp" with "tcp;ofi_rxm", which is another protocol.
  if (name == nullptr || name != provider) return "is offered only as another provider";
  if (info.domain_attr->cq_data_size < sizeof(std::uint32_t)) return "has no 32-bit immediate";
  if (info.ep_attr->max_msg_size < limits::kFabricControlBytesMax) return "has too small messages";
  const bool device_fits = options.device.empty() || (info.domain_attr->name != nullptr &&
                                                      options.device == info.domain_attr->name);
  return device_fits ? "" : "is not on device " + options.device;
}

struct Query {
  std::string node;
  std::string service;
  std::uint64_t flags = 0;
};

Result<FabricInfo> query_provider(const FabricOptions& options, std::string_view provider,
                                  const Query& query) {
  std::string why;
  // Level "domain" suits one thread per rail; providers without it take the stricter one.
  for (const fi_threading threading : {FI_THREAD_DOMAIN, FI_THREAD_SAFE}) {
    const FabricInfo hints = make_hints(options, provider);
    if (hints == nullptr) break;
    hints->domain_attr->threading = threading;
    fi_info* found = nullptr;
    const int result = fi_getinfo(
        interface_version(), query.node.empty() ? nullptr : query.node.c_str(),
        query.service.empty() ? nullptr : query.service.c_str(), query.flags, hints.get(), &found);
    const FabricInfo list(found);
    if (result != 0) {
      why = std::string("is not there: ") + fi_strerror(-result);
      continue;
    }
    for (const fi_info* entry = list.get(); entry != nullptr; entry = entry->next) {
      why = objection(*entry, options, provider);
      if (why.empty()) return FabricInfo(fi_dupinfo(entry));
    }
  }
  std::string place = query.node.empty() ? "" : " on " + query.node;
  if (!options.device.empty()) place += " device " + options.device;
  return failure(ErrorCode::kConfig, Stage::kOpen,
                 "fabric provider '" + std::string(provider) + "'" + place + " " + why);
}

}  // namespace

void prepare_environment() {
  static std::once_flag once;
  std::call_once(once, [] {
    // With the cache on, closing a registration on verbs revokes nothing.
    setenv("FI_MR_CACHE_MAX_COUNT", "0", 1);
    setenv("FI_MR_CACHE_MONITOR", "disabled", 1);
    // rxm keeps 70 MiB of bounce buffers otherwise; ours hold one control message. The operator's
    // own values stay.
    setenv("FI_OFI_RXM_BUFFER_SIZE", "8192", 0);
    setenv("FI_OFI_RXM_MSG_RX_SIZE", "64", 0);
    // rxm asks verbs for one completion queue with room for so many peers' queues; soft-RoCE grants
    // 32,767 entries, and with the default of 256 peers fi_enable fails without a reason.
    setenv("FI_UNIVERSE_SIZE", "128", 0);
  });
}

Result<FabricInfo> find_provider(const FabricOptions& options, std::string_view provider) {
  prepare_environment();
  if (provider.starts_with("efa") && fi_version() < kEfaVersionMin) {
    return failure(ErrorCode::kConfig, Stage::kOpen,
                   "fabric provider 'efa' needs libfabric 1.18 or newer, this is " +
                       std::to_string(FI_MAJOR(fi_version())) + "." +
                       std::to_string(FI_MINOR(fi_version())));
  }
  Query query;
  if (uses_ip_addresses(provider)) {
    WEFT_TRY(const LocalAddress local, choose_local_address(options, list_local_addresses()));
    query.node = local.address;
    query.flags = FI_SOURCE | FI_NUMERICHOST;
    if (options.port != 0) query.service = std::to_string(options.port);
  }
  return query_provider(options, provider, query);
}

std::vector<std::string> list_providers() {
  prepare_environment();
  std::vector<std::string> names;
  const FabricInfo hints(fi_allocinfo());
  if (hints == nullptr) return names;
  hints->ep_attr->type = FI_EP_RDM;
  hints->caps = FI_MSG | FI_RMA;
  hints->mode = FI_CONTEXT | FI_CONTEXT2;
  hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
  fi_info* found = nullptr;
  if (fi_getinfo(interface_version(), nullptr, nullptr, 0, hints.get(), &found) != 0) return names;
  const FabricInfo list(found);
  for (const fi_info* entry = list.get(); entry != nullptr; entry = entry->next) {
    const std::string name = entry->fabric_attr->prov_name;
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  return names;
}

std::string readable_source(fid_av& peers, const fi_info& info) {
  std::array<char, 256> text{};
  std::size_t length = text.size();
  if (info.src_addr == nullptr) return "";
  fi_av_straddr(&peers, info.src_addr, text.data(), &length);
  return text.data();
}

bool pins_memory(std::string_view provider) {
  return provider.starts_with("efa") || provider.starts_with("verbs");
}

Status check_locked_memory(std::uint64_t need_bytes, std::uint64_t limit_bytes) {
  const std::uint64_t need = need_bytes + need_bytes / 10;
  if (need <= limit_bytes) return ok();
  return failure(ErrorCode::kResourceLimit, Stage::kOpen,
                 "the fabric needs " + std::to_string(need) +
                     " bytes of locked memory, the limit is " + std::to_string(limit_bytes) +
                     ": raise RLIMIT_MEMLOCK (ulimit -l, LimitMEMLOCK= of systemd) or lower the "
                     "slot count");
}

std::uint64_t locked_memory_limit() {
  rlimit limit{};
  const bool exempt = geteuid() == 0;
  if (exempt || getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return UINT64_MAX;
  }
  return limit.rlim_cur;
}

}  // namespace weft::transport
