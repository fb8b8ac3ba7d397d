// SPDX-License-Identifier: Apache-2.0
#include "apply/store/posix_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>

#include "apply/store/native_error.hpp"
#include "apply/store/transfer.hpp"

namespace weft::apply {

Error PosixFile::error(int native, const char* call) const {
  return native_error(native, Stage::kApply, std::string(call) + " " + name_);
}

Result<std::size_t> PosixFile::read_up_to(std::uint64_t offset, std::span<std::byte> into) const {
  if (into.empty()) return std::size_t{0};
  Transfer transfer(Transfer::Direction::kRead, into.size());
  for (;;) {
    const std::uint64_t done = transfer.done_bytes();
    const ssize_t answer = ::pread(descriptor_.number(), into.data() + done, into.size() - done,
                                   static_cast<off_t>(offset + done));
    switch (transfer.advance(answer < 0 ? -errno : answer)) {
      case Transfer::Next::kContinue:
        continue;
      case Transfer::Next::kFailed:
        return error(transfer.native_error(), "read");
      case Transfer::Next::kDone:
      case Transfer::Next::kEnd:
        return static_cast<std::size_t>(transfer.done_bytes());
    }
  }
}

Status PosixFile::read(std::uint64_t offset, std::span<std::byte> into) const {
  WEFT_TRY(const std::size_t count, read_up_to(offset, into));
  if (count == into.size()) return ok();
  return failure(ErrorCode::kConcurrentModification, Stage::kApply,
                 name_ + " ends at byte " + std::to_string(offset + count) + ", " +
                     std::to_string(into.size() - count) + " bytes short of a read");
}

Status PosixFile::write(std::uint64_t offset, std::span<const std::byte> bytes) {
  if (bytes.empty()) return ok();
  Transfer transfer(Transfer::Direction::kWrite, bytes.size());
  for (;;) {
    const std::uint64_t done = transfer.done_bytes();
    const ssize_t answer = ::pwrite(descriptor_.number(), bytes.data() + done, bytes.size() - done,
                                    static_cast<off_t>(offset + done));
    const auto next = transfer.advance(answer < 0 ? -errno : answer);
    if (next == Transfer::Next::kDone) return ok();
    if (next != Transfer::Next::kContinue) return error(transfer.native_error(), "write");
  }
}

Status PosixFile::sync() {
  if (durability_ == Durability::kProcess) return ok();
  if (::fdatasync(descriptor_.number()) != 0) return error(errno, "sync");
  return ok();
}

Status PosixFile::write_zeros(std::uint64_t offset, std::uint64_t bytes) {
  const std::array<std::byte, 64 * 1024> zeros{};
  while (bytes > 0) {
    const std::size_t part = static_cast<std::size_t>(std::min<std::uint64_t>(bytes, zeros.size()));
    WEFT_TRY_STATUS(write(offset, std::span(zeros).first(part)));
    offset += part;
    bytes -= part;
  }
  return ok();
}

Status PosixFile::allocate(std::uint64_t offset, std::uint64_t bytes, bool grow) {
  if (bytes == 0) return ok();
  for (std::uint32_t attempt = 0; attempt <= limits::kIoRetriesMax; ++attempt) {
    if (::fallocate(descriptor_.number(), grow ? 0 : FALLOC_FL_KEEP_SIZE,
                    static_cast<off_t>(offset), static_cast<off_t>(bytes)) == 0) {
      return ok();
    }
    if (errno == EINTR) continue;
    if (errno != EOPNOTSUPP || !grow) return error(errno, "allocate");
    // A filesystem without fallocate: blocks come from writing what is not there yet.
    WEFT_TRY(const std::uint64_t present, size());
    const std::uint64_t start = std::max(present, offset);
    return start >= offset + bytes ? ok() : write_zeros(start, offset + bytes - start);
  }
  return error(EINTR, "allocate");
}

Status PosixFile::truncate(std::uint64_t bytes) {
  if (::ftruncate(descriptor_.number(), static_cast<off_t>(bytes)) != 0) {
    return error(errno, "truncate");
  }
  return ok();
}

Result<std::uint64_t> PosixFile::size() const {
  WEFT_TRY(const FileIdentity found, identity());
  return found.bytes;
}

Result<FileIdentity> PosixFile::identity() const {
  return identity_of_descriptor(descriptor_.number(), name_);
}

Result<FileIdentity> identity_of_descriptor(int descriptor, const std::string& what) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) return native_error(errno, Stage::kOpen, "stat " + what);
  const auto nanoseconds = [](const timespec& time) {
    return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
  };
  return FileIdentity{status.st_dev, status.st_ino, static_cast<std::uint64_t>(status.st_size),
                      nanoseconds(status.st_mtim), nanoseconds(status.st_ctim)};
}

Result<bool> PosixFile::has_holes() const {
  WEFT_TRY(const std::uint64_t bytes, size());
  if (bytes == 0) return false;
  const off_t hole = ::lseek(descriptor_.number(), 0, SEEK_HOLE);
  if (hole < 0 && errno != EINVAL) return error(errno, "look for holes in");
  return hole >= 0 && static_cast<std::uint64_t>(hole) < bytes;
}

void PosixFile::start_writeback(std::uint64_t offset, std::uint64_t bytes) {
  if (durability_ == Durability::kProcess) return;
  static_cast<void>(::sync_file_range(descriptor_.number(), static_cast<off_t>(offset),
                                      static_cast<off_t>(bytes), SYNC_FILE_RANGE_WRITE));
}

void PosixFile::drop_cache(std::uint64_t offset, std::uint64_t bytes) {
  static_cast<void>(::posix_fadvise(descriptor_.number(), static_cast<off_t>(offset),
                                    static_cast<off_t>(bytes), POSIX_FADV_DONTNEED));
}

}  // namespace weft::apply
