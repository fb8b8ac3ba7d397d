// SPDX-License-Identifier: Apache-2.0
// Old and new values of one chunk, in every pattern that tests of the chunk types need.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "codec/safetensors/dtype.hpp"

namespace weft::codec::testing {

struct ChunkPair {
  std::string name;
  ElementFormat format;
  std::vector<std::byte> old_bytes;
  std::vector<std::byte> new_bytes;
  std::uint32_t element_count() const {
    return static_cast<std::uint32_t>(old_bytes.size() / format.element_bytes);
  }
};

inline std::uint64_t word_at(const std::vector<std::byte>& bytes, std::size_t element,
                             std::size_t size) {
  std::uint64_t word = 0;
  std::memcpy(&word, bytes.data() + element * size, size);
  return word;
}
inline void set_word(std::vector<std::byte>& bytes, std::size_t element, std::size_t size,
                     std::uint64_t word) {
  std::memcpy(bytes.data() + element * size, &word, size);
}

// Floats with a normal law, as bit patterns of any size; exponent fields are as real weights have.
inline std::vector<std::byte> weights(DType dtype, std::uint32_t count, std::mt19937_64& random) {
  const std::size_t size = element_bytes(dtype);
  std::vector<std::byte> bytes(count * size);
  std::normal_distribution<float> normal(0.0F, 0.02F);
  for (std::uint32_t i = 0; i < count; ++i) {
    const float value = normal(random);
    std::uint32_t pattern;
    std::memcpy(&pattern, &value, 4);
    std::uint64_t word = pattern;
    if (size == 2) word = pattern >> 16;
    if (size == 1) word = pattern >> 20 & 0xFF;
    if (size == 8) word = std::uint64_t{pattern} << 32 | (random() & 0xFFFF'FFFF);
    set_word(bytes, i, size, word);
  }
  return bytes;
}

inline ChunkPair random_changes(DType dtype, std::uint32_t count, double density,
                                std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const std::size_t size = element_bytes(dtype);
  ChunkPair pair{
      std::string(name(dtype)) + " n=" + std::to_string(count) + " p=" + std::to_string(density),
      element_format(dtype),
      weights(dtype, count, random),
      {}};
  pair.new_bytes = pair.old_bytes;
  std::uniform_real_distribution<double> uniform(0, 1);
  for (std::uint32_t i = 0; i < count; ++i) {
    if (uniform(random) >= density) continue;
    const std::uint64_t word = word_at(pair.old_bytes, i, size);
    const double kind = uniform(random);
    std::uint64_t changed = word + (uniform(random) < 0.5 ? 1 : ~std::uint64_t{0});
    if (kind > 0.85) changed = word + random() % 40 - 20;
    if (kind > 0.98) changed = random();
    set_word(pair.new_bytes, i, size, changed);
  }
  return pair;
}

// BF16 casts of FP32 weights before and after a step of one size everywhere, as an optimizer makes.
inline ChunkPair optimizer_step(std::uint32_t count, float rate, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0.0F, 1.0F);
  ChunkPair pair{"step", element_format(DType::kBF16), std::vector<std::byte>(count * 2), {}};
  pair.new_bytes = pair.old_bytes;
  const auto bf16 = [](float value) {
    std::uint32_t pattern;
    std::memcpy(&pattern, &value, 4);
    return (pattern + 0x7FFF + ((pattern >> 16) & 1)) >> 16;
  };
  for (std::uint32_t i = 0; i < count; ++i) {
    const float weight = 0.02F * normal(random);
    set_word(pair.old_bytes, i, 2, bf16(weight));
    set_word(pair.new_bytes, i, 2, bf16(weight - rate * normal(random)));
  }
  return pair;
}

// The patterns by hand: which elements change, and to what.
inline std::vector<ChunkPair> adversarial(DType dtype, std::uint32_t count) {
  const std::size_t size = element_bytes(dtype);
  std::mt19937_64 random(count * 31 + size);
  const ChunkPair base{"", element_format(dtype), weights(dtype, count, random), {}};
  std::vector<ChunkPair> pairs;
  const auto add = [&](const std::string& what, auto&& changed_to) {
    ChunkPair pair = base;
    pair.name = std::string(name(dtype)) + " n=" + std::to_string(count) + " " + what;
    pair.new_bytes = pair.old_bytes;
    for (std::uint32_t i = 0; i < count; ++i) {
      set_word(pair.new_bytes, i, size, changed_to(i, word_at(pair.old_bytes, i, size)));
    }
    pairs.push_back(std::move(pair));
  };
  add("none", [](std::uint32_t, std::uint64_t w) { return w; });
  add("all up", [](std::uint32_t, std::uint64_t w) { return w + 1; });
  add("all down", [](std::uint32_t, std::uint64_t w) { return w - 1; });
  add("all inverted", [](std::uint32_t, std::uint64_t w) { return ~w; });
  add("all new", [&](std::uint32_t, std::uint64_t) { return random(); });
  add("all half way round",
      [&](std::uint32_t, std::uint64_t w) { return w + (std::uint64_t{1} << (8 * size - 1)); });
  add("all zero", [](std::uint32_t, std::uint64_t) { return std::uint64_t{0}; });
  add("first", [](std::uint32_t i, std::uint64_t w) { return i == 0 ? w + 1 : w; });
  add("last", [&](std::uint32_t i, std::uint64_t w) { return i + 1 == count ? w - 7 : w; });
  add("alternating", [](std::uint32_t i, std::uint64_t w) { return i % 2 == 0 ? w + 1 : w; });
  add("all but one", [&](std::uint32_t i, std::uint64_t w) { return i == count / 2 ? w : w - 1; });
  add("sign of each",
      [&](std::uint32_t, std::uint64_t w) { return w ^ (std::uint64_t{1} << (8 * size - 1)); });
  add("one bit of each",
      [&](std::uint32_t i, std::uint64_t w) { return w ^ (std::uint64_t{1} << (i % (8 * size))); });
  add("second half", [&](std::uint32_t i, std::uint64_t w) { return i >= count / 2 ? w + 3 : w; });
  return pairs;
}

}  // namespace weft::codec::testing
