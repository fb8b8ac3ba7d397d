// SPDX-License-Identifier: Apache-2.0
// The slab: one NUMA-local mapping cut into slots, some leased to local writers, some set aside as
// the receive ranges of upstream links.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "weft/base/event_sink.hpp"
#include "weft/base/guarded.hpp"
#include "weft/base/lease.hpp"

namespace weft::transport {

// A doorbell names a slot with 12 bits (docs/formats/fabric-wire.md).
inline constexpr std::uint32_t kSlotsMax = 4096;

struct SlabOptions {
  std::uint32_t slot_count = 64;
  std::uint32_t slot_bytes = limits::kSlotBytes;
  std::optional<std::uint32_t> numa_node =
      std::nullopt;        // hwloc's logical index; none: no preference
  bool huge_pages = true;  // try MAP_HUGETLB, then MADV_HUGEPAGE
};

enum class SlabPages : std::uint8_t { kHugeTlb = 1, kTransparentHuge = 2, kNormal = 3 };

// SlabPool owns the slots and takes each one back at its last drop.
// A slot's life here:
//   1. free;
//   2. leased to a local writer (acquire), shared when full, free again at the last drop; or
//   3. ranged: set aside for an upstream link. The relay grants it, shares it when full, and finds
//      it in take_returned() after the last drop; release() ends the range's claim.
// Invariant: a slot is in exactly one of these; at destruction every slot is free or ranged.
// Owns:      the mapping (never inherited by a forked child).
// Threads:   any; take_range, take_returned and release are for one thread at a time.
class SlabPool final : public SlotSource, public SlotOwner {
 public:
  // Errors: kConfig (counts), kResourceLimit (no memory).
  static Result<std::unique_ptr<SlabPool>> open(const SlabOptions& options, EventSink& events);
  ~SlabPool() override;
  SlabPool(const SlabPool&) = delete;
  SlabPool& operator=(const SlabPool&) = delete;

  std::optional<Lease> try_acquire() override;
  Result<Lease> acquire(Duration timeout) override;
  void give_back(SlotState& slot) override;

  std::span<std::byte> memory() const { return {base_, mapped_bytes_}; }
  std::uint32_t slot_count() const { return slot_count_; }
  std::uint32_t slot_bytes() const { return slot_bytes_; }
  std::uint32_t free_count() const;
  SlabPages pages() const { return pages_; }
  SlotState& slot(std::uint32_t index) { return states_[index]; }

  // `count` neighbouring slots for an upstream link, lowest first; none if there is no such run.
  std::optional<std::uint32_t> take_range(std::uint32_t count);
  // Slots 64*word .. 64*word+63 whose last drop has come since the last call, as a bit mask.
  std::uint64_t take_returned(std::uint32_t word);
  std::uint32_t word_count() const { return (slot_count_ + 63) / 64; }
  // Ends a range's claim on one slot. In use: it becomes free at its last drop, else at once.
  void release(std::uint32_t index, bool in_use);

 private:
  struct Waiters {};
  SlabPool() = default;
  Status map_slab(const SlabOptions& options, EventSink& events);
  bool map_pages(std::size_t bytes, int flags);
  void place_and_touch(const SlabOptions& options, EventSink& events);
  void set_free(std::uint32_t index);

  std::byte* base_ = nullptr;
  std::size_t mapped_bytes_ = 0;
  std::uint32_t slot_count_ = 0;
  std::uint32_t slot_bytes_ = 0;
  SlabPages pages_ = SlabPages::kNormal;
  std::unique_ptr<SlotState[]> states_;
  std::unique_ptr<std::atomic<std::uint64_t>[]> free_;      // bit set: free
  std::unique_ptr<std::atomic<std::uint64_t>[]> returned_;  // bit set: ranged, last drop has come
  std::unique_ptr<std::atomic<bool>[]> ranged_;
  std::atomic<std::uint32_t> waiting_{0};
  Guarded<Waiters> wake_;
};

}  // namespace weft::transport
