// SPDX-License-Identifier: Apache-2.0
// The fabric over libfabric: one FI_EP_RDM endpoint and everything it needs.
#pragma once

#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "transport/fabric/fabric.hpp"
#include "transport/fabric/fabric_options.hpp"
#include "transport/fabric/rail_choice.hpp"
#include "weft/base/event_sink.hpp"
#include "weft/base/thread_owner.hpp"

namespace weft::transport {

struct CloseFid {
  template <typename T>
  void operator()(T* object) const {
    fi_close(&object->fid);
  }
};
template <typename T>
using FidOwner = std::unique_ptr<T, CloseFid>;

// Opens the configured rail and reports the choice in one line. "auto" takes the first provider of
// kProviderOrder that opens and passes check_pair(). A named one that is missing is never replaced.
// Errors: kConfig (naming what exists), kResourceLimit.
Result<std::unique_ptr<Fabric>> open_fabric(const FabricOptions& options, EventSink& events);

// Writes from one rail to the other and looks at data and immediate. Errors: kTimeout.
Status check_pair(Fabric& writer, Fabric& target);

// OfiFabric is one rail on one provider.
// Invariant: objects close in the order endpoint, registrations, queue, addresses, domain, fabric.
// Owns:      the libfabric objects and the control buffers.
// Threads:   owner.
// Limits:    no more operations in flight than three quarters of the provider's reported depth.
class OfiFabric final : public Fabric {
 public:
  static Result<std::unique_ptr<OfiFabric>> open(const FabricOptions& options, FabricInfo info);
  ~OfiFabric() override;
  OfiFabric(const OfiFabric&) = delete;
  OfiFabric& operator=(const OfiFabric&) = delete;

  void adopt_thread() override { owner_.adopt(); }
  const FabricFacts& facts() const override { return facts_; }
  std::vector<std::byte> local_address() const override { return address_; }
  Result<PeerHandle> insert_peer(std::span<const std::byte> address) override;
  void remove_peer(PeerHandle peer) override;
  Result<MemoryHandle> register_memory(std::span<std::byte> bytes, MemoryAccess access) override;
  RemoteMemory remote_memory(MemoryHandle memory) const override;
  void unregister(MemoryHandle memory) override;
  Posted post_send(PeerHandle peer, std::span<const std::byte> message) override;
  std::size_t poll(std::span<FabricEvent> events) override;
  void close() override;

 protected:
  Posted do_write(const RemoteOperation& write) override;
  Posted do_read(const RemoteOperation& read) override;
  bool covers(MemoryHandle memory, std::span<const std::byte> bytes) const override;

 private:
  enum class OperationKind : std::uint8_t { kIdle, kRemote, kSend, kReceive };
  // The provider writes into `context` while the operation is in flight.
  struct Operation {
    fi_context2 context{};
    OperationKind kind = OperationKind::kIdle;
    std::uint32_t buffer = 0;
    std::uint64_t cookie = 0;
  };
  struct Registration {
    FidOwner<fid_mr> region;
    std::span<std::byte> bytes;
  };

  OfiFabric() = default;
  Status open_objects(const FabricOptions& options);
  Status open_queue(const FabricOptions& options);
  Status open_endpoint();
  Status open_control(const FabricOptions& options);
  Status read_address();
  Result<FidOwner<fid_mr>> register_region(std::span<std::byte> bytes, std::uint64_t access);
  Posted post_remote(const RemoteOperation& operation, bool is_write);
  Posted settle_post(ssize_t result, Operation& operation);
  void repost_receives();
  Operation* take_operation(OperationKind kind);
  void release(Operation& operation);
  Operation* known_operation(void* context);
  std::optional<FabricEvent> translate(const fi_cq_data_entry& entry);
  std::size_t read_errors(std::span<FabricEvent> events);
  FabricEvent translate_error(const fi_cq_err_entry& entry);

  ThreadOwner owner_;
  FabricFacts facts_;
  FabricInfo info_;
  std::vector<std::byte> address_;
  // In this order, so that destruction is the reverse of what close() does by hand.
  FidOwner<fid_fabric> fabric_;
  FidOwner<fid_domain> domain_;
  FidOwner<fid_av> peers_;
  FidOwner<fid_cq> queue_;
  std::vector<Registration> registrations_;
  FidOwner<fid_ep> endpoint_;

  std::uint32_t remote_operations_max_ = 0;
  std::uint32_t remote_operations_ = 0;
  std::vector<Operation> operations_;
  std::vector<Operation*> idle_;
  std::unique_ptr<std::byte[]> control_bytes_;  // receives first, then sends
  MemoryHandle control_memory_;
  void* control_descriptor_ = nullptr;
  std::vector<std::uint32_t> idle_sends_;
  std::vector<std::uint32_t> owed_receives_;  // delivered by the last poll, or not accepted yet
};

}  // namespace weft::transport
