// SPDX-License-Identifier: Apache-2.0
// Which rail: a named provider or nothing, or the first of the order that works.
#include <chrono>
#include <cstring>

#include "transport/fabric/ofi_fabric.hpp"

namespace weft::transport {
namespace {

constexpr auto kCheckTimeout = std::chrono::seconds(3);
constexpr std::uint32_t kCheckImmediate = 0xA55A'00FF;
constexpr std::size_t kCheckBytes = 4096;

void report_choice(const FabricFacts& facts, const std::string& passed_over, EventSink& events) {
  const EventField fields[] = {{"provider", facts.provider},
                               {"protocol", std::to_string(facts.protocol)},
                               {"device", facts.device},
                               {"address", facts.address},
                               {"libfabric", facts.library_version},
                               {"writes_in_flight", std::to_string(facts.writes_in_flight_max)},
                               {"passed_over", passed_over}};
  events.report(Severity::kInfo, "fabric_opened", fields);
}

std::string name_providers() {
  std::string text;
  for (const std::string& name : list_providers()) text += (text.empty() ? "" : ", ") + name;
  return text.empty() ? "none" : text;
}

Result<std::unique_ptr<OfiFabric>> open_provider(const FabricOptions& options,
                                                 std::string_view provider) {
  WEFT_TRY(FabricInfo info, find_provider(options, provider));
  return OfiFabric::open(options, std::move(info));
}

// A rail is worth choosing when a second endpoint beside it can write to it.
Result<std::unique_ptr<OfiFabric>> open_checked(const FabricOptions& options,
                                                std::string_view provider) {
  WEFT_TRY(auto rail, open_provider(options, provider));
  FabricOptions beside = options;
  beside.port = 0;
  WEFT_TRY(auto second, open_provider(beside, provider));
  WEFT_TRY_STATUS(check_pair(*second, *rail));
  return rail;
}

}  // namespace

Status check_pair(Fabric& writer, Fabric& target) {
  std::vector<std::byte> pattern(kCheckBytes, std::byte{0x5A});
  std::vector<std::byte> room(kCheckBytes);
  WEFT_TRY(const auto local, writer.register_memory(pattern, MemoryAccess::kLocal));
  WEFT_TRY(const auto remote, target.register_memory(room, MemoryAccess::kRemoteWrite));
  WEFT_TRY(const auto to_target, writer.insert_peer(target.local_address()));
  WEFT_TRY(const auto to_writer, target.insert_peer(writer.local_address()));
  const RemoteOperation write{to_target,       local, pattern, target.remote_memory(remote),
                              kCheckImmediate, 1};
  bool posted = false;
  bool completed = false;
  bool rang = false;
  FabricEvent event;
  const auto deadline = std::chrono::steady_clock::now() + kCheckTimeout;
  while (!(completed && rang) && std::chrono::steady_clock::now() < deadline) {
    if (!posted) posted = writer.post_write(write) == Posted::kPosted;
    if (writer.poll({&event, 1}) == 1) completed |= event.kind == FabricEventKind::kCompleted;
    if (target.poll({&event, 1}) == 1) {
      rang |= event.kind == FabricEventKind::kDoorbell && event.immediate == kCheckImmediate;
    }
  }
  const bool arrived = completed && rang && room == pattern;
  target.unregister(remote);
  if (completed) writer.unregister(local);
  target.remove_peer(to_writer);
  if (arrived) return ok();
  writer.close();  // the write may still be under way: its memory ends with this call
  return failure(ErrorCode::kTimeout, Stage::kOpen,
                 "fabric self-check: a write with immediate from " + writer.facts().address +
                     " to " + target.facts().address + " did not arrive");
}

Result<std::unique_ptr<Fabric>> open_fabric(const FabricOptions& options, EventSink& events) {
  if (options.provider != "auto") {
    auto rail = open_provider(options, options.provider);
    if (!rail) {
      Error error = std::move(rail).error();
      error.detail += "; this host offers " + name_providers();
      return error;
    }
    report_choice((*rail)->facts(), "", events);
    return std::unique_ptr<Fabric>(*std::move(rail));
  }
  std::string passed_over;
  for (const std::string_view provider : kProviderOrder) {
    auto rail = open_checked(options, provider);
    if (rail) {
      report_choice((*rail)->facts(), passed_over, events);
      return std::unique_ptr<Fabric>(*std::move(rail));
    }
    // Out of memory is not a reason to take another provider behind the operator's back.
    if (rail.error().code == ErrorCode::kResourceLimit) return std::move(rail).error();
    passed_over += (passed_over.empty() ? "" : "; ") + rail.error().detail;
  }
  return failure(ErrorCode::kConfig, Stage::kOpen, "no fabric provider works here: " + passed_over);
}

}  // namespace weft::transport
