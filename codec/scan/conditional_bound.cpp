// SPDX-License-Identifier: Apache-2.0
#include "codec/scan/conditional_bound.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace weft::codec {

namespace {

double entropy_bits(double part, double whole) {
  if (part <= 0 || part >= whole) return 0;
  const double rest = whole - part;
  return part * std::log2(whole / part) + rest * std::log2(whole / rest);
}

// Place of a pattern on the number line, sign and magnitude unfolded.
std::int64_t ordinal(std::uint32_t word, std::uint32_t sign_bit) {
  const auto magnitude = static_cast<std::int64_t>(word & (sign_bit - 1));
  return (word & sign_bit) != 0 ? -magnitude : magnitude;
}

}  // namespace

void ConditionalBound::add(std::span<const std::byte> old_bytes,
                           std::span<const std::byte> new_bytes) {
  if (format_.exponent_bits == 0) return;
  const std::size_t size = format_.element_bytes;
  const std::uint32_t sign_bit = 1U << (8 * size - 1);
  const std::uint32_t mask = (1U << format_.exponent_bits) - 1;
  for (std::size_t at = 0; at + size <= old_bytes.size(); at += size) {
    std::uint32_t before = 0;
    std::uint32_t after = 0;
    std::memcpy(&before, old_bytes.data() + at, size);
    std::memcpy(&after, new_bytes.data() + at, size);
    const std::uint32_t exponent = (before >> format_.exponent_shift) & mask;
    ++elements_[exponent];
    if (before == after) continue;
    ++changed_[exponent];
    std::int64_t step = ordinal(after, sign_bit) - ordinal(before, sign_bit);
    if ((before & sign_bit) != 0) step = -step;
    ++steps_[(std::uint64_t{exponent} << 32) | (static_cast<std::uint64_t>(step) & 0xFFFF'FFFFU)];
  }
}

std::uint64_t ConditionalBound::changed_count() const {
  std::uint64_t count = 0;
  for (const std::uint64_t changed : changed_) count += changed;
  return count;
}

double ConditionalBound::bits() const {
  double bits = 0;
  std::array<std::uint64_t, 256> kinds{};
  for (const auto& [step, count] : steps_) {
    const auto exponent = static_cast<std::size_t>(step >> 32);
    ++kinds[exponent];
    const auto n = static_cast<double>(count);
    bits += n * std::log2(static_cast<double>(changed_[exponent]) / n);
  }
  for (std::size_t e = 0; e < elements_.size(); ++e) {
    const auto elements = static_cast<double>(elements_[e]);
    const auto changed = static_cast<double>(changed_[e]);
    bits += entropy_bits(changed, elements);
    if (changed > 0 && changed < elements) bits += 0.5 * std::log2(elements);
    if (kinds[e] > 1) {
      bits += static_cast<double>(kinds[e] - 1) * 0.5 * std::log2(std::max(2.0, changed));
    }
  }
  return bits;
}

}  // namespace weft::codec
