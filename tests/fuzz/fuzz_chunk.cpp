// SPDX-License-Identifier: Apache-2.0
// Any bytes as the payload of a chunk, on old values made from a seed in them: every kernel set
// must come to the same verdict and the same bytes, and touch nothing outside the chunk.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "codec/decode/decode_chunk.hpp"
#include "weft/wire/byte_io.hpp"

namespace {

// 0: chunk type, 1: format, 2..3: elements, 4..6: changes, 7: seed of the old values.
constexpr std::size_t kHeadBytes = 8;

constexpr weft::codec::DType kTypes[] = {weft::codec::DType::kBF16,   weft::codec::DType::kF8E4M3,
                                         weft::codec::DType::kF8E5M2, weft::codec::DType::kF16,
                                         weft::codec::DType::kU8,     weft::codec::DType::kF32,
                                         weft::codec::DType::kF64,    weft::codec::DType::kI16};

std::vector<std::byte> old_values(std::size_t size, std::uint8_t seed) {
  std::vector<std::byte> bytes(size);
  std::uint64_t state = seed * 0x9E37'79B9'7F4A'7C15ULL + 1;
  for (std::byte& byte : bytes) {
    state = state * 6'364'136'223'846'793'005ULL + 1'442'695'040'888'963'407ULL;
    byte = static_cast<std::byte>(state >> 59);  // few exponents, like weights
  }
  return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  using namespace weft;
  if (size < kHeadBytes) return 0;
  const codec::ElementFormat format = codec::element_format(kTypes[bytes[1] % 8]);
  const std::uint32_t element_count = 1 + (bytes[2] + 256U * bytes[3]) % 9000;
  codec::DecodeInput input;
  input.format = format;
  input.entry.type = static_cast<wire::ChunkType>(bytes[0] % 9);
  input.entry.changed_count = bytes[4] + 256U * bytes[5] + 65'536U * bytes[6];
  // Copies of exactly these sizes, so that reads beside them are seen.
  const auto tail = std::as_bytes(std::span(bytes, size)).subspan(kHeadBytes);
  const std::vector<std::byte> payload(tail.begin(), tail.end());
  const auto old_bytes = old_values(std::size_t{element_count} * format.element_bytes, bytes[7]);
  input.entry.payload_bytes = static_cast<std::uint32_t>(payload.size());
  input.payload = payload;
  input.old_bytes = old_bytes;
  input.verify = false;  // there is no digest to match: what is read is compared instead
  static codec::DecodeWorkspace workspace;
  std::vector<std::byte> first;
  bool first_read = false;
  for (const codec::KernelSet* set : codec::available_kernels()) {
    std::vector<std::byte> new_bytes(old_bytes.size());
    input.kernel_set = set;
    const bool read = codec::decode_chunk(input, workspace, new_bytes).has_value();
    if (set == codec::available_kernels().front()) {
      first = new_bytes;
      first_read = read;
    } else if (read != first_read || (read && new_bytes != first)) {
      std::abort();
    }
  }
  return 0;
}
