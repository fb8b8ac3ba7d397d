// SPDX-License-Identifier: Apache-2.0
#include "transport/control/fleet_status.hpp"

namespace weft::transport {

std::string_view to_string(RefitPhase phase) {
  switch (phase) {
    case RefitPhase::kStreaming:
      return "streaming";
    case RefitPhase::kPreparing:
      return "preparing";
    case RefitPhase::kCommitting:
      return "committing";
    case RefitPhase::kAborting:
      return "aborting";
    case RefitPhase::kCommitted:
      return "committed";
    case RefitPhase::kAborted:
      return "aborted";
  }
  return "unknown";
}

}  // namespace weft::transport
