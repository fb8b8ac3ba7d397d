// SPDX-License-Identifier: Apache-2.0
// A fabric that hands everything on to another one, for those that watch or disturb.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "transport/fabric/fabric.hpp"

namespace weft::transport {

// Owns:    the fabric it wraps.
// Threads: owner, like the fabric it wraps.
class WrappedFabric : public Fabric {
 public:
  explicit WrappedFabric(std::unique_ptr<Fabric> inner) : inner_(std::move(inner)) {}

  void adopt_thread() override { inner_->adopt_thread(); }
  const FabricFacts& facts() const override { return inner_->facts(); }
  std::vector<std::byte> local_address() const override { return inner_->local_address(); }
  Result<PeerHandle> insert_peer(std::span<const std::byte> address) override {
    return inner_->insert_peer(address);
  }
  void remove_peer(PeerHandle peer) override { inner_->remove_peer(peer); }
  Result<MemoryHandle> register_memory(std::span<std::byte> bytes, MemoryAccess access) override {
    return inner_->register_memory(bytes, access);
  }
  RemoteMemory remote_memory(MemoryHandle memory) const override {
    return inner_->remote_memory(memory);
  }
  void unregister(MemoryHandle memory) override { inner_->unregister(memory); }
  Posted post_send(PeerHandle peer, std::span<const std::byte> message) override {
    return inner_->post_send(peer, message);
  }
  std::size_t poll(std::span<FabricEvent> events) override { return inner_->poll(events); }
  void close() override { inner_->close(); }

 protected:
  Posted do_write(const RemoteOperation& write) override { return inner_->post_write(write); }
  Posted do_read(const RemoteOperation& read) override { return inner_->post_read(read); }
  bool covers(MemoryHandle, std::span<const std::byte>) const override { return true; }

 private:
  std::unique_ptr<Fabric> inner_;
};

}  // namespace weft::transport
