// SPDX-License-Identifier: Apache-2.0
// One chunk, payload and old values to new values. The payload may be hostile, and may change while
// it is read: it is copied to private memory once and only the copy is parsed.
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

// Exactly payload.size() and old_bytes.size() bytes are read: nothing behind them; any alignment.
// Threads: a value; one at a time.
struct DecodeInput {
  wire::IndexEntry entry;  // a private copy
  std::span<const std::byte> payload;
  std::span<const std::byte> old_bytes;  // the chunk's old bytes; empty only for raw
  ElementFormat format;
  // The digest table's entry of the old bytes. When given, a failure on a wrong base is told apart
  // as kBaseMismatch.
  std::optional<std::uint64_t> old_digest;
  bool verify = true;                     // false only in benchmarks: the result is not hashed
  const KernelSet* kernel_set = nullptr;  // for tests; null: this process's
};

// About 4 MiB, touched only as far as a chunk needs it.
// Threads: one at a time; one per worker.
class DecodeWorkspace {
 public:
  DecodeWorkspace();
  ~DecodeWorkspace();
  DecodeWorkspace(DecodeWorkspace&&) noexcept;
  DecodeWorkspace& operator=(DecodeWorkspace&&) noexcept;

  struct Lists;
  Lists& lists() { return *lists_; }

 private:
  std::unique_ptr<Lists> lists_;
};

// Writes new_bytes (the chunk's size) and nothing else, and checks them against entry.new_digest.
// new_bytes is scratch: on an error its content is unspecified. It must not overlap old_bytes.
// Errors: kCorruptPayload, kBaseMismatch, kDecodeLimit (a count or length above its bound), kConfig
// (WEFT_KERNELS).
Status decode_chunk(const DecodeInput& input, DecodeWorkspace& workspace,
                    std::span<std::byte> new_bytes);

// Offsets (elements within the chunk, ascending) of the elements whose bits differ; the span lies
// in the workspace until its next use.
std::span<const std::uint32_t> changed_offsets(std::span<const std::byte> old_bytes,
                                               std::span<const std::byte> new_bytes,
                                               std::uint32_t element_bytes,
                                               DecodeWorkspace& workspace);

}  // namespace weft::codec
