// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <vector>

#include "apply/store/io_buffers.hpp"
#include "apply/store/io_queue.hpp"
#include "weft/base/thread_owner.hpp"

namespace weft::apply {

// An IoQueue that does each request with File::read and File::write when its completion is asked
// for: the way without io_uring.
// Owns:    its buffers.
// Threads: owner.
class PlainQueue final : public IoQueue {
 public:
  static Result<std::unique_ptr<IoQueue>> open(const IoQueueOptions& options);

  std::uint32_t depth() const override { return depth_; }
  std::uint32_t in_flight() const override { return static_cast<std::uint32_t>(posted_.size()); }
  std::uint32_t buffer_count() const override { return buffers_.count(); }
  std::span<std::byte> buffer(std::uint32_t index) override { return buffers_.at(index); }
  void post(const IoRequest& request) override;
  Result<std::size_t> wait(std::span<IoCompletion> into) override;

 private:
  PlainQueue(std::uint32_t depth, IoBuffers buffers)
      : depth_(depth), buffers_(std::move(buffers)) {}

  std::uint32_t depth_;
  IoBuffers buffers_;
  std::deque<IoRequest> posted_;
  ThreadOwner owner_;
};

}  // namespace weft::apply
