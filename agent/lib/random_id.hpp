// SPDX-License-Identifier: Apache-2.0
// Identities from the kernel's random numbers; never zero.
#pragma once

#include <sys/random.h>

#include "weft/base/assert.hpp"
#include "weft/base/ids.hpp"

namespace weft::agent {

inline std::uint64_t random_u64() {
  std::uint64_t value = 0;
  // For so few bytes it neither fails nor comes back short once the kernel has booted.
  while (value == 0) WEFT_ASSERT(getrandom(&value, sizeof(value), 0) == sizeof(value));
  return value;
}

inline ProcessId random_process_id() { return ProcessId{random_u64()}; }
inline FleetId random_fleet_id() { return FleetId{{random_u64(), random_u64()}}; }

}  // namespace weft::agent
