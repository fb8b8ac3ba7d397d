// SPDX-License-Identifier: Apache-2.0
// A refit in one file: what `weft diff -o` writes and `weft apply` reads
// (docs/formats/delta-file.md).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "apply/store/store.hpp"
#include "codec/flow/encode_flow.hpp"
#include "codec/project/lattice.hpp"
#include "weft/base/result.hpp"
#include "weft/wire/manifest.hpp"

namespace weft::apply {

// DeltaFileWriter takes the frames of one producer after the other and closes with the manifest.
// The file appears under its name only when it is whole.
// Owns:    the file under a temporary name, removed when finish() was not reached.
// Threads: as FrameSink; the others one at a time.
class DeltaFileWriter final : public codec::FrameSink {
 public:
  // Replaces an existing file `name` at finish(). The store must outlive the writer.
  static Result<std::unique_ptr<DeltaFileWriter>> open(Store& store, std::string name,
                                                       const codec::Schema& schema,
                                                       const codec::Lattice& lattice);
  ~DeltaFileWriter() override;

  Status take(SharedSlot slot, const wire::FrameHeader& header) override;
  // Synced and renamed. Returns the file's bytes.
  Result<std::uint64_t> finish(const wire::Manifest& manifest);

 private:
  DeltaFileWriter(Store& store, std::string name) : store_(store), name_(std::move(name)) {}

  Store& store_;
  std::string name_;
  std::string fresh_name_;
  std::unique_ptr<File> file_;
  std::uint64_t end_ = 0;
  std::uint64_t frames_begin_ = 0;
  std::uint64_t frame_count_ = 0;
  bool finished_ = false;
};

// DeltaFileReader checks header, manifest and footer at open(); frames are checked by whoever opens
// them.
// Owns:    the file.
// Threads: one at a time.
class DeltaFileReader {
 public:
  // Errors: kFormat (not such a file, truncated, trailing bytes, damaged), kUnsupported (version).
  static Result<std::unique_ptr<DeltaFileReader>> open(Store& store, std::string_view name);

  const wire::Manifest& manifest() const { return manifest_; }
  const Digest& schema_digest() const { return schema_digest_; }
  const Digest& lattice_digest() const { return lattice_digest_; }
  // Errors: kSchemaChanged when the checkpoint is not of the file's schema; kFormat.
  Result<codec::Lattice> lattice(const codec::Schema& schema) const;
  std::uint64_t file_bytes() const { return file_bytes_; }
  std::uint64_t frame_count() const { return frame_count_; }

  // Header and body of the next frame, or nullopt behind the last; `into` is resized. Errors:
  // kFormat, kCorruptPayload.
  Result<std::optional<wire::FrameHeader>> next_frame(std::vector<std::byte>& into);
  void rewind() { at_ = frames_begin_; }

 private:
  DeltaFileReader() = default;

  std::unique_ptr<File> file_;
  wire::Manifest manifest_;
  Digest schema_digest_;
  Digest lattice_digest_;
  std::vector<std::byte> lattice_body_;
  std::uint64_t file_bytes_ = 0;
  std::uint64_t frames_begin_ = 0;
  std::uint64_t frames_end_ = 0;
  std::uint64_t frame_count_ = 0;
  std::uint64_t at_ = 0;
};

}  // namespace weft::apply
