// SPDX-License-Identifier: Apache-2.0
// What the peers' methods share: tensors of 16-bit words, our scan of their changes, zstd level 1.
#pragma once

#include <zstd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

#include "codec/kernels/kernel_set.hpp"

namespace weft::bench {

// Old and new values of one tensor of 16-bit words.
// Threads: a value; one at a time.
struct PeerTensor {
  std::span<const std::byte> old_bytes;
  std::span<const std::byte> new_bytes;
};

inline std::uint16_t word_at(const std::byte* bytes, std::size_t place) {
  std::uint16_t word;
  std::memcpy(&word, bytes + 2 * place, 2);
  return word;
}

inline void set_word(std::byte* bytes, std::size_t place, std::uint16_t word) {
  std::memcpy(bytes + 2 * place, &word, 2);
}

// The changes of up to 65,536 elements of a tensor, as the scan finds them.
// Threads: a value; one at a time.
struct ChangedRun {
  std::size_t start = 0;  // of the run in the tensor; positions count from here
  std::span<const std::uint32_t> positions;
  const std::byte* before = nullptr;
  const std::byte* after = nullptr;
};

// Calls take(ChangedRun) for every run of a tensor in which something changed.
template <typename Take>
void for_each_run(const PeerTensor& tensor, std::vector<std::uint32_t>& positions, Take&& take) {
  constexpr std::size_t kRun = 65'536;
  positions.resize(kRun + 64);
  const std::size_t element_count = tensor.old_bytes.size() / 2;
  for (std::size_t start = 0; start < element_count; start += kRun) {
    const std::byte* before = tensor.old_bytes.data() + 2 * start;
    const std::byte* after = tensor.new_bytes.data() + 2 * start;
    const auto here = static_cast<std::uint32_t>(std::min(kRun, element_count - start));
    const std::uint32_t found = codec::kernels().scan(before, after, here, 2, positions.data());
    if (found > 0) take(ChangedRun{start, std::span(positions).first(found), before, after});
  }
}

// One zstd frame at level 1, there and back. A failure ends the benchmark.
// Threads: one at a time.
class PeerZstd {
 public:
  PeerZstd() : encoder_(ZSTD_createCCtx()), decoder_(ZSTD_createDCtx()) {}
  PeerZstd(const PeerZstd&) = delete;
  PeerZstd& operator=(const PeerZstd&) = delete;
  ~PeerZstd() {
    ZSTD_freeCCtx(encoder_);
    ZSTD_freeDCtx(decoder_);
  }

  // Writes to `packed`, which only grows; returns how many bytes of it are the frame.
  std::size_t pack(std::span<const std::byte> plain, std::vector<std::byte>& packed) {
    const std::size_t bound = ZSTD_compressBound(plain.size());
    if (packed.size() < bound) packed.resize(bound);
    return checked(
        ZSTD_compressCCtx(encoder_, packed.data(), packed.size(), plain.data(), plain.size(), 1));
  }
  void unpack(std::span<const std::byte> packed, std::span<std::byte> plain) {
    const std::size_t bytes = checked(
        ZSTD_decompressDCtx(decoder_, plain.data(), plain.size(), packed.data(), packed.size()));
    if (bytes != plain.size()) std::abort();
  }

 private:
  static std::size_t checked(std::size_t answer) {
    if (ZSTD_isError(answer) != 0) std::abort();
    return answer;
  }

  ZSTD_CCtx* encoder_;
  ZSTD_DCtx* decoder_;
};

}  // namespace weft::bench
