// SPDX-License-Identifier: Apache-2.0
// The inner loops that exist once per instruction set, and which set this process uses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace weft::codec {

enum class KernelLevel : std::uint8_t { kScalar, kAvx2, kAvx512 };

// KernelSet is one level's loops. All levels give equal results for equal input.
// Threads: immutable.
struct KernelSet {
  KernelLevel level = KernelLevel::kScalar;
  std::string_view name;
  // Positions of differing words, ascending, to `positions` (room for element_count + 64); returns
  // their count. element_bytes is 1, 2, 4 or 8.
  std::uint32_t (*scan)(const std::byte* old_bytes, const std::byte* new_bytes,
                        std::uint32_t element_count, std::uint32_t element_bytes,
                        std::uint32_t* positions);
};

// The set of this process: the widest that the machine has, or the one that WEFT_KERNELS
// (scalar, avx2, avx512) names at start if the machine has it.
const KernelSet& kernels();

// All sets that this machine can run, narrowest first: for tests and benchmarks.
std::span<const KernelSet* const> available_kernels();
const KernelSet* find_kernels(std::string_view name);

}  // namespace weft::codec
