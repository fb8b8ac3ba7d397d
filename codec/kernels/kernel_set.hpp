// SPDX-License-Identifier: Apache-2.0
// The inner loops that exist once per instruction set, and which set this process uses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "codec/bits/bit_reader.hpp"
#include "codec/bits/bit_writer.hpp"
#include "codec/bits/sequence.hpp"
#include "codec/safetensors/dtype.hpp"

namespace weft::codec {

enum class KernelLevel : std::uint8_t { kScalar, kAvx2, kAvx512 };

inline constexpr std::uint32_t kClassesMax = 8;

// How old exponents map to classes: class 0 is thresholds[0] and above, the last class lies below
// the last threshold. Thresholds descend strictly; there are count - 1 of them.
// Threads: a value; one at a time.
struct ClassCut {
  std::uint32_t count = 1;
  std::uint8_t thresholds[kClassesMax - 1] = {};
};

// Input and output of split(): the changed elements of one chunk, and where they go by class.
// Threads: one at a time.
struct ClassSplit {
  const std::byte* old_bytes = nullptr;
  std::uint32_t element_count = 0;
  ElementFormat format;
  ClassCut cut;
  const std::uint32_t* positions = nullptr;  // ascending
  const std::uint8_t* flags = nullptr;       // per position: kFlagUp, kFlagException
  std::uint32_t changed_count = 0;
  // Per class, with room for its changes and 64 more: rank among the class's elements, flags, and
  // place in `positions` of the exceptions only.
  std::uint32_t* ranks[kClassesMax] = {};
  std::uint8_t* class_flags[kClassesMax] = {};
  std::uint32_t* exceptions[kClassesMax] = {};
  // Filled in.
  std::uint32_t counts[kClassesMax] = {};
  std::uint32_t exception_counts[kClassesMax] = {};
  std::uint32_t universes[kClassesMax] = {};  // elements of the class
};
inline constexpr std::uint8_t kFlagUp = 1;
inline constexpr std::uint8_t kFlagException = 2;

// Input and output of apply(): ranks of the changed elements by class, and the new values.
// Threads: one at a time.
struct ClassApply {
  const std::byte* old_bytes = nullptr;
  std::byte* new_bytes = nullptr;
  std::uint32_t element_count = 0;
  ElementFormat format;
  ClassCut cut;
  std::uint32_t* ranks[kClassesMax] = {};  // ascending; one more number is writable behind them
  std::uint32_t counts[kClassesMax] = {};
  std::uint64_t directions[kClassesMax] = {};  // bit position in `bits` of the direction plane
  const std::byte* bits = nullptr;
  std::uint32_t* places[kClassesMax] = {};  // filled in: element of each change
  // Filled in: elements of each class.
  std::uint32_t universes[kClassesMax] = {};
};

// KernelSet is one level's loops. All levels give equal results for equal input, and read and write
// nothing but what is named.
// Threads: immutable.
struct KernelSet {
  KernelLevel level = KernelLevel::kScalar;
  std::string_view name;
  // Positions of differing words, ascending, to `positions` (room for element_count + 64); returns
  // their count. element_bytes is 1, 2, 4 or 8.
  std::uint32_t (*scan)(const std::byte* old_bytes, const std::byte* new_bytes,
                        std::uint32_t element_count, std::uint32_t element_bytes,
                        std::uint32_t* positions) = nullptr;
  void (*write_sequence)(BitWriter& out, const std::uint32_t* positions, std::uint32_t count,
                         std::uint32_t universe, std::uint32_t* scratch) = nullptr;
  // Positions below universe_max, at most count_max of them. `scratch` has room for universe_max
  // numbers and 64 more, `positions` for count_max.
  SequenceHead (*read_sequence)(BitReader& in, std::uint32_t universe_max, std::uint32_t count_max,
                                std::uint32_t* positions, std::uint32_t* scratch) = nullptr;
  // Words of 1 or 2 bytes with an exponent field of at most 8 bits.
  void (*split)(ClassSplit& split) = nullptr;
  // The up flags as `count` bits; places of the exceptions (room for count + 64), whose number is
  // returned. 32 flags behind the last must be readable.
  std::uint32_t (*write_directions)(BitWriter& out, const std::uint8_t* flags, std::uint32_t count,
                                    std::uint32_t* exceptions) = nullptr;
  // Copies old to new and moves every ranked element one step. False: a rank is not below its
  // class's size. new_bytes must not overlap old_bytes.
  bool (*apply)(ClassApply& apply) = nullptr;
};

// The set of this process: the widest that the machine has, or the one that WEFT_KERNELS
// (scalar, avx2, avx512) names at start if the machine has it.
const KernelSet& kernels();

// All sets that this machine can run, narrowest first: for tests and benchmarks.
std::span<const KernelSet* const> available_kernels();
const KernelSet* find_kernels(std::string_view name);

}  // namespace weft::codec
