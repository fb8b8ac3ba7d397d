// SPDX-License-Identifier: Apache-2.0
#include "weft/weight_files.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>
#include <vector>

#include "apply/store/checkpoint_dir.hpp"
#include "weft/base/event_sink.hpp"

namespace weft {

namespace {

Error os_failure(ErrorCode code, const std::string& what) {
  const int number = errno;
  return failure(code, Stage::kOpen, what, number);
}

// A whole file in memory.
// Owns:    the mapping.
// Threads: any.
class Mapping {
 public:
  Mapping(void* begin, std::size_t bytes) : begin_(begin), bytes_(bytes) {}
  ~Mapping() {
    if (begin_ != nullptr) ::munmap(begin_, bytes_);
  }
  Mapping(Mapping&& other) noexcept
      : begin_(std::exchange(other.begin_, nullptr)), bytes_(other.bytes_) {}
  Mapping& operator=(Mapping&&) = delete;

  std::span<const std::byte> part(std::uint64_t offset, std::uint64_t bytes) const {
    return {static_cast<const std::byte*>(begin_) + offset, static_cast<std::size_t>(bytes)};
  }

 private:
  void* begin_;
  std::size_t bytes_;
};

Result<Mapping> map_file(const std::string& path, std::uint64_t bytes) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (file < 0) return os_failure(ErrorCode::kIoFailed, path + ": cannot be opened");
  // Writable and private: who gets the memory as a tensor cannot be told not to write.
  void* const begin = ::mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_NORESERVE, file, 0);
  const Error error = os_failure(ErrorCode::kResourceLimit,
                                 path + ": " + std::to_string(bytes) + " bytes cannot be mapped");
  ::close(file);
  if (begin == MAP_FAILED) return error;
  return Mapping(begin, static_cast<std::size_t>(bytes));
}

}  // namespace

// Threads: immutable.
class WeightFiles::Impl {
 public:
  codec::Schema schema;
  std::vector<Mapping> files;
  std::vector<WeightTensor> tensors;
};

Result<WeightFiles> WeightFiles::open(const WeightLock& lock) {
  auto impl = std::make_shared<Impl>();
  NullEventSink no_events;
  WEFT_TRY(const auto checkpoint,
           apply::CheckpointDir::open_path(lock.path(), apply::Access::kRead,
                                           {apply::Engine::kPosix, apply::Durability::kProcess},
                                           no_events));
  impl->schema = checkpoint.schema();
  for (const codec::SchemaFile& file : impl->schema.files()) {
    WEFT_TRY(auto mapping, map_file(lock.path() + "/" + file.name, file.bytes));
    impl->files.push_back(std::move(mapping));
  }
  // What was mapped by name is what was looked at.
  WEFT_TRY_STATUS(checkpoint.check_identity());
  for (const codec::Tensor& tensor : impl->schema.tensors()) {
    impl->tensors.push_back(
        {tensor.name, codec::name(tensor.dtype), tensor.shape, tensor.element_bytes,
         impl->files[tensor.file_index].part(tensor.file_offset, tensor.bytes)});
  }
  return WeightFiles(std::move(impl));
}

std::span<const WeightTensor> WeightFiles::tensors() const { return impl_->tensors; }

const WeightTensor* WeightFiles::find(std::string_view name) const {
  const auto index = impl_->schema.find(name);
  return index ? &impl_->tensors[index->value] : nullptr;
}

}  // namespace weft
