// SPDX-License-Identifier: Apache-2.0
#include "support/memory_store.hpp"

#include <algorithm>
#include <cerrno>
#include <functional>

#include "apply/store/native_error.hpp"
#include "apply/store/plain_queue.hpp"

namespace weft::test_support {

using apply::Access;
using apply::File;
using apply::FileLock;
using apply::native_error;
using apply::Store;

namespace {

constexpr std::size_t kSectorBytes = 512;

void put(std::vector<std::byte>& bytes, std::uint64_t offset, std::span<const std::byte> part) {
  if (bytes.size() < offset + part.size()) bytes.resize(offset + part.size());
  std::copy(part.begin(), part.end(), bytes.begin() + static_cast<std::ptrdiff_t>(offset));
}

// What of a file's unsynced changes a power cut leaves.
std::vector<std::byte> surviving_bytes(const MemoryDisk::Node& node, Unsynced unsynced,
                                       std::mt19937_64& random) {
  if (unsynced == Unsynced::kKept) return node.bytes;
  std::vector<std::byte> bytes = node.synced_bytes;
  if (unsynced == Unsynced::kDropped) return bytes;
  for (const auto& change : node.unsynced) {
    if (const auto* size = std::get_if<MemoryDisk::SizeChange>(&change)) {
      if (random() % 2 == 0) bytes.resize(size->bytes);
      continue;
    }
    const auto& write = std::get<MemoryDisk::WriteChange>(change);
    std::uint64_t at = write.offset;
    std::span<const std::byte> rest = write.bytes;
    while (!rest.empty()) {
      const std::size_t part =
          std::min<std::size_t>(rest.size(), kSectorBytes - static_cast<std::size_t>(at % 512));
      if (random() % 2 == 0) put(bytes, at, rest.first(part));
      at += part;
      rest = rest.subspan(part);
    }
  }
  return bytes;
}

}  // namespace

// Threads: as File; the disk's lock.
class MemoryFile final : public File {
 public:
  MemoryFile(std::shared_ptr<MemoryDisk> disk, MemoryDisk::NodePointer node, std::string name,
             Access access)
      : disk_(std::move(disk)), node_(std::move(node)), name_(std::move(name)), access_(access) {}

  Result<std::size_t> read_up_to(std::uint64_t offset, std::span<std::byte> into) const override {
    const std::lock_guard lock(disk_->mutex_);
    if (offset >= node_->bytes.size()) return std::size_t{0};
    const std::size_t count =
        std::min<std::size_t>(into.size(), node_->bytes.size() - static_cast<std::size_t>(offset));
    std::copy_n(node_->bytes.begin() + static_cast<std::ptrdiff_t>(offset), count, into.begin());
    return count;
  }
  Status read(std::uint64_t offset, std::span<std::byte> into) const override {
    WEFT_TRY(const std::size_t count, read_up_to(offset, into));
    if (count == into.size()) return ok();
    return failure(ErrorCode::kConcurrentModification, Stage::kApply,
                   name_ + " ends before the end of a read");
  }
  Status write(std::uint64_t offset, std::span<const std::byte> bytes) override {
    const std::lock_guard lock(disk_->mutex_);
    WEFT_TRY_STATUS(writable());
    const std::uint64_t old_bytes = held_bytes();
    const std::uint64_t end = offset + bytes.size();
    WEFT_TRY_STATUS(disk_->charge(old_bytes, std::max(old_bytes, end), name_));
    put(node_->bytes, offset, bytes);
    node_->unsynced.push_back(MemoryDisk::WriteChange{offset, {bytes.begin(), bytes.end()}});
    node_->changed_at = disk_->next_change_++;
    return ok();
  }
  Status sync() override {
    const std::lock_guard lock(disk_->mutex_);
    node_->synced_bytes = node_->bytes;
    node_->unsynced.clear();
    return ok();
  }
  Status allocate(std::uint64_t offset, std::uint64_t bytes, bool grow) override {
    const std::lock_guard lock(disk_->mutex_);
    WEFT_TRY_STATUS(writable());
    const std::uint64_t end = std::max(held_bytes(), offset + bytes);
    WEFT_TRY_STATUS(disk_->charge(held_bytes(), end, name_));
    node_->reserved_bytes = std::max(node_->reserved_bytes, end);
    if (grow && node_->bytes.size() < offset + bytes) {
      node_->bytes.resize(static_cast<std::size_t>(offset + bytes));
      node_->unsynced.push_back(MemoryDisk::SizeChange{offset + bytes});
    }
    return ok();
  }
  Status truncate(std::uint64_t bytes) override {
    const std::lock_guard lock(disk_->mutex_);
    WEFT_TRY_STATUS(writable());
    WEFT_TRY_STATUS(disk_->charge(held_bytes(), bytes, name_));
    node_->bytes.resize(static_cast<std::size_t>(bytes));
    node_->reserved_bytes = 0;
    node_->unsynced.push_back(MemoryDisk::SizeChange{bytes});
    node_->changed_at = disk_->next_change_++;
    return ok();
  }
  Result<std::uint64_t> size() const override {
    const std::lock_guard lock(disk_->mutex_);
    return std::uint64_t{node_->bytes.size()};
  }
  Result<apply::FileIdentity> identity() const override {
    const std::lock_guard lock(disk_->mutex_);
    return apply::FileIdentity{1, node_->inode, node_->bytes.size(), node_->changed_at,
                               node_->changed_at};
  }
  void start_writeback(std::uint64_t, std::uint64_t) override {}
  void drop_cache(std::uint64_t, std::uint64_t) override {}
  const std::string& name() const override { return name_; }

