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
#include "weft/base/result.hpp"

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

// A changed element of a class: its rank among the class's elements, and what became of it.
inline constexpr std::uint32_t kEntryRank = (1U << 27) - 1;
inline constexpr std::uint32_t kEntryUp = 1U << 30;
inline constexpr std::uint32_t kEntryException = 1U << 31;

// Input and output of split(): the changed elements of one chunk, by class. It may be called for
// one piece of the chunk after the other.
// Threads: one at a time.
struct ClassSplit {
  const std::byte* old_bytes = nullptr;  // of the whole chunk
  const std::byte* new_bytes = nullptr;
  std::uint32_t element_count = 0;
  ElementFormat format;
  ClassCut cut;
  // Per class, with room for its changes and 64 more: entries in the order of the elements, and the
  // exceptions among them as old word and, 16 bits higher, new word.
  std::uint32_t* entries[kClassesMax] = {};
  std::uint32_t* exceptions[kClassesMax] = {};
  // Filled in, from zero.
  std::uint32_t counts[kClassesMax] = {};
  std::uint32_t exception_counts[kClassesMax] = {};
  std::uint32_t universes[kClassesMax] = {};  // elements of the class
};
// Pieces but the last end on a multiple of this.
inline constexpr std::uint32_t kSplitElements = 4096;

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
  // Which of the changes are exceptions, ascending. They move too, to a value of no meaning.
  const std::uint32_t* exceptions[kClassesMax] = {};
  std::uint32_t exception_counts[kClassesMax] = {};
  std::uint32_t* scratch[kClassesMax] = {};  // room for the class's changes and 64 more
  // Filled in: the element of each exception, with room for 64 more, and the elements of the class.
  std::uint32_t* exception_places[kClassesMax] = {};
  std::uint32_t universes[kClassesMax] = {};
};

// KernelSet is one level's loops. All levels give equal results for equal input, and read and write
// nothing but what is named.
// Threads: immutable.
struct KernelSet {
  KernelLevel level = KernelLevel::kScalar;
  std::string_view name;
  // Positions from `first` up to `end` whose words differ, ascending, to `positions` (room for as
  // many and 64 more); returns their count. element_bytes is 1, 2, 4 or 8.
  std::uint32_t (*scan_range)(const std::byte* old_bytes, const std::byte* new_bytes,
                              std::uint32_t first, std::uint32_t end, std::uint32_t element_bytes,
                              std::uint32_t* positions) = nullptr;
  void (*write_sequence)(BitWriter& out, const std::uint32_t* positions, std::uint32_t count,
                         std::uint32_t universe, std::uint32_t* scratch) = nullptr;
  // Positions below universe_max, at most count_max of them. `scratch` has room for universe_max
  // numbers and 64 more, `positions` for count_max and 64 more.
  SequenceHead (*read_sequence)(BitReader& in, std::uint32_t universe_max, std::uint32_t count_max,
                                std::uint32_t* positions, std::uint32_t* scratch) = nullptr;
  // Elements from `first` up to `end`. Words of 1 or 2 bytes with an exponent field of at most 8
  // bits.
  void (*split)(ClassSplit& split, std::uint32_t first, std::uint32_t end) = nullptr;
  // Entries to ranks, in place (64 more may be read and written); bit i of `ups` says that the i-th
  // went up; places of the exceptions (room for count + 64), whose number is returned.
  std::uint32_t (*separate)(std::uint32_t* entries, std::uint32_t count, std::uint64_t* ups,
                            std::uint32_t* exceptions) = nullptr;
  // Copies old to new and moves every ranked element one step. False: a rank is not below its
  // class's size. new_bytes must not overlap old_bytes.
  bool (*apply)(ClassApply& apply) = nullptr;

  std::uint32_t scan(const std::byte* old_bytes, const std::byte* new_bytes,
                     std::uint32_t element_count, std::uint32_t element_bytes,
                     std::uint32_t* positions) const {
    return scan_range(old_bytes, new_bytes, 0, element_count, element_bytes, positions);
  }
};

// The set of this process: the widest that the machine has, or the one that WEFT_KERNELS names
// (scalar, avx2, avx512). Where that is a wrong name or a set that the machine lacks, the widest:
// kernels_status() is then kConfig and says why, programs refuse to start and nothing is coded.
const KernelSet& kernels();
const Status& kernels_status();

// The set of that name; null or empty: the widest. Errors: kConfig, naming those that there are.
Result<const KernelSet*> choose_kernels(const char* name);

// All sets that this machine can run, narrowest first: for tests and benchmarks.
std::span<const KernelSet* const> available_kernels();
const KernelSet* find_kernels(std::string_view name);

}  // namespace weft::codec
