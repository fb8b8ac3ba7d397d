// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "apply/store/descriptor.hpp"
#include "apply/store/store.hpp"

namespace weft::apply {

// A directory of the machine, held by descriptor: renaming or replacing its path does not lead
// these calls elsewhere. Queues do pread and pwrite.
// Owns:    the directory's descriptor.
// Threads: any.
class PosixStore : public Store {
 public:
  PosixStore(Descriptor directory, std::string path, Durability durability)
      : directory_(std::move(directory)), path_(std::move(path)), durability_(durability) {}

  Result<std::unique_ptr<File>> open(std::string_view name, Access access) override;
  Result<std::unique_ptr<File>> create(std::string_view name) override;
  Result<std::unique_ptr<Store>> open_directory(std::string_view name, bool create) override;
  Status rename(std::string_view from, std::string_view to) override;
  Status sync_directory() override;
  Status remove(std::string_view name) override;
  Status remove_tree(std::string_view name) override;
  Result<std::vector<DirectoryEntry>> list() const override;
  Result<FileIdentity> identity(std::string_view name) const override;
  Result<std::unique_ptr<FileLock>> try_lock(std::string_view name, LockMode mode) override;
  Result<std::unique_ptr<IoQueue>> open_queue(const IoQueueOptions& options) override;
  std::string_view engine() const override { return "posix"; }
  Result<std::uint64_t> free_bytes() const override;

 protected:
  // A store of the same kind on a directory below.
  virtual std::unique_ptr<Store> make_child(Descriptor directory, std::string path) const;
  Durability durability() const { return durability_; }

 private:
  Error error(int native, const char* call, std::string_view name) const;
  Result<Descriptor> open_beneath(std::string_view name, int flags, unsigned mode) const;
  // The held directory of the last component of `name`, and that component.
  Result<Descriptor> open_parent(std::string_view name, std::string& last) const;

  Descriptor directory_;
  std::string path_;
  Durability durability_;
};

}  // namespace weft::apply
