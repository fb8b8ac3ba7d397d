// SPDX-License-Identifier: Apache-2.0
#include "apply/store/weight_set.hpp"

#include <sys/stat.h>

#include <cerrno>
#include <string>

#include "apply/store/native_error.hpp"
#include "weft/base/units.hpp"
#include "weft/wire/byte_io.hpp"
#include "weft/wire/digest.hpp"

namespace weft::apply {

namespace {

constexpr std::uint64_t kStampMagic = 0x504D'5453'5446'4557;  // "WEFTSTMP" in memory order
constexpr std::uint32_t kStampFormatVersion = 1;
constexpr std::uint64_t kStampBytesMax = 64 * kMiB;
constexpr std::size_t kIdentityBytes = 40;
constexpr std::string_view kOwnFilesPrefix = "weft.";
constexpr unsigned kReadableByAll = 0644;
constexpr int kFoldersMax = 16;
constexpr std::size_t kCopyBytes = kMiB;
constexpr std::uint64_t kWritebackBytes = 64 * kMiB;

std::optional<SetStamp> decode(std::span<const std::byte> bytes) {
  if (bytes.size() < 8) return std::nullopt;
  const auto body = bytes.first(bytes.size() - 8);
  if (wire::load_le<std::uint64_t>(bytes.data() + body.size()) != wire::digest64(body)) {
    return std::nullopt;
  }
  wire::ByteReader in(body);
  if (in.read<std::uint64_t>() != kStampMagic || in.read<std::uint32_t>() != kStampFormatVersion) {
    return std::nullopt;
  }
  SetStamp stamp;
  stamp.clean = in.read<std::uint32_t>() == 1;
  stamp.content = in.read_content();
  stamp.boot_id = in.read_bits128();
  const auto count = in.read<std::uint32_t>();
  if (!in.ok() || in.remaining() != count * kIdentityBytes) return std::nullopt;
  stamp.files.resize(count);
  for (FileIdentity& file : stamp.files) {
    file.device = in.read<std::uint64_t>();
    file.inode = in.read<std::uint64_t>();
    file.bytes = in.read<std::uint64_t>();
    file.mtime_ns = static_cast<std::int64_t>(in.read<std::uint64_t>());
    file.ctime_ns = static_cast<std::int64_t>(in.read<std::uint64_t>());
  }
  return stamp;
}

std::vector<std::byte> encode(const SetStamp& stamp) {
  wire::ByteWriter out;
  out.write(kStampMagic);
  out.write(kStampFormatVersion);
  out.write(std::uint32_t{stamp.clean ? 1U : 0U});
  out.write_content(stamp.content);
  out.write_bits128(stamp.boot_id);
  out.write(static_cast<std::uint32_t>(stamp.files.size()));
  for (const FileIdentity& file : stamp.files) {
    out.write(file.device);
    out.write(file.inode);
    out.write(file.bytes);
    out.write(static_cast<std::uint64_t>(file.mtime_ns));
    out.write(static_cast<std::uint64_t>(file.ctime_ns));
  }
  out.write(wire::digest64(out.bytes()));
  return std::move(out).take();
}

// Stores without descriptors (memory) have no modes.
Status set_mode(const File& file, unsigned mode) {
  if (file.native_handle() < 0 || ::fchmod(file.native_handle(), mode) == 0) return ok();
  return native_error(errno, Stage::kApply, "change the mode of " + file.name());
}

Result<unsigned> mode_of(const File& file) {
  struct stat status {};
  if (file.native_handle() < 0) return kReadableByAll;
  if (::fstat(file.native_handle(), &status) != 0) {
    return native_error(errno, Stage::kApply, "stat " + file.name());
  }
  return static_cast<unsigned>(status.st_mode) & 07777U;
}

Status copy_bytes(const File& source, File& target, std::uint64_t bytes) {
  std::vector<std::byte> part(kCopyBytes);
  std::uint64_t behind = 0;  // write-back has been started up to here
  for (std::uint64_t at = 0; at < bytes; at += part.size()) {
    part.resize(static_cast<std::size_t>(std::min<std::uint64_t>(bytes - at, kCopyBytes)));
    WEFT_TRY_STATUS(source.read(at, part));
    WEFT_TRY_STATUS(target.write(at, part));
    if (at + part.size() - behind >= kWritebackBytes) {
      target.start_writeback(behind, at + part.size() - behind);
      behind = at + part.size();
    }
  }
  return target.sync();
}

Status copy_file(Store& source_store, Store& target_store, const std::string& name,
                 bool space_only) {
  WEFT_TRY(const auto source, source_store.open(name, Access::kRead));
  auto target = target_store.open(name, Access::kReadWrite);
  const bool created = !target && is_missing(target.error());
  if (created) target = target_store.create(name);
  if (!target) return std::move(target).error();
  WEFT_TRY(const std::uint64_t bytes, source->size());
  WEFT_TRY(const std::uint64_t there, (*target)->size());
  if (there > bytes) WEFT_TRY_STATUS((*target)->truncate(bytes));
  Status reserved = bytes == 0 ? ok() : (*target)->allocate(0, bytes, true);
  // A filesystem that cannot reserve still takes the bytes, or says kNoSpace when they come.
  if (!reserved && reserved.error().code != ErrorCode::kUnsupported) return reserved;
  if (created) {
    WEFT_TRY(const unsigned mode, mode_of(*source));
    WEFT_TRY_STATUS(set_mode(**target, mode));
  }
  return space_only ? ok() : copy_bytes(*source, **target, bytes);
}

Status copy_folder(Store& source, Store& target, bool space_only, int depth) {
  if (depth > kFoldersMax) {
    return failure(ErrorCode::kResourceLimit, Stage::kApply,
                   "a set of weight files has folders more than 16 deep");
  }
  WEFT_TRY(const auto entries, source.list());
  for (const DirectoryEntry& entry : entries) {
    if (depth == 0 && entry.name.starts_with(kOwnFilesPrefix)) continue;
    if (entry.is_directory) {
      WEFT_TRY(const auto source_below, source.open_directory(entry.name, false));
      WEFT_TRY(const auto target_below, target.open_directory(entry.name, true));
      WEFT_TRY_STATUS(copy_folder(*source_below, *target_below, space_only, depth + 1));
    } else if (entry.is_file) {
      WEFT_TRY_STATUS(copy_file(source, target, entry.name, space_only));
    }
  }
  return target.sync_directory();
}

}  // namespace

Result<std::optional<SetStamp>> read_stamp(Store& set) {
  auto file = set.open(kStampName, Access::kRead);
  if (!file && is_missing(file.error())) return std::optional<SetStamp>();
  if (!file) return std::move(file).error();
  WEFT_TRY(const std::uint64_t bytes, (*file)->size());
  if (bytes > kStampBytesMax) return std::optional<SetStamp>();
  std::vector<std::byte> content(static_cast<std::size_t>(bytes));
  WEFT_TRY_STATUS((*file)->read(0, content));
  return decode(content);
}

Status replace_small_file(Store& directory, std::string_view name,
                          std::span<const std::byte> bytes) {
  const std::string fresh = std::string(name) + ".new";
  WEFT_TRY_STATUS(directory.remove_tree(fresh));
  WEFT_TRY(const auto file, directory.create(fresh));
  WEFT_TRY_STATUS(set_mode(*file, kReadableByAll));
  WEFT_TRY_STATUS(file->write(0, bytes));
  WEFT_TRY_STATUS(file->sync());
  WEFT_TRY_STATUS(directory.rename(fresh, name));
  return directory.sync_directory();
}

Status write_stamp(Store& set, const SetStamp& stamp) {
  return replace_small_file(set, kStampName, encode(stamp));
}

Status copy_set(Store& source, Store& target, bool space_only) {
  return copy_folder(source, target, space_only, 0);
}

}  // namespace weft::apply
