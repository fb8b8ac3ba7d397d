// SPDX-License-Identifier: Apache-2.0
// What one link of a relay is now: for status pages.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "weft/base/ids.hpp"

namespace weft::transport {

// Of one tree of an open refit. From a parent: frames come; to a child: frames go.
struct LinkStatus {
  RefitId refit;
  std::uint32_t tree = 0;
  ProducerIndex producer;
  std::string member_id;  // of the other side
  bool from_parent = false;
  std::string_view phase;     // waiting (for its turn), connecting, open, closing, ended
  bool suspect = false;       // silent for longer than it should be
  bool demoted = false;       // a child that reads from spools at its own pace
  std::uint32_t slots = 0;    // of the receiving side's range: the link's width
  std::uint32_t credits = 0;  // of these, granted and not used
  std::uint32_t waiting = 0;  // to a child: frames that it has not taken
  std::uint32_t demotions = 0;
  std::uint64_t frames = 0;  // taken from the parent; written to the child, repetitions included
  std::uint64_t bytes = 0;
};

}  // namespace weft::transport
