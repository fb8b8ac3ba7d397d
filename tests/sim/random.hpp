// SPDX-License-Identifier: Apache-2.0
// The one source of chance in a simulation: the same seed gives the same run on every machine.
#pragma once

#include <cstdint>

#include "weft/base/clock.hpp"

namespace weft::sim {

// SplitMix64.
// Threads: one at a time.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 0x9E37'79B9'7F4A'7C15ULL + 1) {}

  std::uint64_t next() {
    state_ += 0x9E37'79B9'7F4A'7C15ULL;
    std::uint64_t mixed = state_;
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58'476D'1CE4'E5B9ULL;
    mixed = (mixed ^ (mixed >> 27)) * 0x94D0'49BB'1331'11EBULL;
    return mixed ^ (mixed >> 31);
  }
  // In [0, bound); bound is not 0.
  std::uint64_t below(std::uint64_t bound) { return next() % bound; }
  // In [low, high].
  std::uint64_t between(std::uint64_t low, std::uint64_t high) {
    return low + below(high - low + 1);
  }
  bool chance(double probability) {
    return static_cast<double>(next() >> 11) * 0x1.0p-53 < probability;
  }
  Duration millis(std::uint64_t low, std::uint64_t high) {
    return std::chrono::microseconds(between(low * 1000, high * 1000));
  }

 private:
  std::uint64_t state_;
};

}  // namespace weft::sim
