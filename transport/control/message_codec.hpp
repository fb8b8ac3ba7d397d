// SPDX-License-Identifier: Apache-2.0
// Control messages as bytes: the plain values of wire/messages.hpp to and from control.proto, field
// by field. Only this pair of files and control_server.cpp know the generated code.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "transport/control/fleet_status.hpp"
#include "weft/base/result.hpp"
#include "weft/wire/messages.hpp"

namespace weft::transport {

// The operator's word on a refit that is in doubt.
struct ResolveRequest {
  RefitId refit;
  bool commit = false;
  auto operator<=>(const ResolveRequest&) const = default;
};

// Texts longer than their bound are cut, and bytes that are no UTF-8 become '?': an error detail
// may quote a file name, and it must not make the whole message unreadable.
std::string encode(const wire::MemberMessage& message);
std::string encode(const wire::CoordinatorMessage& message);
std::string encode(const FleetStatus& status);
std::string encode(const ResolveRequest& request);

// Every length, count, enumerator and index is checked against base/limits before it is used.
// Errors: kProtocol, whatever the bytes are.
Result<wire::MemberMessage> decode_member_message(std::span<const std::byte> bytes);
Result<wire::CoordinatorMessage> decode_coordinator_message(std::span<const std::byte> bytes);
Result<ResolveRequest> decode_resolve_request(std::span<const std::byte> bytes);
Result<FleetStatus> decode_fleet_status(std::span<const std::byte> bytes);

// At most `bytes_max` bytes of `text`, valid UTF-8 whatever it was.
std::string clean_text(std::string_view text, std::size_t bytes_max);

}  // namespace weft::transport
