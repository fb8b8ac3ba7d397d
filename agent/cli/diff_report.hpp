// SPDX-License-Identifier: Apache-2.0
// What `weft diff` found, and the three ways to say it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "agent/cli/options.hpp"
#include "codec/flow/encode_flow.hpp"
#include "codec/safetensors/schema.hpp"
#include "weft/base/ids.hpp"

namespace weft::cli {

// Threads: a value; one at a time.
struct Difference {
  codec::Schema schema;
  codec::EncodeSummary encoded;
  std::vector<std::optional<double>> bound_bits;  // by tensor; docs/conditional-bound.md
  Digest base_root;
  Digest target_root;
  std::uint64_t file_bytes = 0;
};

// For people: the total, then the largest tensors.
std::string as_text(const Difference& difference, const DiffOptions& options);
// docs/json.md.
std::string as_json(const Difference& difference, const DiffOptions& options);
// docs/json.md: a line of names, one line per tensor, a last line for the total.
std::string as_csv(const Difference& difference);

}  // namespace weft::cli
