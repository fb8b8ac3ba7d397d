// SPDX-License-Identifier: Apache-2.0
// Wraps a fabric and ends or stops this process, or takes its link down, at a named point of a
// transfer.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>

#include "support/wrapped_fabric.hpp"

namespace weft::transport {

// What happens at the `count`-th time that `point` is passed. Points:
//   registering                    before a parent's range is registered
//   sending-M, sent-M              before a message M is posted first; when it has been accepted
//   heard-M                        M has come, the relay has not seen it yet
//   posting-write, posted-write    a frame; likewise read
//   completed-write, completed-read  locally over, the relay has not seen it yet
//   doorbell                       a frame has come, the relay has not seen it yet
// M: hello grants written close closed request offer done.
struct Trap {
  std::string action;  // kill, stop, down (the interface eth0)
  std::string point;
  std::uint32_t count = 1;
};

// Says "struck" on standard output before it acts; then it is disarmed.
// Threads: owner, like the fabric it wraps; arm() any.
class TrapFabric final : public WrappedFabric {
 public:
  explicit TrapFabric(std::unique_ptr<Fabric> inner);

  void arm(Trap trap);

  Result<MemoryHandle> register_memory(std::span<std::byte> bytes, MemoryAccess access) override;
  Posted post_send(PeerHandle peer, std::span<const std::byte> message) override;
  std::size_t poll(std::span<FabricEvent> events) override;

 protected:
  Posted do_write(const RemoteOperation& write) override;
  Posted do_read(const RemoteOperation& read) override;

 private:
  void pass(std::string_view prefix, std::string_view what);
  void pass_event(const FabricEvent& event);

  std::mutex mutex_;
  Trap trap_;
};

}  // namespace weft::transport
