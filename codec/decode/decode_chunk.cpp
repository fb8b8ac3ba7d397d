// SPDX-License-Identifier: Apache-2.0
#include "codec/decode/decode_chunk.hpp"

#include <cstring>
#include <string>

#include "codec/decode/decode_workspace.hpp"
#include "codec/decode/read_chunk.hpp"
#include "weft/base/assert.hpp"
#include "weft/wire/digest.hpp"

namespace weft::codec {

namespace {

using wire::ChunkType;

std::string chunk_text(const wire::IndexEntry& entry) {
  return "chunk " + std::to_string(entry.chunk.value) + " (" + wire::to_string(entry.type) + ")";
}

// Everything about the entry that can be said without the payload.
Status check_entry(const DecodeInput& input, std::size_t chunk_bytes, std::uint32_t element_count) {
  const wire::IndexEntry& entry = input.entry;
  if (entry.type == ChunkType::kSame ||
      static_cast<std::uint8_t>(entry.type) >= wire::kChunkTypeCount) {
    return failure(ErrorCode::kCorruptPayload, Stage::kResolve,
                   chunk_text(entry) + ": not a type that is sent");
  }
  if (entry.payload_bytes != input.payload.size()) {
    return failure(ErrorCode::kCorruptPayload, Stage::kResolve,
                   chunk_text(entry) + ": payload of " + std::to_string(input.payload.size()) +
                       " bytes, the index says " + std::to_string(entry.payload_bytes));
  }
  if (entry.payload_bytes > payload_bytes_max(static_cast<std::uint32_t>(chunk_bytes)) ||
      entry.changed_count > element_count || entry.changed_count == 0) {
    return failure(ErrorCode::kDecodeLimit, Stage::kResolve,
                   chunk_text(entry) + ": " + std::to_string(entry.payload_bytes) +
                       " payload bytes and " + std::to_string(entry.changed_count) +
                       " changes for " + std::to_string(element_count) + " elements");
  }
  return ok();
}

bool read_payload(const ArrivingChunk& chunk) {
  switch (chunk.input.entry.type) {
    case ChunkType::kClassed:
      return read_classed(chunk);
    case ChunkType::kSparse:
      return read_sparse(chunk);
    case ChunkType::kXor:
      return read_xor(chunk);
    case ChunkType::kOverwrite:
      return read_overwrite(chunk);
    case ChunkType::kPlanes:
      return read_planes(chunk);
    case ChunkType::kRaw:
      return read_raw(chunk);
    case ChunkType::kBytes:
      return read_bytes(chunk);
    case ChunkType::kSame:
      break;
  }
  return false;
}

Error explain(const DecodeInput& input, const char* what) {
  const bool wrong_base = input.entry.type != ChunkType::kRaw && input.old_digest &&
                          wire::digest64(input.old_bytes) != *input.old_digest;
  return failure(wrong_base ? ErrorCode::kBaseMismatch : ErrorCode::kCorruptPayload,
                 Stage::kResolve,
                 chunk_text(input.entry) + ": " +
                     (wrong_base ? "the old bytes are not those of the digest table" : what));
}

}  // namespace

DecodeWorkspace::DecodeWorkspace() : lists_(std::make_unique<Lists>()) {}
DecodeWorkspace::~DecodeWorkspace() = default;
DecodeWorkspace::DecodeWorkspace(DecodeWorkspace&&) noexcept = default;
DecodeWorkspace& DecodeWorkspace::operator=(DecodeWorkspace&&) noexcept = default;

Status decode_chunk(const DecodeInput& input, DecodeWorkspace& workspace,
                    std::span<std::byte> new_bytes) {
  const std::uint32_t element_bytes = input.format.element_bytes;
  // The caller took the sizes from its lattice: a wrong one is our own bug.
  WEFT_ASSERT(!new_bytes.empty() && new_bytes.size() <= limits::kChunkBytesMax &&
              new_bytes.size() % element_bytes == 0 &&
              new_bytes.size() / element_bytes <= limits::kChunkElementsMax);
  WEFT_ASSERT(input.old_bytes.size() == new_bytes.size() ||
              (input.old_bytes.empty() && input.entry.type == ChunkType::kRaw));
  const auto element_count = static_cast<std::uint32_t>(new_bytes.size() / element_bytes);
  WEFT_TRY_STATUS(check_entry(input, new_bytes.size(), element_count));
  if (input.kernel_set == nullptr) WEFT_TRY_STATUS(kernels_status());
  DecodeWorkspace::Lists& lists = workspace.lists();
  const std::size_t payload_bytes = input.payload.size();
  if (payload_bytes != 0) std::memcpy(lists.payload.get(), input.payload.data(), payload_bytes);
  std::memset(lists.payload.get() + payload_bytes, 0, BitReader::kTailBytes);
  const ArrivingChunk chunk{input,     input.kernel_set != nullptr ? *input.kernel_set : kernels(),
                            lists,     {lists.payload.get(), payload_bytes},
                            new_bytes, element_count};
  if (!read_payload(chunk)) return explain(input, "the payload cannot be read");
  if (input.verify && wire::digest64(new_bytes) != input.entry.new_digest) {
    return explain(input, "the result has another digest than the index says");
  }
  return ok();
}

std::span<const std::uint32_t> changed_offsets(std::span<const std::byte> old_bytes,
                                               std::span<const std::byte> new_bytes,
                                               std::uint32_t element_bytes,
                                               DecodeWorkspace& workspace) {
  WEFT_ASSERT(old_bytes.size() == new_bytes.size() && new_bytes.size() <= limits::kChunkBytesMax &&
              new_bytes.size() / element_bytes <= limits::kChunkElementsMax);
  std::uint32_t* positions = workspace.lists().scratch.get();
  const std::uint32_t count = kernels().scan(
      old_bytes.data(), new_bytes.data(),
      static_cast<std::uint32_t>(new_bytes.size() / element_bytes), element_bytes, positions);
  return {positions, count};
}

}  // namespace weft::codec
