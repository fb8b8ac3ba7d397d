// SPDX-License-Identifier: Apache-2.0
// XXH3, the one hash of every layout (docs/adr/0002). 64-bit for chunks and log records, 128-bit
// for everything folded. Not a defence against an attacker: mutual TLS is (README "Trust").
#pragma once

#define XXH_STATIC_LINKING_ONLY  // for the size of XXH3_state_t
#include <xxhash.h>
// The library's own choice among SSE2, AVX2 and AVX-512, made at the first call: without it the
// instruction set of its build, which is the lowest, is what hashes.
#if defined(__x86_64__) && __has_include(<xxh_x86dispatch.h>)
#include <xxh_x86dispatch.h>
#endif

#include <cstddef>
#include <cstdint>
#include <span>

#include "weft/base/ids.hpp"

namespace weft::wire {

inline std::uint64_t digest64(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

inline Digest digest128(std::span<const std::byte> bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return Digest{{hash.low64, hash.high64}};
}

// The XXH3-64 of several pieces as if they were one.
// Threads: one at a time.
class Digester64 {
 public:
  Digester64() { XXH3_64bits_reset(&state_); }
  void update(std::span<const std::byte> bytes) {
    XXH3_64bits_update(&state_, bytes.data(), bytes.size());
  }
  std::uint64_t digest() const { return XXH3_64bits_digest(&state_); }

 private:
  XXH3_state_t state_;
};

// The XXH3-128 of several pieces as if they were one.
// Threads: one at a time.
class Digester {
 public:
  Digester() { XXH3_128bits_reset(&state_); }
  void update(std::span<const std::byte> bytes) {
    XXH3_128bits_update(&state_, bytes.data(), bytes.size());
  }
  Digest digest() const {
    const XXH128_hash_t hash = XXH3_128bits_digest(&state_);
    return Digest{{hash.low64, hash.high64}};
  }

 private:
  XXH3_state_t state_;
};

}  // namespace weft::wire