 private:
  std::uint64_t held_bytes() const {
    return std::max<std::uint64_t>(node_->bytes.size(), node_->reserved_bytes);
  }
  Status writable() const {
    if (access_ == Access::kReadWrite) return ok();
    return native_error(EBADF, Stage::kApply, "write " + name_);
  }

  std::shared_ptr<MemoryDisk> disk_;
  MemoryDisk::NodePointer node_;
  std::string name_;
  Access access_;
};

// Threads: one at a time.
class MemoryLock final : public FileLock {
 public:
  MemoryLock(std::shared_ptr<MemoryDisk> disk, MemoryDisk::NodePointer node, bool exclusive)
      : disk_(std::move(disk)), node_(std::move(node)), exclusive_(exclusive) {}
  ~MemoryLock() override {
    const std::lock_guard lock(disk_->mutex_);
    if (exclusive_) {
      node_->exclusive_lock = false;
    } else {
      --node_->shared_locks;
    }
  }

 private:
  std::shared_ptr<MemoryDisk> disk_;
  MemoryDisk::NodePointer node_;
  bool exclusive_;
};

// Threads: any.
class MemoryDirectory final : public Store {
 public:
  MemoryDirectory(std::shared_ptr<MemoryDisk> disk, MemoryDisk::NodePointer node)
      : disk_(std::move(disk)), node_(std::move(node)) {}

