// SPDX-License-Identifier: Apache-2.0
#include "apply/store/posix_store.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>

#include "apply/store/lock_holder.hpp"
#include "apply/store/native_error.hpp"
#include "apply/store/plain_queue.hpp"
#include "apply/store/posix_file.hpp"
#include "weft/base/limits.hpp"

namespace weft::apply {

namespace {

constexpr int kDirectoryFlags = O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW;
constexpr int kTreeDepthMax = 32;
constexpr unsigned kPrivateFile = 0600;
constexpr unsigned kPrivateDirectory = 0700;
// Readers of another user lock through the same file; it never holds a byte.
constexpr unsigned kLockFile = 0644;

// Threads: one at a time.
class PosixLock final : public FileLock {
 public:
  explicit PosixLock(Descriptor descriptor) : descriptor_(std::move(descriptor)) {}

 private:
  Descriptor descriptor_;
};

// Without openat2 (kernels before 5.6): component by component. Names hold no "..", so refusing
// links at each step is the same rule.
int open_by_component(int directory, std::string name, int flags, unsigned mode) {
  Descriptor held;
  for (std::size_t slash; (slash = name.find('/')) != std::string::npos; name.erase(0, slash + 1)) {
    const int below =
        ::openat(held ? held.number() : directory, name.substr(0, slash).c_str(), kDirectoryFlags);
    if (below < 0) return -1;
    held = Descriptor(below);
  }
  return ::openat(held ? held.number() : directory, name.c_str(), flags, mode);
}

Result<std::vector<DirectoryEntry>> list_directory(int directory, const std::string& path) {
  const int own = ::openat(directory, ".", kDirectoryFlags);
  if (own < 0) return native_error(errno, Stage::kOpen, "list " + path);
  DIR* stream = ::fdopendir(own);
  if (stream == nullptr) {
    const int native = errno;
    ::close(own);
    return native_error(native, Stage::kOpen, "list " + path);
  }
  std::vector<DirectoryEntry> entries;
  errno = 0;
  while (const dirent* entry = ::readdir(stream)) {
    const std::string name = entry->d_name;
    struct stat status {};
    if (name != "." && name != ".." &&
        ::fstatat(own, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0) {
      entries.push_back({name, S_ISDIR(status.st_mode), S_ISREG(status.st_mode)});
    }
    errno = 0;
  }
  const int native = errno;
  ::closedir(stream);
  if (native != 0) return native_error(native, Stage::kOpen, "list " + path);
  return entries;
}

Status remove_below(int directory, const std::string& name, int depth) {
  if (::unlinkat(directory, name.c_str(), 0) == 0 || errno == ENOENT) return ok();
  if (errno != EISDIR && errno != EPERM) return native_error(errno, Stage::kOpen, "remove " + name);
  if (depth >= kTreeDepthMax) {
    return failure(ErrorCode::kResourceLimit, Stage::kOpen,
                   "remove " + name + ": more than 32 directories deep");
  }
  const Descriptor below(::openat(directory, name.c_str(), kDirectoryFlags));
  if (!below) return native_error(errno, Stage::kOpen, "remove " + name);
  WEFT_TRY(const auto entries, list_directory(below.number(), name));
  for (const DirectoryEntry& entry : entries) {
    WEFT_TRY_STATUS(remove_below(below.number(), entry.name, depth + 1));
  }
  if (::unlinkat(directory, name.c_str(), AT_REMOVEDIR) == 0 || errno == ENOENT) return ok();
  return native_error(errno, Stage::kOpen, "remove " + name);
}

}  // namespace

Error PosixStore::error(int native, const char* call, std::string_view name) const {
  return native_error(native, Stage::kOpen,
                      std::string(call) + " " + path_ + "/" + std::string(name));
}

Result<Descriptor> PosixStore::open_beneath(std::string_view name, int flags, unsigned mode) const {
  WEFT_TRY_STATUS(check_name(name));
  const std::string text(name);
  open_how how{};
  how.flags = static_cast<std::uint64_t>(flags | O_CLOEXEC | O_NOFOLLOW);
  how.mode = mode;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  for (std::uint32_t attempt = 0; attempt <= limits::kIoRetriesMax; ++attempt) {
    int number = static_cast<int>(
        ::syscall(SYS_openat2, directory_.number(), text.c_str(), &how, sizeof(how)));
    if (number < 0 && errno == ENOSYS) {
      number = open_by_component(directory_.number(), text, static_cast<int>(how.flags), mode);
    }
    if (number >= 0) return Descriptor(number);
    // EAGAIN: a rename raced with the walk below the held directory.
    if (errno != EINTR && errno != EAGAIN) return error(errno, "open", name);
  }
  return error(EIO, "open", name);
}

Result<Descriptor> PosixStore::open_parent(std::string_view name, std::string& last) const {
  WEFT_TRY_STATUS(check_name(name));
  const std::size_t slash = name.rfind('/');
  last = std::string(slash == std::string_view::npos ? name : name.substr(slash + 1));
  if (slash != std::string_view::npos) {
    return open_beneath(name.substr(0, slash), O_PATH | O_DIRECTORY, 0);
  }
  const int number = ::openat(directory_.number(), ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (number < 0) return error(errno, "open", name);
  return Descriptor(number);
}

Result<std::unique_ptr<File>> PosixStore::open(std::string_view name, Access access) {
  // O_NONBLOCK: a FIFO that someone put there must not hang the open; taken off again because
  // io_uring would answer EAGAIN for such a descriptor.
  const int flags = (access == Access::kRead ? O_RDONLY : O_RDWR) | O_NONBLOCK;
  WEFT_TRY(Descriptor descriptor, open_beneath(name, flags, 0));
  struct stat status {};
  if (::fstat(descriptor.number(), &status) != 0) return error(errno, "stat", name);
  if (!S_ISREG(status.st_mode)) {
    return failure(ErrorCode::kDenied, Stage::kOpen,
                   path_ + "/" + std::string(name) + " is not a plain file");
  }
  if (access == Access::kReadWrite && status.st_nlink != 1) {
    return failure(ErrorCode::kDenied, Stage::kOpen,
                   path_ + "/" + std::string(name) + " has " + std::to_string(status.st_nlink) +
                       " hard links: writing would change another file");
  }
  if (::fcntl(descriptor.number(), F_SETFL, 0) != 0) return error(errno, "open", name);
  return std::unique_ptr<File>(
      new PosixFile(std::move(descriptor), path_ + "/" + std::string(name), durability_));
}

Result<std::unique_ptr<File>> PosixStore::create(std::string_view name) {
  WEFT_TRY(Descriptor descriptor, open_beneath(name, O_RDWR | O_CREAT | O_EXCL, kPrivateFile));
  return std::unique_ptr<File>(
      new PosixFile(std::move(descriptor), path_ + "/" + std::string(name), durability_));
}

Result<std::unique_ptr<Store>> PosixStore::open_directory(std::string_view name, bool create) {
  std::string path = path_ + "/" + std::string(name);
  if (create) {
    std::string last;
    WEFT_TRY(const Descriptor parent, open_parent(name, last));
    if (::mkdirat(parent.number(), last.c_str(), kPrivateDirectory) != 0 && errno != EEXIST) {
      return error(errno, "make directory", name);
    }
  }
  WEFT_TRY(Descriptor directory, open_beneath(name, O_RDONLY | O_DIRECTORY, 0));
  if (create) {
    // What is ours must be ours alone: a directory planted in a shared place is refused.
    struct stat status {};
    if (::fstat(directory.number(), &status) != 0) return error(errno, "stat", name);
    if (status.st_uid != ::geteuid() || (status.st_mode & 0022) != 0) {
      return failure(ErrorCode::kDenied, Stage::kOpen,
                     path + " belongs to user " + std::to_string(status.st_uid) +
                         " or others may write to it");
    }
  }
  return make_child(std::move(directory), std::move(path));
}

std::unique_ptr<Store> PosixStore::make_child(Descriptor directory, std::string path) const {
  return std::make_unique<PosixStore>(std::move(directory), std::move(path), durability_);
}

Status PosixStore::rename(std::string_view from, std::string_view to) {
  std::string from_last;
  std::string to_last;
  WEFT_TRY(const Descriptor from_parent, open_parent(from, from_last));
  WEFT_TRY(const Descriptor to_parent, open_parent(to, to_last));
  if (::renameat(from_parent.number(), from_last.c_str(), to_parent.number(), to_last.c_str()) !=
      0) {
    return error(errno, "rename", from);
  }
  return ok();
}

Status PosixStore::sync_directory() {
  if (durability_ == Durability::kProcess) return ok();
  if (::fsync(directory_.number()) != 0) return error(errno, "sync", "");
  return ok();
}

Status PosixStore::remove(std::string_view name) {
  std::string last;
  WEFT_TRY(const Descriptor parent, open_parent(name, last));
  if (::unlinkat(parent.number(), last.c_str(), 0) != 0) return error(errno, "remove", name);
  return ok();
}

Status PosixStore::remove_tree(std::string_view name) {
  std::string last;
  auto parent = open_parent(name, last);
  if (!parent && is_missing(parent.error())) return ok();
  if (!parent) return parent.error();
  return remove_below(parent->number(), last, 0);
}

Result<std::vector<DirectoryEntry>> PosixStore::list() const {
  return list_directory(directory_.number(), path_);
}

Result<FileIdentity> PosixStore::identity(std::string_view name) const {
  WEFT_TRY(const Descriptor place, open_beneath(name, O_PATH, 0));
  return identity_of_descriptor(place.number(), path_ + "/" + std::string(name));
}

Result<std::unique_ptr<FileLock>> PosixStore::try_lock(std::string_view name, LockMode mode) {
  // Read only: a reader that may not write to the directory can still take a lock that is there.
  auto opened = open_beneath(name, O_RDONLY | O_NONBLOCK, 0);
  if (!opened && is_missing(opened.error())) {
    opened = open_beneath(name, O_RDONLY | O_CREAT | O_NONBLOCK, kLockFile);
  }
  if (!opened) return opened.error();
  const int operation = (mode == LockMode::kShared ? LOCK_SH : LOCK_EX) | LOCK_NB;
  for (std::uint32_t attempt = 0; attempt <= limits::kIoRetriesMax; ++attempt) {
    if (::flock(opened->number(), operation) == 0) {
      return std::unique_ptr<FileLock>(new PosixLock(*std::move(opened)));
    }
    if (errno != EINTR) break;
  }
  if (errno == EWOULDBLOCK) {
    return failure(
        ErrorCode::kBusy, Stage::kOpen,
        path_ + "/" + std::string(name) + " is locked by " + lock_holder(opened->number()),
        EWOULDBLOCK);
  }
  return error(errno, "lock", name);
}

Result<std::unique_ptr<IoQueue>> PosixStore::open_queue(const IoQueueOptions& options) {
  return PlainQueue::open(options);
}

Result<std::uint64_t> PosixStore::free_bytes() const {
  struct statvfs status {};
  if (::fstatvfs(directory_.number(), &status) != 0) return error(errno, "stat", "");
  return std::uint64_t{status.f_bavail} * status.f_frsize;
}

}  // namespace weft::apply
