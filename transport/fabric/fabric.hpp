// SPDX-License-Identifier: Apache-2.0
// The fabric seam: one rail as plain values in and events out. Everything above it is written to
// the strictest contract: no order, no progress without poll(), no promise that an error is
// reported, a local completion that says nothing about delivery, a 32-bit immediate.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "weft/base/limits.hpp"
#include "weft/base/result.hpp"

namespace weft::transport {

struct PeerHandle {
  std::uint64_t value = 0;
  auto operator<=>(const PeerHandle&) const = default;
};

struct MemoryHandle {
  std::uint32_t value = 0;
  auto operator<=>(const MemoryHandle&) const = default;
};

// What a peer needs to reach registered memory; 0 is a valid key and a valid address.
struct RemoteMemory {
  std::uint64_t address = 0;
  std::uint64_t key = 0;
  auto operator<=>(const RemoteMemory&) const = default;
};

enum class MemoryAccess : std::uint8_t {
  kLocal = 1,        // source of writes, target of own reads
  kRemoteWrite = 2,  // a peer may write
  kRemoteRead = 3,   // a peer may read
};

// What was chosen when the rail was opened; exported by status and logged in one line.
struct FabricFacts {
  std::string provider;  // as libfabric names it, e.g. "tcp;ofi_rxm"
  std::uint32_t protocol = 0;
  std::string device;   // domain name
  std::string address;  // readable form of the local address
  std::uint64_t message_bytes_max = 0;
  std::uint64_t write_bytes_max = 0;
  std::uint32_t immediate_bytes = 0;
  std::uint32_t writes_in_flight_max = 0;
  bool pins_memory = false;
  std::string library_version;
};

// A one-sided write of registered local memory, or a read into it. `cookie` comes back once.
struct RemoteOperation {
  PeerHandle peer;
  MemoryHandle local;
  std::span<std::byte> bytes;   // within the registered memory
  RemoteMemory remote;          // of the first byte
  std::uint32_t immediate = 0;  // writes only: the target's doorbell
  std::uint64_t cookie = 0;
};

enum class Posted : std::uint8_t {
  kPosted = 1,
  kAgain = 2,    // queue full or still connecting: poll, then post it again; the deadline is ours
  kRefused = 3,  // never posted, never will be: see last_error()
};

enum class FabricEventKind : std::uint8_t {
  kMessage = 1,    // a control message; bytes live until the next poll()
  kDoorbell = 2,   // a peer's write has arrived and names its slot by `immediate`
  kCompleted = 3,  // the operation `cookie` is locally complete
  kFailed = 4,     // the operation `cookie` failed
  kTrouble = 5,    // some link broke; the fabric does not say which
};

struct FabricEvent {
  FabricEventKind kind = FabricEventKind::kTrouble;
  std::uint32_t immediate = 0;
  std::uint64_t cookie = 0;
  std::span<const std::byte> message;
  std::int32_t native = 0;  // positive fi_errno of kFailed and kTrouble
};

// One rail: endpoint, completion queue, addresses, registrations, control buffers.
// Invariant: each posted write and read comes back as kCompleted or kFailed at most once; after
//            close() nothing comes back and the memory is ours again.
// Threads:   owner: the thread that first calls in after open() or adopt_thread().
class Fabric {
 public:
  virtual ~Fabric() = default;

  virtual void adopt_thread() = 0;
  virtual const FabricFacts& facts() const = 0;
  // Opaque, at most limits::kFabricAddressBytesMax.
  virtual std::vector<std::byte> local_address() const = 0;

  virtual Result<PeerHandle> insert_peer(std::span<const std::byte> address) = 0;
  virtual void remove_peer(PeerHandle peer) = 0;

  // Remotely reachable memory gets a random key of its own where we may choose it.
  virtual Result<MemoryHandle> register_memory(std::span<std::byte> bytes, MemoryAccess access) = 0;
  virtual RemoteMemory remote_memory(MemoryHandle memory) const = 0;
  // Not a barrier: a write that is under way may still land (fabric-wire.md, "Quarantine").
  virtual void unregister(MemoryHandle memory) = 0;

  // Copies the message, at most limits::kFabricControlBytesMax. No event: control is repeated.
  virtual Posted post_send(PeerHandle peer, std::span<const std::byte> message) = 0;
  Posted post_write(const RemoteOperation& write) { return checked(write, &Fabric::do_write); }
  Posted post_read(const RemoteOperation& read) { return checked(read, &Fabric::do_read); }

  // Drives progress; returns how many events were stored.
  virtual std::size_t poll(std::span<FabricEvent> events) = 0;
  // Fabric errno of the last kRefused.
  std::int32_t last_error() const { return last_error_; }
  virtual void close() = 0;

 protected:
  virtual Posted do_write(const RemoteOperation& write) = 0;
  virtual Posted do_read(const RemoteOperation& read) = 0;
  virtual bool covers(MemoryHandle memory, std::span<const std::byte> bytes) const = 0;

  std::int32_t last_error_ = 0;

 private:
  // No empty operation and none outside its registration ever reaches a provider.
  Posted checked(const RemoteOperation& operation, Posted (Fabric::*post)(const RemoteOperation&)) {
    if (operation.bytes.empty() || operation.bytes.size() > facts().write_bytes_max ||
        !covers(operation.local, operation.bytes)) {
      last_error_ = 22;  // EINVAL
      return Posted::kRefused;
    }
    return (this->*post)(operation);
  }
};

}  // namespace weft::transport
