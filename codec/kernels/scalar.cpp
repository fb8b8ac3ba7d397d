// SPDX-License-Identifier: Apache-2.0
#include "codec/kernels/levels.hpp"
// The bodies below are instantiated for this level's Isa only.
#include "codec/kernels/apply_body.hpp"
#include "codec/kernels/scan_body.hpp"
#include "codec/kernels/sequence_body.hpp"
#include "codec/kernels/split_body.hpp"

namespace weft::codec::kernel {

namespace {

// Plain C++: the reference that the other levels are tested against.
// Threads: immutable.
struct ScalarIsa {
  static constexpr bool kWide = false;

  static std::uint32_t popcount(std::uint64_t word) {
    return static_cast<std::uint32_t>(__builtin_popcountll(word));
  }
  static std::uint32_t trailing_zeros(std::uint64_t word) {
    return word == 0 ? 64 : static_cast<std::uint32_t>(__builtin_ctzll(word));
  }
  static std::uint64_t low_bits(std::uint64_t word, std::uint32_t count) {
    return word & ((std::uint64_t{1} << count) - 1);
  }
  static std::uint32_t select_bit(std::uint64_t word, std::uint32_t rank) {
    for (; rank > 0; --rank) word &= word - 1;
    return trailing_zeros(word) & 63;
  }

  template <std::uint32_t kBytes>
  static std::uint64_t differ64(const std::byte* a, const std::byte* b) {
    if (std::memcmp(a, b, 64 * kBytes) == 0) return 0;
    std::uint64_t mask = 0;
    for (std::uint32_t i = 0; i < 64; ++i) {
      mask |= std::uint64_t{std::memcmp(a + i * kBytes, b + i * kBytes, kBytes) != 0} << i;
    }
    return mask;
  }
  static std::uint32_t* extract(std::uint64_t mask, std::uint32_t base, std::uint32_t* to) {
    for (; mask != 0; mask &= mask - 1) *to++ = base + trailing_zeros(mask);
    return to;
  }

  static std::uint32_t locate(const std::uint16_t* before, std::uint32_t rank) {
    return static_cast<std::uint32_t>(
        std::upper_bound(before, before + kBlockWords, rank,
                         [](std::uint32_t wanted, std::uint16_t have) { return wanted < have; }) -
        before - 1);
  }

  static void strip64(std::uint32_t* entries, std::uint64_t& up, std::uint64_t& exceptional) {
    up = 0;
    for (std::uint32_t i = 0; i < 64; ++i) {
      up |= std::uint64_t{(entries[i] >> 30) & 1} << i;
      exceptional |= std::uint64_t{entries[i] >> 31} << i;
      entries[i] &= kEntryRank;
    }
  }
  // Threads: immutable.
  struct Thresholds {
    Thresholds(const ClassCut& cut, const ElementFormat& format)
        : shift(format.exponent_shift), mask((1U << format.exponent_bits) - 1) {
      fill_class_table(cut, class_of);
    }
    template <std::uint32_t kBytes, std::uint32_t kCount>
    void masks64(const std::byte* from, std::uint32_t class_count,
                 std::uint64_t (&masks)[kClassesMax]) const {
      std::fill_n(masks, class_count, 0);
      for (std::uint32_t i = 0; i < 64; ++i) {
        const std::uint32_t word = load_word(from + i * kBytes, kBytes);
        masks[class_of[(word >> shift) & mask]] |= std::uint64_t{1} << i;
      }
    }
    std::uint32_t shift;
    std::uint32_t mask;
    std::uint8_t class_of[256];
  };
};

}  // namespace

const KernelSet kScalarKernels{KernelLevel::kScalar,      "scalar",
                               &scan_range<ScalarIsa>,    &write_sequence<ScalarIsa>,
                               &read_sequence<ScalarIsa>, &split<ScalarIsa>,
                               &separate<ScalarIsa>,      &apply<ScalarIsa>};

}  // namespace weft::codec::kernel
