// SPDX-License-Identifier: Apache-2.0
// Named places where a test ends this process as a crash would, or damages a frame as a faulty
// encoder would. Without the environment variables each costs one comparison with an empty string.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "weft/base/lease.hpp"
#include "weft/wire/messages.hpp"

namespace weft::agent {

// SIGKILL to this process if WEFT_TEST_KILL_AT is `name`.
void kill_point(std::string_view name);
// Behind a publisher's message that changes what others do: publisher.after_begin, .after_seal.
void sent_point(const wire::MemberMessage& message);
// When a publisher hears it and before it does anything about it: publisher.decision.
void heard_point(const wire::CoordinatorMessage& message);

// The sequence number of the frame that a test wants damaged (WEFT_TEST_CORRUPT_FRAME).
std::optional<std::uint32_t> corrupt_frame_point();
// The same for a relay that spoils what it has received (WEFT_TEST_SPOIL_FRAME).
std::optional<std::uint32_t> spoil_frame_point();
// Wrong payload under a checksum that holds.
void damage_frame(const SharedSlot& slot);

}  // namespace weft::agent
