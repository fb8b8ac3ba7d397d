// SPDX-License-Identifier: Apache-2.0
// What a relay shape is called, and where each rank hangs in it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "weft/base/result.hpp"

namespace weft::transport {

enum class ShapeKind : std::uint8_t {
  kKary = 1,  // star and chain too
  kBinomial = 2,
  kPipeline = 3,
  kStriped = 4,
  kRegional = 5,
  kAuto = 6,
};

// A parsed shape. `inner` and `outer` are the texts within regional(inner, outer).
struct Shape {
  ShapeKind kind = ShapeKind::kKary;
  std::uint32_t degree = 1;  // kKary, kStriped
  bool star = false;
  std::string inner;
  std::string outer;
};

inline constexpr std::uint32_t kStripesMax = 16;

// Errors: kConfig, naming what there is.
Result<Shape> parse_shape(std::string_view text);

// How many trees one producer's frames take in turn over so many agents.
std::uint32_t stripe_count(const Shape& shape, std::uint32_t agent_count);

// Rank 0 is the root, 1..agent_count the agents. The parent of `rank` in a stripe's tree. Not for
// kRegional and kAuto.
std::uint32_t parent_rank(const Shape& shape, std::uint32_t stripe, std::uint32_t rank,
                          std::uint32_t agent_count);

}  // namespace weft::transport