  Result<std::unique_ptr<File>> open(std::string_view name, Access access) override {
    WEFT_TRY_STATUS(apply::check_name(name));
    const std::lock_guard lock(disk_->mutex_);
    auto found = disk_->find(node_, name);
    if (found == nullptr) return error(ENOENT, "open", name);
    if (found->is_directory) return error(EISDIR, "open", name);
    return make_file(std::move(found), name, access);
  }
  Result<std::unique_ptr<File>> create(std::string_view name) override {
    WEFT_TRY_STATUS(apply::check_name(name));
    const std::lock_guard lock(disk_->mutex_);
    std::string last;
    const auto parent = parent_of(name, last);
    if (parent == nullptr) return error(ENOENT, "create", name);
    if (parent->entries.contains(last)) return error(EEXIST, "create", name);
    auto made = disk_->make_node(false);
    MemoryDisk::change_entry(*parent, last, made);
    return make_file(std::move(made), name, Access::kReadWrite);
  }
  Result<std::unique_ptr<Store>> open_directory(std::string_view name, bool create) override {
    WEFT_TRY_STATUS(apply::check_name(name));
    const std::lock_guard lock(disk_->mutex_);
    auto found = disk_->find(node_, name);
    if (found == nullptr && create) {
      std::string last;
      const auto parent = parent_of(name, last);
      if (parent == nullptr) return error(ENOENT, "make directory", name);
      found = disk_->make_node(true);
      MemoryDisk::change_entry(*parent, last, found);
    }
    if (found == nullptr) return error(ENOENT, "open", name);
    if (!found->is_directory) return error(ENOTDIR, "open", name);
    return std::unique_ptr<Store>(new MemoryDirectory(disk_, std::move(found)));
  }
  Status rename(std::string_view from, std::string_view to) override {
    WEFT_TRY_STATUS(apply::check_name(from));
    WEFT_TRY_STATUS(apply::check_name(to));
    const std::lock_guard lock(disk_->mutex_);
    const auto moved = disk_->find(node_, from);
    std::string from_last;
    std::string to_last;
    const auto from_parent = parent_of(from, from_last);
    const auto to_parent = parent_of(to, to_last);
    if (moved == nullptr || to_parent == nullptr) return error(ENOENT, "rename", from);
    if (const auto replaced = to_parent->entries.find(to_last);
        replaced != to_parent->entries.end() && replaced->second->is_directory) {
      return error(EISDIR, "rename", from);
    }
    // One change on the disk, never half of it: the new name first, as a journal would order it.
    MemoryDisk::change_entry(*to_parent, to_last, moved);
    MemoryDisk::change_entry(*from_parent, from_last, nullptr);
    return ok();
  }
  Status sync_directory() override {
    const std::lock_guard lock(disk_->mutex_);
    node_->synced_entries = node_->entries;
    node_->unsynced_entries.clear();
    return ok();
  }
  Status remove(std::string_view name) override {
    WEFT_TRY_STATUS(apply::check_name(name));
    const std::lock_guard lock(disk_->mutex_);
    std::string last;
    const auto parent = parent_of(name, last);
    if (parent == nullptr || !parent->entries.contains(last)) return error(ENOENT, "remove", name);
    if (parent->entries[last]->is_directory) return error(EISDIR, "remove", name);
    drop(*parent, last);
    return ok();
  }
  Status remove_tree(std::string_view name) override {
    WEFT_TRY_STATUS(apply::check_name(name));
    const std::lock_guard lock(disk_->mutex_);
    std::string last;
    const auto parent = parent_of(name, last);
    if (parent != nullptr && parent->entries.contains(last)) drop(*parent, last);
    return ok();
  }
  Result<std::vector<apply::DirectoryEntry>> list() const override {
    const std::lock_guard lock(disk_->mutex_);
    std::vector<apply::DirectoryEntry> entries;
    for (const auto& [name, node] : node_->entries) {
      entries.push_back({name, node->is_directory, !node->is_directory});
    }
    return entries;
  }
  Result<apply::FileIdentity> identity(std::string_view name) const override {
    const std::lock_guard lock(disk_->mutex_);
    const auto found = disk_->find(node_, name);
    if (found == nullptr) return error(ENOENT, "stat", name);
    return apply::FileIdentity{1, found->inode, found->bytes.size(), found->changed_at,
                               found->changed_at};
  }
  Result<std::unique_ptr<FileLock>> try_lock(std::string_view name, apply::LockMode mode) override {
    WEFT_TRY_STATUS(apply::check_name(name));
    const std::lock_guard lock(disk_->mutex_);
    auto found = disk_->find(node_, name);
    if (found == nullptr) {
      std::string last;
      const auto parent = parent_of(name, last);
      if (parent == nullptr) return error(ENOENT, "lock", name);
      found = disk_->make_node(false);
      MemoryDisk::change_entry(*parent, last, found);
    }
    const bool exclusive = mode == apply::LockMode::kExclusive;
    if (found->exclusive_lock || (exclusive && found->shared_locks > 0)) {
      return error(EWOULDBLOCK, "lock", name);
    }
    if (exclusive) {
      found->exclusive_lock = true;
    } else {
      ++found->shared_locks;
    }
    return std::unique_ptr<FileLock>(new MemoryLock(disk_, std::move(found), exclusive));
  }
  Result<std::unique_ptr<apply::IoQueue>> open_queue(
      const apply::IoQueueOptions& options) override {
    return apply::PlainQueue::open(options);
  }
  std::string_view engine() const override { return "memory"; }
  Result<std::uint64_t> free_bytes() const override {
    const std::lock_guard lock(disk_->mutex_);
    return disk_->capacity_bytes_ - std::min(disk_->capacity_bytes_, disk_->used_bytes_);
  }

 private:
  static Error error(int native, const char* call, std::string_view name) {
    return native_error(native, Stage::kOpen, std::string(call) + " " + std::string(name));
  }
  MemoryDisk::NodePointer parent_of(std::string_view name, std::string& last) const {
    const std::size_t slash = name.rfind('/');
    last = std::string(slash == std::string_view::npos ? name : name.substr(slash + 1));
    if (slash == std::string_view::npos) return node_;
    auto parent = disk_->find(node_, name.substr(0, slash));
    return parent != nullptr && parent->is_directory ? parent : nullptr;
  }
  std::unique_ptr<File> make_file(MemoryDisk::NodePointer node, std::string_view name,
                                  Access access) const {
    return std::make_unique<MemoryFile>(disk_, std::move(node), std::string(name), access);
  }
  void drop(MemoryDisk::Node& parent, const std::string& name) {
    const std::function<std::uint64_t(const MemoryDisk::Node&)> weigh =
        [&](const MemoryDisk::Node& node) {
          std::uint64_t bytes = std::max<std::uint64_t>(node.bytes.size(), node.reserved_bytes);
          for (const auto& entry : node.entries) bytes += weigh(*entry.second);
          return bytes;
        };
    disk_->used_bytes_ -= weigh(*parent.entries.at(name));
    MemoryDisk::change_entry(parent, name, nullptr);
  }

