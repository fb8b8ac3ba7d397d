// SPDX-License-Identifier: Apache-2.0
// Wraps a fabric and remembers which memory each write was posted from.
#pragma once

#include <memory>
#include <mutex>
#include <set>
#include <utility>

#include "support/wrapped_fabric.hpp"

namespace weft::transport {

// Threads: owner, like the fabric it wraps; posted() any.
class TracingFabric final : public WrappedFabric {
 public:
  explicit TracingFabric(std::unique_ptr<Fabric> inner) : WrappedFabric(std::move(inner)) {}

  std::multiset<const std::byte*> posted() const {
    std::lock_guard lock(mutex_);
    return posted_;
  }

 protected:
  Posted do_write(const RemoteOperation& write) override {
    const Posted posted = WrappedFabric::do_write(write);
    if (posted == Posted::kPosted) {
      std::lock_guard lock(mutex_);
      posted_.insert(write.bytes.data());
    }
    return posted;
  }

 private:
  mutable std::mutex mutex_;
  std::multiset<const std::byte*> posted_;
};

}  // namespace weft::transport
