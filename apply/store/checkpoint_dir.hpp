// SPDX-License-Identifier: Apache-2.0
// A checkpoint on disk: safetensors files beneath one directory, read by chunk.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "apply/store/store.hpp"
#include "codec/project/lattice.hpp"
#include "codec/safetensors/schema.hpp"
#include "weft/base/event_sink.hpp"
#include "weft/base/result.hpp"

namespace weft::apply {

inline constexpr std::string_view kIndexFileName = "model.safetensors.index.json";

// CheckpointDir holds every file of a checkpoint open. Bytes are read with pread, never through a
// mapping: a file that someone truncates gives an error, not a signal (case B-013).
// 1. open(): reads index and headers, builds the schema, remembers every file's identity.
// 2. read(): bytes of one chunk, from any thread.
// 3. check_identity(): what was read since open() (or the last refresh_identity()) was one state.
// 4. open_for_writing(): before a vote; from then on the descriptors write.
// Owns:    the store and the open files.
// Threads: any for the const members; the others one at a time, with no reader at work.
class CheckpointDir {
 public:
  // With an index file it is authoritative: files and tensors it does not name are left alone.
  // Errors: kFormat, kInconsistentCheckpoint, kDenied (a link, a name that leads elsewhere),
  //         kResourceLimit (more files than descriptors; says how many), kConcurrentModification.
  static Result<CheckpointDir> open(std::unique_ptr<Store> store, Access access);
  static Result<CheckpointDir> open_path(const std::string& path, Access access,
                                         const StoreOptions& options, EventSink& events);

  const codec::Schema& schema() const { return schema_; }
  Store& store() const { return *store_; }
  std::size_t file_count() const { return files_.size(); }
  File& file(std::uint32_t file_index) const { return *files_[file_index]; }
  bool writable() const { return writable_; }
  // Files and tensors that are left alone, for a log line.
  const std::vector<std::string>& warnings() const { return warnings_; }
  // Places are those of schema().files(); the index file's, if there is one, comes last.
  const std::vector<FileIdentity>& identities() const { return identities_; }

  // `into` is the chunk's size. Short runs of a column cut are read together with what lies between
  // them. Errors: kConcurrentModification when the file has become shorter.
  Status read(const codec::ChunkPlace& place, std::span<std::byte> into) const;
  // Every open file and every name still is what open() found, or kConcurrentModification. Catches
  // truncation, rewriting in place, a file renamed over another, and removal.
  Status check_identity() const;
  // After this process has changed files itself: what they are now is what counts. Errors:
  // kConcurrentModification when a name no longer leads to the open file or its size has changed.
  Status refresh_identity();

  // Opens every file for writing (the same inode as before) and makes real blocks for holes, so
  // that applying needs no space. Idempotent. Nothing is written. Errors: kDenied, kNoSpace.
  Status open_for_writing();
  // Data of all files is durable.
  Status sync();

 private:
  CheckpointDir() = default;
  Status open_files(const std::vector<std::string>& names,
                    const std::optional<codec::IndexFile>& index, Access access);
  Result<std::vector<std::string>> list_files() const;
  Status read_runs(const codec::ChunkPlace& place, std::span<std::byte> into) const;
  Status count_strays(const std::vector<std::string>& names);
  Result<FileIdentity> identity_of_name(std::size_t place) const;

  std::unique_ptr<Store> store_;
  std::vector<std::unique_ptr<File>> files_;
  std::unique_ptr<File> index_file_;
  std::vector<FileIdentity> identities_;
  codec::Schema schema_;
  std::vector<std::string> warnings_;
  bool writable_ = false;
};

// Raises the soft limit of open files so that `more` further ones fit. Errors: kResourceLimit with
// what is needed and what the hard limit allows.
Status reserve_descriptors(std::size_t more);

}  // namespace weft::apply
