// SPDX-License-Identifier: Apache-2.0
// One chunk, old and new values to payload. The formats are in docs/formats/frame.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "codec/kernels/kernel_set.hpp"
#include "codec/safetensors/dtype.hpp"
#include "weft/base/result.hpp"
#include "weft/wire/frame.hpp"

namespace weft::codec {

enum class Profile : std::uint8_t { kCompact, kFast };

// A payload is never longer than this, whatever the chunk holds.
constexpr std::uint32_t payload_bytes_max(std::uint32_t chunk_bytes) { return chunk_bytes + 64; }

// Threads: a value; one at a time.
struct EncodeChoice {
  Profile profile = Profile::kCompact;
  std::optional<wire::ChunkType> force;  // a chunk with changes takes this type; never kSame
  bool full = false;      // raw, also without changes: nothing is assumed of the receiver
  bool with_hash = true;  // false only in benchmarks: new_digest stays 0
  const KernelSet* kernel_set = nullptr;  // for tests; null: this process's
};

// Both of the same length, a multiple of the element size, at most kChunkBytesMax. Only these bytes
// are read; any alignment.
// Threads: a value; one at a time.
struct ChunkInput {
  std::span<const std::byte> old_bytes;
  std::span<const std::byte> new_bytes;
  ElementFormat format;
};

// Threads: a value; one at a time.
struct EncodedChunk {
  wire::ChunkType type = wire::ChunkType::kSame;
  std::uint32_t changed_count = 0;
  std::uint64_t new_digest = 0;
  std::span<const std::byte> payload;  // in the workspace, until its next use; empty for kSame
  double ideal_bits = 0;               // entropy given the classes; 0 where it is not known
};

// What encode_chunk needs beside the chunk: about 8 MiB, touched only as far as a chunk needs it.
// Threads: one at a time; one per worker.
class EncodeWorkspace {
 public:
  EncodeWorkspace();
  ~EncodeWorkspace();
  EncodeWorkspace(EncodeWorkspace&&) noexcept;
  EncodeWorkspace& operator=(EncodeWorkspace&&) noexcept;

  struct Lists;
  Lists& lists() { return *lists_; }

 private:
  std::unique_ptr<Lists> lists_;
};

// Errors: kUnsupported (a forced type that cannot express this element size), kConfig (lengths,
// WEFT_KERNELS).
Result<EncodedChunk> encode_chunk(const ChunkInput& input, const EncodeChoice& choice,
                                  EncodeWorkspace& workspace);

}  // namespace weft::codec
