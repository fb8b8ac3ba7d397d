// SPDX-License-Identifier: Apache-2.0
#include "apply/store/uring_store.hpp"

#include <fcntl.h>
#include <liburing.h>

#include <array>

#include "apply/store/native_error.hpp"
#include "apply/store/uring_queue.hpp"

namespace weft::apply {

Status UringStore::probe() {
  io_uring ring{};
  const int answer = ::io_uring_queue_init(2, &ring, 0);
  if (answer < 0) {
    Error error = native_error(-answer, Stage::kOpen, "io_uring is refused to this process");
    error.code = ErrorCode::kUnsupported;
    return error;
  }
  ::io_uring_queue_exit(&ring);
  return ok();
}

Result<std::unique_ptr<IoQueue>> UringStore::open_queue(const IoQueueOptions& options) {
  return UringQueue::open(options, events_);
}

std::unique_ptr<Store> UringStore::make_child(Descriptor directory, std::string path) const {
  return std::make_unique<UringStore>(std::move(directory), std::move(path), durability(), events_);
}

Result<std::unique_ptr<Store>> open_store(const std::string& path, const StoreOptions& options,
                                          EventSink& events) {
  Descriptor directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory) return native_error(errno, Stage::kOpen, "open directory " + path);
  if (options.engine != Engine::kPosix) {
    const Status usable = UringStore::probe();
    if (usable) {
      return std::unique_ptr<Store>(
          new UringStore(std::move(directory), path, options.durability, events));
    }
    if (options.engine == Engine::kUring) return usable.error();
    const std::array<EventField, 2> fields{EventField{"directory", path},
                                           EventField{"cause", usable.error().message()}};
    events.report(Severity::kWarning, "io_uring_unavailable", fields);
  }
  return std::unique_ptr<Store>(new PosixStore(std::move(directory), path, options.durability));
}

}  // namespace weft::apply
