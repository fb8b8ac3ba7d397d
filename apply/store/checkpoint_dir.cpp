// SPDX-License-Identifier: Apache-2.0
#include "apply/store/checkpoint_dir.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "apply/store/native_error.hpp"
#include "weft/base/assert.hpp"
#include "weft/base/limits.hpp"

namespace weft::apply {

namespace {

constexpr std::string_view kSuffix = ".safetensors";
// Reading a hole of this size costs about as much as another system call.
constexpr std::uint64_t kHoleBytesMax = 8 * 1024;
constexpr std::uint64_t kRowsBytesMax = 1024 * 1024;

Error changed(const std::string& name, const std::string& how) {
  return failure(ErrorCode::kConcurrentModification, Stage::kOpen, name + " " + how);
}

Result<std::vector<std::byte>> read_whole(const File& file, std::uint64_t bytes_max) {
  WEFT_TRY(const std::uint64_t bytes, file.size());
  if (bytes > bytes_max) {
    return failure(ErrorCode::kResourceLimit, Stage::kOpen,
                   file.name() + " has " + std::to_string(bytes) + " bytes; at most " +
                       std::to_string(bytes_max));
  }
  std::vector<std::byte> content(static_cast<std::size_t>(bytes));
  WEFT_TRY_STATUS(file.read(0, content));
  return content;
}

// Only the header is read; memory is bounded by the format's own limit (case B-001).
Result<codec::FileHeader> read_header(const File& file, std::uint64_t file_bytes,
                                      const std::string& name) {
  std::vector<std::byte> first(codec::kHeaderLengthBytes);
  WEFT_TRY(const std::size_t found, file.read_up_to(0, first));
  first.resize(found);
  WEFT_TRY(const std::uint64_t length, codec::parse_header_length(first, file_bytes, name));
  std::vector<std::byte> text(static_cast<std::size_t>(length));
  WEFT_TRY_STATUS(file.read(codec::kHeaderLengthBytes, text));
  return codec::parse_header(text, file_bytes, name);
}

}  // namespace

Result<CheckpointDir> CheckpointDir::open_path(const std::string& path, Access access,
                                               const StoreOptions& options, EventSink& events) {
  auto store = open_store(path, options, events);
  if (!store) {
    Error error = std::move(store).error();
    // Not the disk's fault: what was asked for is no directory.
    if (is_missing(error) || error.native == ENOTDIR) error.code = ErrorCode::kConfig;
    return error;
  }
  auto opened = open(*std::move(store), access);
  if (!opened) opened.error().detail = path + ": " + opened.error().detail;
  return opened;
}

Result<CheckpointDir> CheckpointDir::open(std::unique_ptr<Store> store, Access access) {
  CheckpointDir directory;
  directory.store_ = std::move(store);
  std::optional<codec::IndexFile> index;
  std::vector<std::string> names;
  auto index_file = directory.store_->open(kIndexFileName, Access::kRead);
  if (index_file) {
    WEFT_TRY(const auto text, read_whole(**index_file, limits::kIndexBytesMax));
    WEFT_TRY(index, codec::parse_index(text));
    names = index->files;
    directory.index_file_ = *std::move(index_file);
    WEFT_TRY_STATUS(directory.count_strays(names));
  } else if (is_missing(index_file.error())) {
    WEFT_TRY(names, directory.list_files());
  } else {
    return index_file.error();
  }
  WEFT_TRY_STATUS(directory.open_files(names, index, access));
  // What was parsed is still what is there.
  WEFT_TRY_STATUS(directory.check_identity());
  return directory;
}

Result<std::vector<std::string>> CheckpointDir::list_files() const {
  WEFT_TRY(const auto entries, store_->list());
  std::vector<std::string> names;
  for (const DirectoryEntry& entry : entries) {
    if (!entry.is_directory && entry.name.ends_with(kSuffix)) names.push_back(entry.name);
  }
  if (names.empty()) {
    return failure(ErrorCode::kInconsistentCheckpoint, Stage::kOpen,
                   "no .safetensors file and no index in the directory");
  }
  std::sort(names.begin(), names.end());
  return names;
}

// Files that the index does not name are never read or written (case B-011).
Status CheckpointDir::count_strays(const std::vector<std::string>& names) {
  WEFT_TRY(const auto entries, store_->list());
  const auto strays = std::count_if(entries.begin(), entries.end(), [&](const auto& entry) {
    return !entry.is_directory && entry.name.ends_with(kSuffix) &&
           !std::binary_search(names.begin(), names.end(), entry.name);
  });
  if (strays > 0) {
    warnings_.push_back(std::to_string(strays) +
                        " .safetensors files are not named by the index and are left alone");
  }
  return ok();
}

Status CheckpointDir::open_files(const std::vector<std::string>& names,
                                 const std::optional<codec::IndexFile>& index, Access access) {
  if (names.size() > limits::kFilesMax) {
    return failure(
        ErrorCode::kResourceLimit, Stage::kOpen,
        std::to_string(names.size()) + " files; at most " + std::to_string(limits::kFilesMax));
  }
  WEFT_TRY_STATUS(reserve_descriptors(names.size()));
  std::vector<codec::FileInput> inputs;
  std::vector<std::unique_ptr<File>> files;
  std::vector<FileIdentity> identities;
  for (const std::string& name : names) {
    auto file = store_->open(name, access);
    if (!file && is_missing(file.error())) {
      return failure(ErrorCode::kInconsistentCheckpoint, Stage::kOpen,
                     "the index names " + name + ", which is not there");
    }
    if (!file) return file.error();
    WEFT_TRY(const FileIdentity identity, (*file)->identity());
    WEFT_TRY(auto header, read_header(**file, identity.bytes, name));
    inputs.push_back({name, identity.bytes, std::move(header)});
    files.push_back(*std::move(file));
    identities.push_back(identity);
  }
  WEFT_TRY(schema_, codec::build_schema(std::move(inputs), index));
  // The schema has its own order of files, and leaves out those that own no tensor.
  for (const codec::SchemaFile& file : schema_.files()) {
    const auto place = static_cast<std::size_t>(
        std::lower_bound(names.begin(), names.end(), file.name) - names.begin());
    WEFT_ASSERT(place < names.size() && files[place] != nullptr);
    files_.push_back(std::move(files[place]));
    identities_.push_back(identities[place]);
  }
  if (index_file_ != nullptr) {
    WEFT_TRY(const FileIdentity identity, index_file_->identity());
    identities_.push_back(identity);
  }
  warnings_.insert(warnings_.end(), schema_.warnings().begin(), schema_.warnings().end());
  writable_ = access == Access::kReadWrite;
  return ok();
}

Status CheckpointDir::read(const codec::ChunkPlace& place, std::span<std::byte> into) const {
  WEFT_ASSERT(into.size() == place.bytes());
  if (!place.is_one_run()) return read_runs(place, into);
  const codec::Tensor& tensor = schema_.tensor(place.tensor);
  return files_[tensor.file_index]->read(
      tensor.file_offset + place.first_element * tensor.element_bytes, into);
}

Status CheckpointDir::read_runs(const codec::ChunkPlace& place, std::span<std::byte> into) const {
  static thread_local std::vector<std::byte> rows;
  const codec::Tensor& tensor = schema_.tensor(place.tensor);
  const File& file = *files_[tensor.file_index];
  const std::uint64_t width = tensor.element_bytes;
  const auto bytes_at = [&](std::uint64_t element) { return tensor.file_offset + element * width; };
  codec::ChunkRuns ahead(place);
  codec::ChunkRuns behind(place);
  codec::ChunkRun run;
  for (bool more = ahead.next(run); more;) {
    const std::uint64_t begin = run.first_element;
    std::uint64_t end = begin;
    std::uint32_t count = 0;
    do {
      end = run.first_element + run.element_count;
      ++count;
      more = ahead.next(run);
    } while (more && (run.first_element - end) * width <= kHoleBytesMax &&
             (run.first_element + run.element_count - begin) * width <= kRowsBytesMax);
    const auto place_of = [&](const codec::ChunkRun& one) {
      return into.subspan(one.offset * width, one.element_count * width);
    };
    codec::ChunkRun copied;
    if (count == 1) {
      behind.next(copied);
      WEFT_TRY_STATUS(file.read(bytes_at(begin), place_of(copied)));
      continue;
    }
    rows.resize(kRowsBytesMax);
    WEFT_TRY_STATUS(file.read(
        bytes_at(begin), std::span(rows).first(static_cast<std::size_t>((end - begin) * width))));
    for (; count > 0; --count) {
      behind.next(copied);
      const auto part = place_of(copied);
      std::memcpy(part.data(), &rows[(copied.first_element - begin) * width], part.size());
    }
  }
  return ok();
}

Result<FileIdentity> CheckpointDir::identity_of_name(std::size_t place) const {
  const bool is_index = place >= files_.size();
  return store_->identity(is_index ? kIndexFileName
                                   : std::string_view(schema_.files()[place].name));
}

Status CheckpointDir::check_identity() const {
  for (std::size_t i = 0; i < identities_.size(); ++i) {
    const File& file = i < files_.size() ? *files_[i] : *index_file_;
    WEFT_TRY(const FileIdentity held, file.identity());
    if (held.bytes != identities_[i].bytes) {
      return changed(file.name(), "had " + std::to_string(identities_[i].bytes) +
                                      " bytes when it was opened and has " +
                                      std::to_string(held.bytes));
    }
    const auto named = identity_of_name(i);
    if (!named && is_missing(named.error())) return changed(file.name(), "has been removed");
    if (!named) return named.error();
    if (named->inode != held.inode || named->device != held.device) {
      return changed(file.name(), "has been replaced by another file");
    }
    if (held != identities_[i]) return changed(file.name(), "has been written to");
  }
  return ok();
}

Status CheckpointDir::refresh_identity() {
  std::vector<FileIdentity> fresh;
  for (std::size_t i = 0; i < identities_.size(); ++i) {
    const File& file = i < files_.size() ? *files_[i] : *index_file_;
    WEFT_TRY(const FileIdentity held, file.identity());
    const auto named = identity_of_name(i);
    if (!named && !is_missing(named.error())) return named.error();
    if (!named || named->inode != held.inode || named->device != held.device ||
        held.bytes != identities_[i].bytes) {
      return changed(file.name(), "is not the file that was opened any more");
    }
    fresh.push_back(held);
  }
  identities_ = std::move(fresh);
  return ok();
}

Status CheckpointDir::open_for_writing() {
  if (!writable_) {
    // All or none: a refusal leaves every descriptor as it was.
    std::vector<std::unique_ptr<File>> opened;
    WEFT_TRY_STATUS(reserve_descriptors(files_.size()));
    for (std::size_t i = 0; i < files_.size(); ++i) {
      auto file = store_->open(schema_.files()[i].name, Access::kReadWrite);
      if (!file) return at_stage(std::move(file).error(), Stage::kPrepare);
      WEFT_TRY(const FileIdentity found, (*file)->identity());
      if (found != identities_[i]) {
        return changed((*file)->name(), "is not the file that was read");
      }
      opened.push_back(*std::move(file));
    }
    files_ = std::move(opened);
    writable_ = true;
  }
  bool allocated = false;
  for (const auto& file : files_) {
    WEFT_TRY(const bool holes, file->has_holes());
    if (!holes) continue;
    WEFT_TRY(const std::uint64_t bytes, file->size());
    Status reserved = file->allocate(0, bytes, false);
    // A filesystem that cannot reserve still has the file's blocks for all but its holes.
    if (!reserved && reserved.error().code != ErrorCode::kUnsupported) return reserved;
    allocated = true;
  }
  return allocated ? refresh_identity() : ok();
}

Status CheckpointDir::sync() {
  for (const auto& file : files_) WEFT_TRY_STATUS(file->sync());
  return ok();
}

}  // namespace weft::apply
