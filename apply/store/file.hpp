// SPDX-License-Identifier: Apache-2.0
// An open file of a Store: exact reads and writes at offsets, real allocation, data sync.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "weft/base/result.hpp"

namespace weft::apply {

enum class Access : std::uint8_t { kRead, kReadWrite };

// What tells one file at one moment from another, or from itself after a change.
struct FileIdentity {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::uint64_t bytes = 0;
  std::int64_t mtime_ns = 0;
  std::int64_t ctime_ns = 0;
  auto operator<=>(const FileIdentity&) const = default;
};

// Short reads and writes are continued and interruptions repeated (at most limits::kIoRetriesMax
// times) below this line: a call did all it was asked for, or it failed.
// Errors:  kNoSpace (ENOSPC, EDQUOT), kIoFailed (EIO, and a write that makes no progress),
//          kResourceLimit (EFBIG, EMFILE, ENFILE, ENOMEM), kDenied (EACCES, EPERM, EROFS, a link),
//          kConcurrentModification (the file ends before the bytes that were asked for).
// Threads: any for read, read_up_to, write to disjoint ranges, size and identity; the others one at
//          a time.
class File {
 public:
  virtual ~File() = default;
  File() = default;
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  virtual Status read(std::uint64_t offset, std::span<std::byte> into) const = 0;
  // Fewer bytes than asked only where the file ends.
  virtual Result<std::size_t> read_up_to(std::uint64_t offset, std::span<std::byte> into) const = 0;
  virtual Status write(std::uint64_t offset, std::span<const std::byte> bytes) = 0;
  // Every byte written before this call, and the size, survive a power cut. A failed sync is final:
  // the caller must not take a later success for it.
  virtual Status sync() = 0;
  // Real blocks for [offset, offset + bytes): writes there do not run out of space later. The size
  // grows to cover the range when `grow` is set, reading as zeros; else it stays.
  virtual Status allocate(std::uint64_t offset, std::uint64_t bytes, bool grow) = 0;
  virtual Status truncate(std::uint64_t bytes) = 0;
  virtual Result<std::uint64_t> size() const = 0;
  virtual Result<FileIdentity> identity() const = 0;
  // Whether some range has no blocks of its own yet, so that writing there could run out of space.
  virtual Result<bool> has_holes() const { return false; }
  // Hints, never an error: start writing dirty pages of the range back; forget clean ones. They
  // bound how much page cache a large pass keeps (case B-092).
  virtual void start_writeback(std::uint64_t offset, std::uint64_t bytes) = 0;
  virtual void drop_cache(std::uint64_t offset, std::uint64_t bytes) = 0;
  // For messages: the path as it was opened.
  virtual const std::string& name() const = 0;
  // The kernel's descriptor, or -1 when there is none (memory).
  virtual int native_handle() const { return -1; }
};

}  // namespace weft::apply
