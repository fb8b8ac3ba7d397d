// SPDX-License-Identifier: Apache-2.0
#include "apply/store/io_buffers.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <string>

#include "apply/store/native_error.hpp"

namespace weft::apply {

Result<IoBuffers> IoBuffers::open(std::uint32_t count, std::uint32_t buffer_bytes) {
  if (count == 0 || buffer_bytes == 0 || buffer_bytes % 4096 != 0) {
    return failure(ErrorCode::kConfig, Stage::kOpen,
                   "I/O buffers: " + std::to_string(count) + " of " + std::to_string(buffer_bytes) +
                       " bytes; at least one, a multiple of 4096");
  }
  const std::size_t bytes = std::size_t{count} * buffer_bytes;
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return native_error(errno, Stage::kOpen, "I/O buffers of " + std::to_string(bytes) + " bytes");
  }
  static_cast<void>(::madvise(memory, bytes, MADV_DONTFORK));
  IoBuffers buffers;
  buffers.memory_ = {static_cast<std::byte*>(memory), bytes};
  buffers.count_ = count;
  buffers.buffer_bytes_ = buffer_bytes;
  return buffers;
}

IoBuffers::~IoBuffers() {
  if (!memory_.empty()) ::munmap(memory_.data(), memory_.size());
}

}  // namespace weft::apply
