// SPDX-License-Identifier: Apache-2.0
// Any bytes as a lattice of one checkpoint: what is accepted is what it encodes to, and its chunks
// hold every element exactly once. An odd first byte supplies a good head, so that the tiles behind
// it are what is looked at.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "codec/project/lattice.hpp"
#include "fuzz/fuzz_schema.hpp"

namespace {

using namespace weft;
using Bytes = std::vector<std::byte>;

constexpr std::size_t kVersionAt = 4;
constexpr std::size_t kProducersAt = 32;  // and then the count of tiles
constexpr std::size_t kTilesAt = 40;

void check_chunks(const codec::Schema& schema, const codec::Lattice& lattice) {
  std::vector<std::vector<std::uint8_t>> seen;
  for (const codec::Tensor& tensor : schema.tensors()) seen.emplace_back(tensor.element_count);
  for (std::uint32_t i = 0; i < lattice.chunk_count(); ++i) {
    const codec::ChunkPlace place = lattice.place({i});
    if (place.element_count == 0 || place.bytes() > limits::kChunkBytesMax ||
        !lattice.chunks_of(place.producer).contains({i})) {
      std::abort();
    }
    std::vector<std::uint8_t>& elements = seen[place.tensor.value];
    codec::ChunkRuns runs(place);
    std::uint32_t count = 0;
    for (codec::ChunkRun run; runs.next(run);) {
      if (run.offset != count || run.element_count == 0 ||
          run.first_element + run.element_count > elements.size() ||
          place.element_at(run.offset) != run.first_element) {
        std::abort();
      }
      for (std::uint32_t k = 0; k < run.element_count; ++k) ++elements[run.first_element + k];
      count += run.element_count;
    }
    if (count != place.element_count) std::abort();
  }
  for (const auto& elements : seen) {
    if (!std::all_of(elements.begin(), elements.end(), [](auto times) { return times == 1; })) {
      std::abort();
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const codec::Schema& schema = fuzz::fuzz_schema();
  if (size == 0) return 0;
  const auto input = std::as_bytes(std::span(bytes + 1, size - 1));
  Bytes text(input.begin(), input.end());
  if (bytes[0] % 2 != 0 && text.size() >= kTilesAt) {
    static const Bytes head = codec::Lattice::default_for(schema)->encode();
    std::copy_n(head.begin(), kVersionAt, text.begin());
    std::copy_n(head.begin() + kVersionAt + 4, kProducersAt - kVersionAt - 4,
                text.begin() + kVersionAt + 4);
  }
  const auto lattice = codec::Lattice::decode(schema, text);
  if (!lattice) {
    switch (lattice.error().code) {
      case ErrorCode::kProtocol:
      case ErrorCode::kConfig:
      case ErrorCode::kUnsupported:
      case ErrorCode::kResourceLimit:
        return 0;
      default:
        std::abort();
    }
  }
  if (lattice->encode() != text) std::abort();
  check_chunks(schema, *lattice);
  return 0;
}
