// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "apply/store/descriptor.hpp"
#include "apply/store/file.hpp"
#include "apply/store/store.hpp"

namespace weft::apply {

// Fields of fstat that make an identity. Errors: I/O, told of `what`.
Result<FileIdentity> identity_of_descriptor(int descriptor, const std::string& what);

// A plain file through pread, pwrite, fdatasync and fallocate.
// Owns:    the descriptor.
// Threads: as File.
class PosixFile final : public File {
 public:
  PosixFile(Descriptor descriptor, std::string name, Durability durability)
      : descriptor_(std::move(descriptor)), name_(std::move(name)), durability_(durability) {}

  Status read(std::uint64_t offset, std::span<std::byte> into) const override;
  Result<std::size_t> read_up_to(std::uint64_t offset, std::span<std::byte> into) const override;
  Status write(std::uint64_t offset, std::span<const std::byte> bytes) override;
  Status sync() override;
  Status allocate(std::uint64_t offset, std::uint64_t bytes, bool grow) override;
  Status truncate(std::uint64_t bytes) override;
  Result<std::uint64_t> size() const override;
  Result<FileIdentity> identity() const override;
  Result<bool> has_holes() const override;
  void start_writeback(std::uint64_t offset, std::uint64_t bytes) override;
  void drop_cache(std::uint64_t offset, std::uint64_t bytes) override;
  int native_handle() const override { return descriptor_.number(); }
  const std::string& name() const override { return name_; }

 private:
  Error error(int native, const char* call) const;
  Status write_zeros(std::uint64_t offset, std::uint64_t bytes);

  Descriptor descriptor_;
  std::string name_;
  Durability durability_;
};

}  // namespace weft::apply
