// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apply/store/posix_store.hpp"

namespace weft::apply {

// A PosixStore whose queues are io_uring rings, one per queue.
// Threads: any.
class UringStore final : public PosixStore {
 public:
  UringStore(Descriptor directory, std::string path, Durability durability, EventSink& events)
      : PosixStore(std::move(directory), std::move(path), durability), events_(events) {}

  // Errors: kUnsupported with the kernel's reason when this process may not use io_uring.
  static Status probe();

  Result<std::unique_ptr<IoQueue>> open_queue(const IoQueueOptions& options) override;
  std::string_view engine() const override { return "uring"; }

 protected:
  std::unique_ptr<Store> make_child(Descriptor directory, std::string path) const override;

 private:
  EventSink& events_;
};

}  // namespace weft::apply
