// SPDX-License-Identifier: Apache-2.0
// The seam between weft and a disk: plain files beneath one held directory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "apply/store/file.hpp"
#include "apply/store/io_queue.hpp"
#include "weft/base/event_sink.hpp"
#include "weft/base/result.hpp"

namespace weft::apply {

enum class Engine : std::uint8_t { kAuto, kUring, kPosix };
// kProcess: nothing is synced; what is on disk is trusted only while the machine runs.
enum class Durability : std::uint8_t { kDisk, kProcess };
enum class LockMode : std::uint8_t { kShared, kExclusive };

struct StoreOptions {
  Engine engine = Engine::kAuto;
  Durability durability = Durability::kDisk;
};

// A held advisory lock; gone when this object or the process is.
// Threads: one at a time.
class FileLock {
 public:
  virtual ~FileLock() = default;
  FileLock() = default;
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
};

struct DirectoryEntry {
  std::string name;
  bool is_directory = false;
  bool is_file = false;  // a plain file; neither for links, sockets and devices
};

// Names are relative, of plain components ("a.safetensors", "sub/b.safetensors"): an empty one, an
// absolute one, "." and "..", and NUL are refused (kDenied), and so is every symbolic link on the
// way. Nothing outside the held directory can be reached (cases B-087, B-090).
// Errors:  as File; a missing name is kIoFailed with native ENOENT (see is_missing), an existing
// one
//          on create is kDenied with native EEXIST (see is_existing).
// Threads: any; every File and IoQueue says its own.
class Store {
 public:
  virtual ~Store() = default;
  Store() = default;
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  virtual Result<std::unique_ptr<File>> open(std::string_view name, Access access) = 0;
  // A new file of mode 0600; never an existing one, never through a link.
  virtual Result<std::unique_ptr<File>> create(std::string_view name) = 0;
  // A directory below, as a store of its own; made with mode 0700 when `create` is set and it is
  // missing.
  virtual Result<std::unique_ptr<Store>> open_directory(std::string_view name, bool create) = 0;
  // Replaces `to`. Durable after sync_directory().
  virtual Status rename(std::string_view from, std::string_view to) = 0;
  // Every create, rename and remove directly in this directory survives a power cut.
  virtual Status sync_directory() = 0;
  virtual Status remove(std::string_view name) = 0;
  // A file, or a directory with all that is below it; links are removed, not followed. Success when
  // nothing is there.
  virtual Status remove_tree(std::string_view name) = 0;
  virtual Result<std::vector<DirectoryEntry>> list() const = 0;
  // Of the plain file that the name leads to now; nothing is opened for reading.
  virtual Result<FileIdentity> identity(std::string_view name) const = 0;
  // The lock file is made when missing. Returns at once: kBusy when another holds it.
  virtual Result<std::unique_ptr<FileLock>> try_lock(std::string_view name, LockMode mode) = 0;
  virtual Result<std::unique_ptr<IoQueue>> open_queue(const IoQueueOptions& options) = 0;
  // "uring", "posix" or "memory".
  virtual std::string_view engine() const = 0;
  // Bytes that can still be written below; 0 when unknown.
  virtual Result<std::uint64_t> free_bytes() const = 0;
};

// Opens an existing directory. kAuto falls back to pread and pwrite where io_uring is refused and
// reports the event `io_uring_unavailable`; kUring fails instead (kUnsupported).
Result<std::unique_ptr<Store>> open_store(const std::string& path, const StoreOptions& options,
                                          EventSink& events);

// The rule of names above. Errors: kDenied.
Status check_name(std::string_view name);

bool is_missing(const Error& error);
bool is_existing(const Error& error);

}  // namespace weft::apply