  std::shared_ptr<MemoryDisk> disk_;
  MemoryDisk::NodePointer node_;
};

MemoryDisk::MemoryDisk() : root_(std::make_shared<Node>()) { root_->is_directory = true; }

std::shared_ptr<MemoryDisk> MemoryDisk::make(std::uint64_t capacity_bytes) {
  auto disk = std::make_shared<MemoryDisk>();
  disk->capacity_bytes_ = capacity_bytes;
  return disk;
}

std::unique_ptr<Store> MemoryDisk::open() {
  return std::make_unique<MemoryDirectory>(shared_from_this(), root_);
}

MemoryDisk::NodePointer MemoryDisk::find(const NodePointer& from, std::string_view path) const {
  NodePointer node = from;
  while (node != nullptr) {
    const std::size_t slash = path.find('/');
    const auto entry = node->entries.find(std::string(path.substr(0, slash)));
    if (entry == node->entries.end()) return nullptr;
    node = entry->second;
    if (slash == std::string_view::npos) return node;
    path.remove_prefix(slash + 1);
  }
  return nullptr;
}

MemoryDisk::NodePointer MemoryDisk::make_node(bool is_directory) {
  auto node = std::make_shared<Node>();
  node->is_directory = is_directory;
  node->inode = next_inode_++;
  node->changed_at = next_change_++;
  return node;
}

Status MemoryDisk::charge(std::uint64_t old_bytes, std::uint64_t new_bytes,
                          const std::string& name) {
  if (new_bytes > old_bytes && used_bytes_ + (new_bytes - old_bytes) > capacity_bytes_) {
    return native_error(ENOSPC, Stage::kApply, "write " + name);
  }
  used_bytes_ = used_bytes_ + new_bytes - old_bytes;
  return ok();
}

void MemoryDisk::change_entry(Node& directory, const std::string& name, NodePointer node) {
  if (node == nullptr) {
    directory.entries.erase(name);
  } else {
    directory.entries[name] = node;
  }
  directory.unsynced_entries.push_back({name, std::move(node)});
}

std::shared_ptr<MemoryDisk> MemoryDisk::power_cut(Unsynced unsynced, std::uint64_t seed) const {
  const std::lock_guard lock(mutex_);
  std::mt19937_64 random(seed);
  auto disk = make(capacity_bytes_);
  disk->next_inode_ = next_inode_;
  disk->next_change_ = next_change_;
  std::map<const Node*, NodePointer> copies;
  const std::function<NodePointer(const Node&)> copy = [&](const Node& node) {
    auto& made = copies[&node];
    if (made != nullptr) return made;
    made = std::make_shared<Node>();
    const NodePointer result = made;
    result->is_directory = node.is_directory;
    result->inode = node.inode;
    result->changed_at = node.changed_at;
    if (!node.is_directory) {
      result->bytes = surviving_bytes(node, unsynced, random);
      result->synced_bytes = result->bytes;
      disk->used_bytes_ += result->bytes.size();
      return result;
    }
    auto entries = unsynced == Unsynced::kKept ? node.entries : node.synced_entries;
    if (unsynced == Unsynced::kRandom) {
      const std::size_t kept = random() % (node.unsynced_entries.size() + 1);
      for (std::size_t i = 0; i < kept; ++i) {
        const auto& change = node.unsynced_entries[i];
        if (change.node == nullptr) {
          entries.erase(change.name);
        } else {
          entries[change.name] = change.node;
        }
      }
    }
    for (const auto& [name, below] : entries) result->entries[name] = copy(*below);
    result->synced_entries = result->entries;
    return result;
  };
  disk->root_ = copy(*root_);
  return disk;
}

std::vector<std::byte> MemoryDisk::content(const std::string& path) const {
  const std::lock_guard lock(mutex_);
  const auto node = find(root_, path);
  return node == nullptr ? std::vector<std::byte>{} : node->bytes;
}

bool MemoryDisk::exists(const std::string& path) const {
  const std::lock_guard lock(mutex_);
  return find(root_, path) != nullptr;
}

void MemoryDisk::set_capacity(std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  capacity_bytes_ = bytes;
}

std::uint64_t MemoryDisk::used_bytes() const {
  const std::lock_guard lock(mutex_);
  return used_bytes_;
}

}  // namespace weft::test_support
