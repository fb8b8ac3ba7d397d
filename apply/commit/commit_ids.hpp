// SPDX-License-Identifier: Apache-2.0
// Names that the step machines and whoever carries out their actions share.
#pragma once

#include <compare>
#include <cstdint>

#include "weft/base/ids.hpp"

namespace weft::apply {

// One control connection, numbered by the roof: never used twice in a process, and a later
// connection has a higher number. 0 names none.
struct SessionId {
  std::uint64_t value = 0;
  auto operator<=>(const SessionId&) const = default;
};

// One AppendRecord or RewriteLog action; its completion carries the same token.
struct LogToken {
  std::uint64_t value = 0;
  auto operator<=>(const LogToken&) const = default;
};

// The kernel's boot id (/proc/sys/kernel/random/boot_id) as 128 bits.
struct BootId : Bits128 {
  auto operator<=>(const BootId&) const = default;
};

}  // namespace weft::apply
