// SPDX-License-Identifier: Apache-2.0
// Any bytes as old and new values: every type and every kernel set must bring back the new ones.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "codec/decode/decode_chunk.hpp"
#include "codec/encode/encode_chunk.hpp"

namespace {

constexpr weft::codec::DType kTypes[] = {weft::codec::DType::kBF16,   weft::codec::DType::kF8E4M3,
                                         weft::codec::DType::kF8E5M2, weft::codec::DType::kF16,
                                         weft::codec::DType::kU8,     weft::codec::DType::kF32,
                                         weft::codec::DType::kF64,    weft::codec::DType::kI16};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  using namespace weft;
  if (size < 2) return 0;
  const codec::ElementFormat format = codec::element_format(kTypes[bytes[0] % 8]);
  const auto values = std::as_bytes(std::span(bytes, size)).subspan(2);
  const std::size_t half = values.size() / 2 / format.element_bytes * format.element_bytes;
  if (half == 0 || half > limits::kChunkBytesMax ||
      half / format.element_bytes > limits::kChunkElementsMax) {
    return 0;
  }
  const auto before = values.first(half);
  const auto after = values.subspan(half, half);
  const std::vector<std::byte> old_bytes(before.begin(), before.end());
  const std::vector<std::byte> new_bytes(after.begin(), after.end());
  codec::EncodeChoice choice;
  const auto force = static_cast<wire::ChunkType>(bytes[1] % 8);
  if (force != wire::ChunkType::kSame) choice.force = force;
  static codec::EncodeWorkspace encoder;
  static codec::DecodeWorkspace decoder;
  for (const codec::KernelSet* set : codec::available_kernels()) {
    choice.kernel_set = set;
    const auto encoded = codec::encode_chunk({old_bytes, new_bytes, format}, choice, encoder);
    if (!encoded) return 0;  // a type that these elements cannot take
    if (encoded->type == wire::ChunkType::kSame) {
      if (old_bytes != new_bytes) std::abort();
      continue;
    }
    const std::vector<std::byte> payload(encoded->payload.begin(), encoded->payload.end());
    const wire::IndexEntry entry{{0},
                                 encoded->type,
                                 static_cast<std::uint32_t>(payload.size()),
                                 encoded->changed_count,
                                 encoded->new_digest};
    std::vector<std::byte> arrived(new_bytes.size());
    const auto status = codec::decode_chunk(
        {entry, payload, old_bytes, format, std::nullopt, true, set}, decoder, arrived);
    if (!status || arrived != new_bytes) std::abort();
  }
  return 0;
}
