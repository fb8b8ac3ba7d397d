// SPDX-License-Identifier: Apache-2.0
// A disk in memory that knows what a power cut would take away: everything that no sync confirmed.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <variant>
#include <vector>

#include "apply/store/store.hpp"

namespace weft::test_support {

// What a power cut keeps of the writes and directory changes that were not synced.
enum class Unsynced : std::uint8_t {
  kDropped,  // nothing
  kKept,     // everything, as if the process alone had died
  kRandom,   // any sectors of 512 bytes, any prefix of a directory's changes
};

// MemoryDisk is a tree of files and directories with a capacity.
// Threads: any; one lock for all.
class MemoryDisk : public std::enable_shared_from_this<MemoryDisk> {
 public:
  struct Node;
  using NodePointer = std::shared_ptr<Node>;
  struct WriteChange {
    std::uint64_t offset = 0;
    std::vector<std::byte> bytes;
  };
  struct SizeChange {
    std::uint64_t bytes = 0;
  };
  using FileChange = std::variant<WriteChange, SizeChange>;
  struct DirectoryChange {
    std::string name;
    NodePointer node;  // none: removed
  };
  struct Node {
    bool is_directory = false;
    std::uint64_t inode = 0;
    std::int64_t changed_at = 0;  // a counter that stands for mtime and ctime
    // Files.
    std::vector<std::byte> bytes;
    std::vector<std::byte> synced_bytes;
    std::vector<FileChange> unsynced;
    std::uint64_t reserved_bytes = 0;  // allocated beyond the size
    int shared_locks = 0;
    bool exclusive_lock = false;
    // Directories.
    std::map<std::string, NodePointer> entries;
    std::map<std::string, NodePointer> synced_entries;
    std::vector<DirectoryChange> unsynced_entries;
  };

  static std::shared_ptr<MemoryDisk> make(std::uint64_t capacity_bytes = ~std::uint64_t{0});

  // A store on the root directory.
  std::unique_ptr<apply::Store> open();
  // A new disk, as this one comes back after the cut. This one stays as it is.
  std::shared_ptr<MemoryDisk> power_cut(Unsynced unsynced, std::uint64_t seed = 0) const;
  // The whole content of a file by path, for comparing.
  std::vector<std::byte> content(const std::string& path) const;
  bool exists(const std::string& path) const;
  void set_capacity(std::uint64_t bytes);
  std::uint64_t used_bytes() const;

  MemoryDisk();

 private:
  friend class MemoryFile;
  friend class MemoryDirectory;
  friend class MemoryLock;

  NodePointer find(const NodePointer& from, std::string_view path) const;
  NodePointer make_node(bool is_directory);
  Status charge(std::uint64_t old_bytes, std::uint64_t new_bytes, const std::string& name);
  static void change_entry(Node& directory, const std::string& name, NodePointer node);

  mutable std::mutex mutex_;
  NodePointer root_;
  std::uint64_t capacity_bytes_ = ~std::uint64_t{0};
  std::uint64_t used_bytes_ = 0;
  std::uint64_t next_inode_ = 1;
  std::int64_t next_change_ = 1;
};

}  // namespace weft::test_support
