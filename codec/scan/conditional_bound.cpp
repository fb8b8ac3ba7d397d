// SPDX-License-Identifier: Apache-2.0
#include "codec/scan/conditional_bound.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "codec/kernels/kernel_set.hpp"

namespace weft::codec {

namespace {

constexpr std::size_t kRunElements = 65'536;

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

template <typename Word>
Word word_at(std::span<const std::byte> bytes, std::size_t place) {
  Word word;
  std::memcpy(&word, bytes.data() + place * sizeof(Word), sizeof(Word));
  return word;
}

}  // namespace

void ConditionalBound::reset(const ElementFormat& format) {
  for (std::size_t e = 0; e < changed_.size() && !near_.empty(); ++e) {
    if (changed_[e] == 0) continue;
    std::fill_n(near_.begin() + static_cast<std::ptrdiff_t>(e * kNearSteps), kNearSteps, 0);
  }
  format_ = format;
  too_many_steps_ = false;
  elements_.fill(0);
  changed_.fill(0);
  far_.clear();
}

// Eight bytes at a time, into four tables, so that equal exponents do not wait for each other.
template <typename Word>
void ConditionalBound::count_exponents(std::span<const std::byte> old_bytes) {
  constexpr std::size_t kTables = 4;
  constexpr unsigned kWordBits = 8 * sizeof(Word);
  std::uint32_t counts[kTables][256] = {};
  const unsigned shift = format_.exponent_shift;
  const std::uint64_t mask = (std::uint64_t{1} << format_.exponent_bits) - 1;
  std::size_t at = 0;
  for (; at + 8 <= old_bytes.size(); at += 8) {
    std::uint64_t words;
    std::memcpy(&words, old_bytes.data() + at, 8);
    words >>= shift;
    const auto count = [&]<std::size_t... Lanes>(std::index_sequence<Lanes...>) {
      (++counts[Lanes % kTables][(words >> (Lanes * kWordBits)) & mask], ...);
    };
    count(std::make_index_sequence<64 / kWordBits>());
  }
  for (; at < old_bytes.size(); at += sizeof(Word)) {
    ++counts[0][(std::uint64_t{word_at<Word>(old_bytes, at / sizeof(Word))} >> shift) & mask];
  }
  for (std::size_t e = 0; e < elements_.size(); ++e) {
    elements_[e] += std::uint64_t{counts[0][e]} + counts[1][e] + counts[2][e] + counts[3][e];
  }
}

void ConditionalBound::count_far(std::uint64_t step, std::uint64_t count) {
  if (too_many_steps_) return;
  if (far_.size() >= kFarStepsMax && far_.find(step) == far_.end()) {
    too_many_steps_ = true;
    far_.clear();
    return;
  }
  far_[step] += count;
}

template <typename Word>
void ConditionalBound::count_steps(std::span<const std::byte> old_bytes,
                                   std::span<const std::byte> new_bytes) {
  const auto element_count = static_cast<std::uint32_t>(old_bytes.size() / sizeof(Word));
  positions_.resize(kRunElements + 64);
  const std::uint32_t found = kernels().scan(old_bytes.data(), new_bytes.data(), element_count,
                                             sizeof(Word), positions_.data());
  if (found == 0) return;
  near_.resize(changed_.size() * kNearSteps);
  const std::uint32_t sign_bit = 1U << (8 * sizeof(Word) - 1);
  const std::uint32_t mask = (1U << format_.exponent_bits) - 1;
  for (std::uint32_t i = 0; i < found; ++i) {
    const std::uint32_t before = word_at<Word>(old_bytes, positions_[i]);
    const std::uint32_t after = word_at<Word>(new_bytes, positions_[i]);
    const std::uint32_t exponent = (before >> format_.exponent_shift) & mask;
    ++changed_[exponent];
    std::int64_t step = ordinal(after, sign_bit) - ordinal(before, sign_bit);
    if ((before & sign_bit) != 0) step = -step;
    if (step >= -kNear && step <= kNear) {
      ++near_[exponent * kNearSteps + static_cast<std::size_t>(step + kNear)];
    } else {
      count_far((std::uint64_t{exponent} << 32) | (static_cast<std::uint64_t>(step) & 0xFFFF'FFFFU),
                1);
    }
  }
}

void ConditionalBound::add(std::span<const std::byte> old_bytes,
                           std::span<const std::byte> new_bytes) {
  if (format_.exponent_bits == 0) return;
  const std::size_t run_bytes = kRunElements * format_.element_bytes;
  for (std::size_t at = 0; at < old_bytes.size(); at += run_bytes) {
    const std::size_t here = std::min(run_bytes, old_bytes.size() - at);
    const auto before = old_bytes.subspan(at, here);
    const auto after = new_bytes.subspan(at, here);
    if (format_.element_bytes == 1) {
      count_exponents<std::uint8_t>(before);
      count_steps<std::uint8_t>(before, after);
    } else {
      count_exponents<std::uint16_t>(before);
      count_steps<std::uint16_t>(before, after);
    }
  }
}

void ConditionalBound::merge(const ConditionalBound& other) {
  if (!other.near_.empty()) near_.resize(other.near_.size());
  for (std::size_t e = 0; e < elements_.size(); ++e) {
    elements_[e] += other.elements_[e];
    if (other.changed_[e] == 0) continue;
    changed_[e] += other.changed_[e];
    for (std::size_t i = e * kNearSteps; i < (e + 1) * kNearSteps; ++i) near_[i] += other.near_[i];
  }
  for (const auto& [step, count] : other.far_) count_far(step, count);
  if (other.too_many_steps_) {
    too_many_steps_ = true;
    far_.clear();
  }
}

std::uint64_t ConditionalBound::changed_count() const {
  std::uint64_t count = 0;
  for (const std::uint64_t changed : changed_) count += changed;
  return count;
}

double ConditionalBound::bits() const {
  if (!known()) return 0;
  double bits = 0;
  std::array<std::uint64_t, 256> kinds{};
  const auto add_steps = [&](std::size_t exponent, std::uint64_t count) {
    if (count == 0) return;
    ++kinds[exponent];
    const auto n = static_cast<double>(count);
    bits += n * std::log2(static_cast<double>(changed_[exponent]) / n);
  };
  for (std::size_t i = 0; i < near_.size(); ++i) add_steps(i / kNearSteps, near_[i]);
  for (const auto& [step, count] : far_) add_steps(static_cast<std::size_t>(step >> 32), count);
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
