// SPDX-License-Identifier: Apache-2.0
// Values that the tests of the roles share, and a way to look for an action among many.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "codec/digest/digest_table.hpp"
#include "weft/base/clock.hpp"
#include "weft/base/ids.hpp"
#include "weft/wire/manifest.hpp"
#include "weft/wire/messages.hpp"

namespace weft::apply::testing {

inline const FleetId kFleet{{0xF1EE7, 1}};
inline const Epoch kEpoch{3, ProcessId{77}};
inline const Digest kSchema{{0x5C, 0}};
inline const Digest kLattice{{0x1A, 0}};

inline RefitId refit_id(std::uint32_t attempt) { return RefitId{kEpoch, attempt}; }

inline Digest part_digest(std::uint64_t content) { return Digest{{content, 0xDA}}; }
inline Digest root_digest(std::uint64_t content) {
  const std::vector<Digest> parts{part_digest(content)};
  return codec::fold_root(kSchema, kLattice, parts);
}
// Version and bytes go together: version 5 has the bytes that are called 5.
inline Content content(std::uint64_t version) {
  return Content{Version{version}, kLattice, root_digest(version)};
}

inline wire::Endpoint endpoint(const std::string& id, std::uint64_t process = 1) {
  wire::Endpoint endpoint;
  endpoint.member_id = id;
  endpoint.process = ProcessId{process};
  return endpoint;
}

inline TimePoint at(std::int64_t milliseconds) {
  return TimePoint(std::chrono::milliseconds(milliseconds + 1'000'000));
}

// The first alternative of this type among the actions; null: none.
template <typename Wanted, typename Action>
const Wanted* find(const std::vector<Action>& actions) {
  for (const Action& action : actions) {
    if (const auto* found = std::get_if<Wanted>(&action)) return found;
  }
  return nullptr;
}
// The first message of this type that is sent; null: none.
template <typename Message, typename Send, typename Action>
const Message* find_sent(const std::vector<Action>& actions) {
  for (const Action& action : actions) {
    const auto* send = std::get_if<Send>(&action);
    if (!send) continue;
    if (const auto* found = std::get_if<Message>(&send->message)) return found;
  }
  return nullptr;
}

}  // namespace weft::apply::testing
