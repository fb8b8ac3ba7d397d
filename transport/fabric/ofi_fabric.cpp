// SPDX-License-Identifier: Apache-2.0
#include "transport/fabric/ofi_fabric.hpp"

#include <algorithm>
#include <cstring>

#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <sys/random.h>

namespace weft::transport {
namespace {

constexpr std::uint32_t kMessageBytes = limits::kFabricControlBytesMax;
constexpr std::uint32_t kRemoteOperationsMax = 1024;
constexpr std::size_t kEntriesPerPoll = 64;
// Endpoint options newer than the headers we compile against; providers without them say so.
constexpr int kOptionSharedMemoryPermitted = 11;

Error fabric_error(const char* what, ssize_t result, ErrorCode code = ErrorCode::kConfig) {
  const auto native = static_cast<std::int32_t>(result < 0 ? -result : result);
  if (native == FI_ENOMEM) code = ErrorCode::kResourceLimit;
  return failure(code, Stage::kOpen, std::string(what) + ": " + fi_strerror(native), native);
}

std::uint64_t random_key(std::size_t key_bytes) {
  std::uint64_t key = 0;
  if (getrandom(&key, sizeof(key), 0) != sizeof(key)) return 0;
  return key_bytes >= sizeof(key) ? key : key & ((std::uint64_t{1} << (key_bytes * 8)) - 1);
}

std::uint64_t access_flags(MemoryAccess access) {
  switch (access) {
    case MemoryAccess::kLocal:
      return FI_SEND | FI_RECV | FI_READ | FI_WRITE;
    case MemoryAccess::kRemoteWrite:
      return FI_REMOTE_WRITE;
    case MemoryAccess::kRemoteRead:
      return FI_REMOTE_READ;
  }
  return 0;
}

}  // namespace

Result<std::unique_ptr<OfiFabric>> OfiFabric::open(const FabricOptions& options, FabricInfo info) {
  std::unique_ptr<OfiFabric> rail(new OfiFabric());
  rail->info_ = std::move(info);
  WEFT_TRY_STATUS(rail->open_objects(options));
  return rail;
}

OfiFabric::~OfiFabric() { close(); }

Status OfiFabric::open_objects(const FabricOptions& options) {
  facts_.provider = info_->fabric_attr->prov_name;
  facts_.protocol = info_->ep_attr->protocol;
  facts_.device = info_->domain_attr->name == nullptr ? "" : info_->domain_attr->name;
  facts_.message_bytes_max = info_->ep_attr->max_msg_size;
  facts_.write_bytes_max = info_->ep_attr->max_msg_size;
  facts_.immediate_bytes = static_cast<std::uint32_t>(info_->domain_attr->cq_data_size);
  facts_.pins_memory = pins_memory(facts_.provider);
  facts_.library_version =
      std::to_string(FI_MAJOR(fi_version())) + "." + std::to_string(FI_MINOR(fi_version()));
  if (facts_.pins_memory) {
    WEFT_TRY_STATUS(check_locked_memory(options.pinned_bytes, locked_memory_limit()));
  }
  const auto depth = static_cast<std::uint32_t>(
      std::min<std::size_t>(info_->tx_attr->size, kRemoteOperationsMax) * 3 / 4);
  remote_operations_max_ = std::max(1U, depth);
  facts_.writes_in_flight_max = remote_operations_max_;

  fid_fabric* fabric = nullptr;
  if (const int result = fi_fabric(info_->fabric_attr, &fabric, nullptr); result != 0) {
    return fabric_error("fi_fabric", result);
  }
  fabric_.reset(fabric);
  fid_domain* domain = nullptr;
  if (const int result = fi_domain(fabric, info_.get(), &domain, nullptr); result != 0) {
    return fabric_error("fi_domain", result);
  }
  domain_.reset(domain);
  WEFT_TRY_STATUS(open_queue(options));
  WEFT_TRY_STATUS(open_endpoint());
  WEFT_TRY_STATUS(open_control(options));
  return read_address();
}

Status OfiFabric::open_queue(const FabricOptions& options) {
  // Room for everything that can complete at once: providers need not guard the queue.
  fi_cq_attr queue_attributes{};
  const std::size_t entries = std::size_t{remote_operations_max_} + options.control_receives +
                              options.control_sends + options.doorbells_max;
  queue_attributes.size = entries + entries / 10;
  queue_attributes.format = FI_CQ_FORMAT_DATA;
  queue_attributes.wait_obj = FI_WAIT_NONE;
  fid_cq* queue = nullptr;
  if (const int result = fi_cq_open(domain_.get(), &queue_attributes, &queue, nullptr);
      result != 0) {
    return fabric_error("fi_cq_open", result);
  }
  queue_.reset(queue);
  fi_av_attr peer_attributes{};
  peer_attributes.type = FI_AV_TABLE;
  fid_av* peers = nullptr;
  if (const int result = fi_av_open(domain_.get(), &peer_attributes, &peers, nullptr);
      result != 0) {
    return fabric_error("fi_av_open", result);
  }
  peers_.reset(peers);
  return ok();
}

Status OfiFabric::open_endpoint() {
  fid_ep* endpoint = nullptr;
  if (const int result = fi_endpoint(domain_.get(), info_.get(), &endpoint, nullptr); result != 0) {
    return fabric_error("fi_endpoint", result);
  }
  endpoint_.reset(endpoint);
  if (const int result = fi_ep_bind(endpoint, &queue_->fid, FI_TRANSMIT | FI_RECV); result != 0) {
    return fabric_error("fi_ep_bind(queue)", result);
  }
  if (const int result = fi_ep_bind(endpoint, &peers_->fid, 0); result != 0) {
    return fabric_error("fi_ep_bind(addresses)", result);
  }
  if (facts_.provider.starts_with("efa")) {
    // Peers on the same host must fail and heal like remote ones; a provider may not know this.
    const bool permitted = false;
    static_cast<void>(fi_setopt(&endpoint->fid, FI_OPT_ENDPOINT, kOptionSharedMemoryPermitted,
                                &permitted, sizeof(permitted)));
  }
  if (const int result = fi_enable(endpoint); result != 0) {
    return fabric_error(("fi_enable on " + readable_source(*peers_, *info_)).c_str(), result);
  }
  return ok();
}

Status OfiFabric::open_control(const FabricOptions& options) {
  const std::uint32_t buffers = options.control_receives + options.control_sends;
  const std::size_t bytes = std::size_t{buffers} * kMessageBytes;
  control_bytes_ = std::make_unique<std::byte[]>(bytes);
  WEFT_TRY(control_memory_, register_memory({control_bytes_.get(), bytes}, MemoryAccess::kLocal));
  control_descriptor_ = fi_mr_desc(registrations_[control_memory_.value].region.get());

  operations_.resize(std::size_t{remote_operations_max_} + buffers);
  idle_.reserve(operations_.size());
  for (Operation& operation : operations_) idle_.push_back(&operation);
  idle_sends_.reserve(options.control_sends);
  owed_receives_.reserve(options.control_receives);
  for (std::uint32_t i = 0; i < options.control_receives; ++i) owed_receives_.push_back(i);
  for (std::uint32_t i = options.control_receives; i < buffers; ++i) idle_sends_.push_back(i);
  repost_receives();
  return ok();
}

Status OfiFabric::read_address() {
  std::array<std::byte, limits::kFabricAddressBytesMax> bytes{};
  std::size_t length = bytes.size();
  if (const int result = fi_getname(&endpoint_->fid, bytes.data(), &length);
      result != 0 || length > bytes.size()) {
    return fabric_error("fi_getname", result);
  }
  address_.assign(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(length));
  std::array<char, 256> text{};
  std::size_t text_length = text.size();
  fi_av_straddr(peers_.get(), address_.data(), text.data(), &text_length);
  facts_.address = text.data();
  return ok();
}

Result<PeerHandle> OfiFabric::insert_peer(std::span<const std::byte> address) {
  owner_.check();
  if (address.size() != address_.size() || peers_ == nullptr) {
    return failure(ErrorCode::kUnsupported, Stage::kRelay,
                   "fabric address of " + std::to_string(address.size()) + " bytes; provider " +
                       facts_.provider + " has " + std::to_string(address_.size()));
  }
  fi_addr_t peer = FI_ADDR_UNSPEC;
  const int inserted = fi_av_insert(peers_.get(), address.data(), 1, &peer, 0, nullptr);
  if (inserted != 1 || peer == FI_ADDR_UNSPEC) {
    return fabric_error("fi_av_insert", inserted, ErrorCode::kPeerLost);
  }
  return PeerHandle{peer};
}

void OfiFabric::remove_peer(PeerHandle peer) {
  owner_.check();
  fi_addr_t address = peer.value;
  if (peers_ != nullptr) fi_av_remove(peers_.get(), &address, 1, 0);
}

Result<FidOwner<fid_mr>> OfiFabric::register_region(std::span<std::byte> bytes,
                                                    std::uint64_t access) {
  constexpr int kKeyTries = 8;
  fid_mr* region = nullptr;
  int result = 0;
  for (int i = 0; i < kKeyTries; ++i) {
    const std::uint64_t key = random_key(info_->domain_attr->mr_key_size);
    result =
        fi_mr_reg(domain_.get(), bytes.data(), bytes.size(), access, 0, key, 0, &region, nullptr);
    if (result != -FI_ENOKEY) break;  // a key that is taken: draw again
  }
  if (result != 0) return fabric_error("fi_mr_reg", result, ErrorCode::kResourceLimit);
  FidOwner<fid_mr> owner(region);
  if (fi_mr_key(region) == FI_KEY_NOTAVAIL) {
    return fabric_error("fi_mr_key", FI_ENOKEY, ErrorCode::kResourceLimit);
  }
  return owner;
}

Result<MemoryHandle> OfiFabric::register_memory(std::span<std::byte> bytes, MemoryAccess access) {
  owner_.check();
  WEFT_TRY(FidOwner<fid_mr> region, register_region(bytes, access_flags(access)));
  const auto place =
      std::find_if(registrations_.begin(), registrations_.end(),
                   [](const Registration& entry) { return entry.region == nullptr; });
  const auto index = static_cast<std::uint32_t>(place - registrations_.begin());
  if (place == registrations_.end()) registrations_.emplace_back();
  registrations_[index] = {std::move(region), bytes};
  return MemoryHandle{index};
}

RemoteMemory OfiFabric::remote_memory(MemoryHandle memory) const {
  const Registration& entry = registrations_[memory.value];
  const bool is_virtual = (info_->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0;
  return {is_virtual ? reinterpret_cast<std::uintptr_t>(entry.bytes.data()) : 0,
          fi_mr_key(entry.region.get())};
}

void OfiFabric::unregister(MemoryHandle memory) {
  owner_.check();
  registrations_[memory.value] = {};
}

bool OfiFabric::covers(MemoryHandle memory, std::span<const std::byte> bytes) const {
  if (memory.value >= registrations_.size() || registrations_[memory.value].region == nullptr) {
    return false;
  }
  const std::span<std::byte> whole = registrations_[memory.value].bytes;
  return bytes.data() >= whole.data() && bytes.data() + bytes.size() <= whole.data() + whole.size();
}

OfiFabric::Operation* OfiFabric::take_operation(OperationKind kind) {
  if (idle_.empty()) return nullptr;
  Operation* const operation = idle_.back();
  idle_.pop_back();
  operation->kind = kind;
  return operation;
}

void OfiFabric::release(Operation& operation) {
  if (operation.kind == OperationKind::kRemote) --remote_operations_;
  if (operation.kind == OperationKind::kSend) idle_sends_.push_back(operation.buffer);
  operation.kind = OperationKind::kIdle;
  idle_.push_back(&operation);
}

Posted OfiFabric::settle_post(ssize_t result, Operation& operation) {
  if (result == 0) return Posted::kPosted;
  release(operation);
  if (result == -FI_EAGAIN) return Posted::kAgain;
  last_error_ = static_cast<std::int32_t>(-result);
  return Posted::kRefused;
}

Posted OfiFabric::post_send(PeerHandle peer, std::span<const std::byte> message) {
  owner_.check();
  if (endpoint_ == nullptr || message.empty() || message.size() > kMessageBytes) {
    last_error_ = FI_EINVAL;
    return Posted::kRefused;
  }
  if (idle_sends_.empty()) return Posted::kAgain;
  Operation* const operation = take_operation(OperationKind::kSend);
  if (operation == nullptr) return Posted::kAgain;
  operation->buffer = idle_sends_.back();
  idle_sends_.pop_back();
  std::byte* const bytes = control_bytes_.get() + std::size_t{operation->buffer} * kMessageBytes;
  std::memcpy(bytes, message.data(), message.size());
  return settle_post(fi_send(endpoint_.get(), bytes, message.size(), control_descriptor_,
                             peer.value, &operation->context),
                     *operation);
}

Posted OfiFabric::post_remote(const RemoteOperation& request, bool is_write) {
  owner_.check();
  if (endpoint_ == nullptr) {
    last_error_ = FI_EINVAL;
    return Posted::kRefused;
  }
  if (remote_operations_ == remote_operations_max_) return Posted::kAgain;
  Operation* const operation = take_operation(OperationKind::kRemote);
  if (operation == nullptr) return Posted::kAgain;
  ++remote_operations_;
  operation->cookie = request.cookie;
  void* const descriptor = fi_mr_desc(registrations_[request.local.value].region.get());
  const ssize_t result =
      is_write ? fi_writedata(endpoint_.get(), request.bytes.data(), request.bytes.size(),
                              descriptor, request.immediate, request.peer.value,
                              request.remote.address, request.remote.key, &operation->context)
               : fi_read(endpoint_.get(), request.bytes.data(), request.bytes.size(), descriptor,
                         request.peer.value, request.remote.address, request.remote.key,
                         &operation->context);
  return settle_post(result, *operation);
}

Posted OfiFabric::do_write(const RemoteOperation& write) { return post_remote(write, true); }
Posted OfiFabric::do_read(const RemoteOperation& read) { return post_remote(read, false); }

void OfiFabric::repost_receives() {
  while (!owed_receives_.empty()) {
    Operation* const operation = take_operation(OperationKind::kReceive);
    if (operation == nullptr) return;
    operation->buffer = owed_receives_.back();
    std::byte* const bytes = control_bytes_.get() + std::size_t{operation->buffer} * kMessageBytes;
    const ssize_t result = fi_recv(endpoint_.get(), bytes, kMessageBytes, control_descriptor_,
                                   FI_ADDR_UNSPEC, &operation->context);
    if (settle_post(result, *operation) != Posted::kPosted) return;
    owed_receives_.pop_back();
  }
}

OfiFabric::Operation* OfiFabric::known_operation(void* context) {
  // Completions without a context, or with one of a provider's own, exist: look before touching.
  const auto address = reinterpret_cast<std::uintptr_t>(context);
  const auto first = reinterpret_cast<std::uintptr_t>(operations_.data());
  if (address < first || address >= first + operations_.size() * sizeof(Operation)) return nullptr;
  Operation& operation = operations_[(address - first) / sizeof(Operation)];
  return operation.kind == OperationKind::kIdle ? nullptr : &operation;
}

std::size_t OfiFabric::poll(std::span<FabricEvent> events) {
  owner_.check();
  if (endpoint_ == nullptr || events.empty()) return 0;
  repost_receives();
  std::array<fi_cq_data_entry, kEntriesPerPoll> entries;
  const ssize_t count =
      fi_cq_read(queue_.get(), entries.data(), std::min(entries.size(), events.size()));
  if (count == -FI_EAVAIL) return read_errors(events);
  std::size_t stored = 0;
  for (ssize_t i = 0; i < count; ++i) {
    if (auto event = translate(entries[static_cast<std::size_t>(i)])) events[stored++] = *event;
  }
  return stored;
}

std::optional<FabricEvent> OfiFabric::translate(const fi_cq_data_entry& entry) {
  FabricEvent event;
  // Not every provider sets FI_RMA here; the context of a peer's write means nothing.
  if ((entry.flags & (FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA)) != 0) {
    event.kind = FabricEventKind::kDoorbell;
    event.immediate = static_cast<std::uint32_t>(entry.data);
    return event;
  }
  Operation* const operation = known_operation(entry.op_context);
  if (operation == nullptr) return std::nullopt;
  const OperationKind kind = operation->kind;
  release(*operation);
  if (kind == OperationKind::kSend) return std::nullopt;
  if (kind == OperationKind::kRemote) {
    event.kind = FabricEventKind::kCompleted;
    event.cookie = operation->cookie;
    return event;
  }
  owed_receives_.push_back(operation->buffer);
  event.kind = FabricEventKind::kMessage;
  event.message = {control_bytes_.get() + std::size_t{operation->buffer} * kMessageBytes,
                   std::min<std::size_t>(entry.len, kMessageBytes)};
  return event;
}

std::size_t OfiFabric::read_errors(std::span<FabricEvent> events) {
  std::size_t stored = 0;
  while (stored < events.size()) {
    fi_cq_err_entry entry{};
    if (fi_cq_readerr(queue_.get(), &entry, 0) != 1) break;
    events[stored++] = translate_error(entry);
  }
  return stored;
}

FabricEvent OfiFabric::translate_error(const fi_cq_err_entry& entry) {
  FabricEvent event;
  event.native = entry.err < 0 ? -entry.err : entry.err;  // both signs have been seen
  Operation* const operation = known_operation(entry.op_context);
  if (operation == nullptr) return event;
  const OperationKind kind = operation->kind;
  release(*operation);
  if (kind == OperationKind::kReceive) owed_receives_.push_back(operation->buffer);
  if (kind == OperationKind::kRemote) {
    event.kind = FabricEventKind::kFailed;
    event.cookie = operation->cookie;
  }
  return event;
}

void OfiFabric::close() {
  endpoint_.reset();
  registrations_.clear();
  queue_.reset();
  peers_.reset();
  domain_.reset();
  fabric_.reset();
}

}  // namespace weft::transport
