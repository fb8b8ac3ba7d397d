// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <liburing.h>

#include <memory>
#include <vector>

#include "apply/store/io_buffers.hpp"
#include "apply/store/io_queue.hpp"
#include "apply/store/transfer.hpp"
#include "weft/base/event_sink.hpp"
#include "weft/base/thread_owner.hpp"

namespace weft::apply {

// An IoQueue on one io_uring ring. Its buffers are registered; where the memlock limit forbids that
// the same requests go unregistered, after one event `io_uring_buffers_unregistered` (case B-056).
// Invariant: a slot is free or has exactly one entry in the ring.
// Owns:      ring and buffers; the destructor waits for what is in flight.
// Threads:   owner; the destructor any.
class UringQueue final : public IoQueue {
 public:
  static Result<std::unique_ptr<IoQueue>> open(const IoQueueOptions& options, EventSink& events);
  ~UringQueue() override;

  std::uint32_t depth() const override { return static_cast<std::uint32_t>(slots_.size()); }
  std::uint32_t in_flight() const override { return in_flight_; }
  std::uint32_t buffer_count() const override { return buffers_.count(); }
  std::span<std::byte> buffer(std::uint32_t index) override { return buffers_.at(index); }
  void post(const IoRequest& request) override;
  Result<std::size_t> wait(std::span<IoCompletion> into) override;

  bool registered() const { return registered_; }

 private:
  struct Slot {
    IoRequest request;
    Transfer transfer;
  };

  UringQueue(std::uint32_t depth, IoBuffers buffers);
  void register_buffers(EventSink& events);
  void send(std::uint32_t slot_index);
  // True when the request is finished; then `completion` is filled and the slot is free.
  bool take(std::uint32_t slot_index, std::int32_t answer, IoCompletion& completion);
  Status wait_for_one();
  Result<std::size_t> collect(std::span<IoCompletion> into);

  io_uring ring_{};
  bool ring_open_ = false;
  bool registered_ = false;
  IoBuffers buffers_;
  std::vector<Slot> slots_;
  std::vector<std::uint32_t> free_slots_;
  std::uint32_t in_flight_ = 0;
  ThreadOwner owner_;
};

}  // namespace weft::apply
