// SPDX-License-Identifier: Apache-2.0
#include "apply/store/uring_queue.hpp"

#include <sys/resource.h>

#include <array>
#include <string>

#include "apply/store/native_error.hpp"
#include "weft/base/limits.hpp"

namespace weft::apply {

namespace {

// A device that does not answer for so long is broken; the apply stops with its journal intact.
constexpr __kernel_timespec kDeviceTimeout{.tv_sec = 120, .tv_nsec = 0};

}  // namespace

UringQueue::UringQueue(std::uint32_t depth, IoBuffers buffers)
    : buffers_(std::move(buffers)), slots_(depth) {
  for (std::uint32_t i = depth; i-- > 0;) free_slots_.push_back(i);
}

Result<std::unique_ptr<IoQueue>> UringQueue::open(const IoQueueOptions& options,
                                                  EventSink& events) {
  WEFT_TRY(IoBuffers buffers, IoBuffers::open(options.buffer_count, options.buffer_bytes));
  std::unique_ptr<UringQueue> queue(new UringQueue(options.depth, std::move(buffers)));
  // Completions are taken by the thread that waits for them: no interruption in between.
  int answer = ::io_uring_queue_init(options.depth, &queue->ring_, IORING_SETUP_COOP_TASKRUN);
  if (answer == -EINVAL) answer = ::io_uring_queue_init(options.depth, &queue->ring_, 0);
  if (answer < 0) return native_error(-answer, Stage::kOpen, "io_uring ring");
  queue->ring_open_ = true;
  queue->register_buffers(events);
  return std::unique_ptr<IoQueue>(std::move(queue));
}

void UringQueue::register_buffers(EventSink& events) {
  std::vector<iovec> vectors;
  for (std::uint32_t i = 0; i < buffers_.count(); ++i) {
    vectors.push_back({buffers_.at(i).data(), buffers_.buffer_bytes()});
  }
  const int answer = ::io_uring_register_buffers(&ring_, vectors.data(), buffers_.count());
  registered_ = answer == 0;
  if (registered_) return;
  rlimit limit{};
  ::getrlimit(RLIMIT_MEMLOCK, &limit);
  const std::array<EventField, 3> fields{
      EventField{"needed_bytes", std::to_string(buffers_.all().size())},
      EventField{"memlock_bytes", std::to_string(limit.rlim_cur)},
      EventField{"cause", native_error(-answer, Stage::kOpen, "register buffers").message()}};
  events.report(Severity::kWarning, "io_uring_buffers_unregistered", fields);
}

UringQueue::~UringQueue() {
  if (!ring_open_) return;
  // The kernel may still write into our buffers: they outlive every request.
  std::array<IoCompletion, 16> taken;
  while (in_flight_ > 0 && collect(taken)) {
  }
  ::io_uring_queue_exit(&ring_);
}

void UringQueue::post(const IoRequest& request) {
  owner_.check();
  WEFT_ASSERT(!free_slots_.empty() && !request.memory.empty());
  const std::uint32_t slot_index = free_slots_.back();
  free_slots_.pop_back();
  slots_[slot_index] = {
      request, Transfer(request.kind == IoRequest::Kind::kRead ? Transfer::Direction::kRead
                                                               : Transfer::Direction::kWrite,
                        request.memory.size())};
  ++in_flight_;
  send(slot_index);
}

void UringQueue::send(std::uint32_t slot_index) {
  const Slot& slot = slots_[slot_index];
  io_uring_sqe* entry = ::io_uring_get_sqe(&ring_);
  // The ring has a place per slot, and a slot has one entry at a time.
  WEFT_ASSERT(entry != nullptr);
  const std::uint64_t done = slot.transfer.done_bytes();
  const auto rest = slot.request.memory.subspan(static_cast<std::size_t>(done));
  const auto bytes = static_cast<unsigned>(rest.size());
  const std::uint64_t offset = slot.request.offset + done;
  const int file = slot.request.file->native_handle();
  const auto pool = buffers_.all();
  const bool fixed = registered_ && rest.data() >= pool.data() &&
                     rest.data() + rest.size() <= pool.data() + pool.size();
  const bool reading = slot.request.kind == IoRequest::Kind::kRead;
  if (fixed) {
    const auto place = static_cast<std::size_t>(rest.data() - pool.data());
    const auto index = static_cast<int>(place / buffers_.buffer_bytes());
    if (reading) {
      ::io_uring_prep_read_fixed(entry, file, rest.data(), bytes, offset, index);
    } else {
      ::io_uring_prep_write_fixed(entry, file, rest.data(), bytes, offset, index);
    }
  } else if (reading) {
    ::io_uring_prep_read(entry, file, rest.data(), bytes, offset);
  } else {
    ::io_uring_prep_write(entry, file, rest.data(), bytes, offset);
  }
  ::io_uring_sqe_set_data64(entry, slot_index);
}

bool UringQueue::take(std::uint32_t slot_index, std::int32_t answer, IoCompletion& completion) {
  Slot& slot = slots_[slot_index];
  const bool reading = slot.request.kind == IoRequest::Kind::kRead;
  completion.token = slot.request.token;
  switch (slot.transfer.advance(answer)) {
    case Transfer::Next::kContinue:
      send(slot_index);
      return false;
    case Transfer::Next::kDone:
      completion.status = ok();
      break;
    case Transfer::Next::kEnd:
      completion.status = failure(
          ErrorCode::kConcurrentModification, Stage::kApply,
          "file ends at byte " + std::to_string(slot.request.offset + slot.transfer.done_bytes()) +
              ", before the end of a read");
      break;
    case Transfer::Next::kFailed:
      completion.status = native_error(
          slot.transfer.native_error(), Stage::kApply,
          std::string(reading ? "read " : "write ") + slot.request.file->name() + " at byte " +
              std::to_string(slot.request.offset + slot.transfer.done_bytes()));
      break;
  }
  free_slots_.push_back(slot_index);
  --in_flight_;
  return true;
}

Status UringQueue::wait_for_one() {
  for (std::uint32_t attempt = 0; attempt <= limits::kIoRetriesMax; ++attempt) {
    io_uring_cqe* entry = nullptr;
    __kernel_timespec timeout = kDeviceTimeout;
    const int answer = ::io_uring_submit_and_wait_timeout(&ring_, &entry, 1, &timeout, nullptr);
    if (answer >= 0) return ok();
    if (answer != -EINTR && answer != -EAGAIN && answer != -EBUSY) {
      return native_error(-answer, Stage::kApply, "io_uring wait");
    }
  }
  return native_error(EIO, Stage::kApply, "io_uring wait");
}

Result<std::size_t> UringQueue::wait(std::span<IoCompletion> into) {
  owner_.check();
  WEFT_ASSERT(in_flight_ > 0 && !into.empty());
  return collect(into);
}

Result<std::size_t> UringQueue::collect(std::span<IoCompletion> into) {
  std::size_t count = 0;
  while (count == 0) {
    WEFT_TRY_STATUS(wait_for_one());
    io_uring_cqe* entry = nullptr;
    while (count < into.size() && ::io_uring_peek_cqe(&ring_, &entry) == 0) {
      const auto slot_index = static_cast<std::uint32_t>(::io_uring_cqe_get_data64(entry));
      const std::int32_t answer = entry->res;
      ::io_uring_cqe_seen(&ring_, entry);
      if (take(slot_index, answer, into[count])) ++count;
    }
  }
  return count;
}

}  // namespace weft::apply
