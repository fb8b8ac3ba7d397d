// SPDX-License-Identifier: Apache-2.0
// Leases and shared slots: who may fill a slot, and who still needs a full one.
//
// A slot is kSlotBytes: a header page of 4096 bytes at whose end the 128-byte frame header lies,
// then index and payload, then at least 64 readable bytes. "The frame" of a slot starts at offset
// 4096 - 128.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "weft/base/assert.hpp"
#include "weft/base/clock.hpp"
#include "weft/base/limits.hpp"
#include "weft/base/result.hpp"

namespace weft {

class SlotOwner;

// The part of a slot that Lease and SharedSlot share; lives in the pool as long as the pool.
struct SlotState {
  SlotOwner* owner = nullptr;
  std::byte* memory = nullptr;    // first byte of the header page
  std::uint32_t slot_bytes = 0;   // header page and tail included
  std::uint32_t slot_index = 0;   // within the owner
  std::uint32_t frame_bytes = 0;  // set when full
  std::atomic<std::uint32_t> references{0};
};

// What takes a slot back at its last drop.
// Threads: any.
class SlotOwner {
 public:
  virtual void give_back(SlotState& slot) = 0;

 protected:
  ~SlotOwner() = default;
};

// SharedSlot is a counted reference to one full, registered slot. The bytes are not changed while
// one lives. Owns:    one reference; the pool must outlive every reference. Threads: one at a time;
// copies may live on different threads.
class SharedSlot {
 public:
  SharedSlot() = default;
  // Takes over one reference that `state` already counts.
  explicit SharedSlot(SlotState* state) : state_(state) {}
  SharedSlot(const SharedSlot& other) : state_(other.state_) {
    // relaxed: the copier already holds a reference, so the count cannot reach zero here.
    if (state_ != nullptr) state_->references.fetch_add(1, std::memory_order_relaxed);
  }
  SharedSlot(SharedSlot&& other) noexcept : state_(std::exchange(other.state_, nullptr)) {}
  SharedSlot& operator=(SharedSlot other) noexcept {
    std::swap(state_, other.state_);
    return *this;
  }
  ~SharedSlot() { drop(); }

  explicit operator bool() const { return state_ != nullptr; }
  // Header, index and payload.
  std::span<const std::byte> frame() const {
    WEFT_ASSERT(state_ != nullptr);
    return {state_->memory + limits::kHeaderPageBytes - limits::kFrameHeaderBytes,
            state_->frame_bytes};
  }
  std::uint32_t slot_index() const { return state_->slot_index; }
  const SlotOwner* owner() const { return state_ == nullptr ? nullptr : state_->owner; }

  void drop() {
    // acq_rel: the last dropper sees every other holder's reads as finished before it gives the
    // slot back.
    if (state_ != nullptr && state_->references.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      state_->owner->give_back(*state_);
    }
    state_ = nullptr;
  }

 private:
  SlotState* state_ = nullptr;
};

// Lease is the right to fill and send one registered slot.
// Invariant: a live lease names a slot that no other lease names; an empty lease names none.
// Owns:      the slot, until dropped or shared; the pool must outlive every lease.
// Threads:   one at a time; may be moved between threads.
class [[nodiscard]] Lease {
 public:
  Lease() = default;
  explicit Lease(SlotState* state) : state_(state) { WEFT_ASSERT(state->references.load() == 0); }
  Lease(Lease&& other) noexcept : state_(std::exchange(other.state_, nullptr)) {}
  Lease& operator=(Lease&& other) noexcept {
    if (this != &other) {
      drop();
      state_ = std::exchange(other.state_, nullptr);
    }
    return *this;
  }
  ~Lease() { drop(); }

  explicit operator bool() const { return state_ != nullptr; }
  // Room for header, index and payload; the tail is not part of it.
  std::span<std::byte> frame_room() const {
    WEFT_ASSERT(state_ != nullptr);
    constexpr std::uint32_t kStart = limits::kHeaderPageBytes - limits::kFrameHeaderBytes;
    return {state_->memory + kStart, state_->slot_bytes - kStart - limits::kSlotTailBytes};
  }
  std::uint32_t slot_index() const { return state_->slot_index; }

  // The slot is full: frame_bytes from the start of frame_room() are final.
  SharedSlot share(std::uint32_t frame_bytes) && {
    WEFT_ASSERT(state_ != nullptr && frame_bytes <= frame_room().size());
    state_->frame_bytes = frame_bytes;
    state_->references.store(1);
    return SharedSlot(std::exchange(state_, nullptr));
  }

  void drop() {
    if (state_ != nullptr) state_->owner->give_back(*state_);
    state_ = nullptr;
  }

 private:
  SlotState* state_ = nullptr;
};

// Where leases come from. The only back-pressure between encoder and network.
// Threads: any.
class SlotSource {
 public:
  virtual ~SlotSource() = default;
  virtual std::optional<Lease> try_acquire() = 0;
  // Waits for a free slot until the timeout, then kTimeout.
  virtual Result<Lease> acquire(Duration timeout) = 0;
};

}  // namespace weft
