// SPDX-License-Identifier: Apache-2.0
// What the changes of one chunk look like: the counts from which the chooser computes every cost.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "codec/kernels/kernel_set.hpp"
#include "codec/safetensors/dtype.hpp"

namespace weft::codec {

// A step is new - old on the bit pattern, modulo the word; an exception is a step other than +1 and
// -1, and its magnitude |step| - 2.
// Threads: a value; one at a time.
struct ChangeStats {
  std::uint32_t element_count = 0;
  std::uint32_t changed_count = 0;
  std::uint32_t exception_count = 0;
  double share = 1;  // of the chunk: what is counted here is all of it, or a sample
  std::array<std::uint32_t, 65> magnitude_widths{};  // exceptions by bit width of the magnitude
  std::array<std::uint32_t, 65> mask_widths{};       // changes by bit width of old XOR new, less 1
  // Formats with an exponent field only, by old exponent.
  std::array<std::uint32_t, 256> changed{};
  std::array<std::uint32_t, 256> exceptions{};
  std::array<std::uint64_t, 256> magnitude_sums{};  // each magnitude counted up to 4095
  std::array<double, 256> elements{};               // estimated from a sample
};

inline constexpr std::uint64_t kMagnitudeSumCap = 4095;

// Where the changes are, and room for what is found about them.
// Threads: one at a time.
struct ChangeLists {
  const std::uint32_t* positions;  // changed_count of them, ascending
  std::uint32_t changed_count;
  std::uint8_t* flags;        // one per position
  std::uint32_t* exceptions;  // room for changed_count + 1
};

// Fills everything but `elements`, and the flags of each position; mask_widths only if asked.
void gather_changes(std::span<const std::byte> old_bytes, std::span<const std::byte> new_bytes,
                    const ElementFormat& format, const ChangeLists& lists, bool with_masks,
                    ChangeStats& stats);

// Fills `elements`: every element of a small chunk, one block of 64 in 64 of a large one. Exponents
// at which something changed count at least as often as they changed.
void sample_exponents(std::span<const std::byte> old_bytes, const ElementFormat& format,
                      ChangeStats& stats);

}  // namespace weft::codec
