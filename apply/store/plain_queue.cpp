// SPDX-License-Identifier: Apache-2.0
#include "apply/store/plain_queue.hpp"

namespace weft::apply {

Result<std::unique_ptr<IoQueue>> PlainQueue::open(const IoQueueOptions& options) {
  WEFT_TRY(IoBuffers buffers, IoBuffers::open(options.buffer_count, options.buffer_bytes));
  return std::unique_ptr<IoQueue>(new PlainQueue(options.depth, std::move(buffers)));
}

void PlainQueue::post(const IoRequest& request) {
  owner_.check();
  WEFT_ASSERT(in_flight() < depth_);
  posted_.push_back(request);
}

Result<std::size_t> PlainQueue::wait(std::span<IoCompletion> into) {
  owner_.check();
  WEFT_ASSERT(!posted_.empty() && !into.empty());
  const IoRequest request = posted_.front();
  posted_.pop_front();
  into[0].token = request.token;
  into[0].status = request.kind == IoRequest::Kind::kRead
                       ? request.file->read(request.offset, request.memory)
                       : request.file->write(request.offset, request.memory);
  return std::size_t{1};
}

}  // namespace weft::apply
