// SPDX-License-Identifier: Apache-2.0
#include "transport/buffer/slab_pool.hpp"

#include <bit>
#include <cerrno>
#include <cstring>
#include <string>

#include <hwloc.h>
#include <sys/mman.h>
#include <unistd.h>

namespace weft::transport {
namespace {

constexpr std::size_t kHugePageBytes = 2 * kMiB;

std::uint64_t bit_of(std::uint32_t index) { return std::uint64_t{1} << (index % 64); }

const char* to_string(SlabPages pages) {
  switch (pages) {
    case SlabPages::kHugeTlb:
      return "hugetlb";
    case SlabPages::kTransparentHuge:
      return "transparent_huge";
    case SlabPages::kNormal:
      return "normal";
  }
  return "unknown";
}

// Binds memory to a node and says where touched memory is.
// Threads: one at a time.
class NodeBinder {
 public:
  NodeBinder() {
    if (hwloc_topology_init(&topology_) != 0) return;
    loaded_ = hwloc_topology_load(topology_) == 0;
  }
  ~NodeBinder() {
    if (topology_ != nullptr) hwloc_topology_destroy(topology_);
  }
  NodeBinder(const NodeBinder&) = delete;
  NodeBinder& operator=(const NodeBinder&) = delete;

  bool bind(void* memory, std::size_t bytes, std::uint32_t node) const {
    if (!loaded_) return false;
    const hwloc_obj_t object = hwloc_get_obj_by_type(topology_, HWLOC_OBJ_NUMANODE, node);
    return object != nullptr &&
           hwloc_set_area_membind(topology_, memory, bytes, object->nodeset, HWLOC_MEMBIND_BIND,
                                  HWLOC_MEMBIND_BYNODESET) == 0;
  }

  bool lies_on(const void* memory, std::size_t bytes, std::uint32_t node) const {
    if (!loaded_) return false;
    const hwloc_obj_t object = hwloc_get_obj_by_type(topology_, HWLOC_OBJ_NUMANODE, node);
    const hwloc_bitmap_t found = hwloc_bitmap_alloc();
    const bool known =
        object != nullptr && found != nullptr &&
        hwloc_get_area_memlocation(topology_, memory, bytes, found, HWLOC_MEMBIND_BYNODESET) == 0;
    const bool on_node = known && hwloc_bitmap_isincluded(found, object->nodeset) != 0;
    hwloc_bitmap_free(found);
    return on_node;
  }

 private:
  hwloc_topology_t topology_ = nullptr;
  bool loaded_ = false;
};

}  // namespace

Result<std::unique_ptr<SlabPool>> SlabPool::open(const SlabOptions& options, EventSink& events) {
  if (options.slot_count == 0 || options.slot_count > kSlotsMax) {
    return failure(ErrorCode::kConfig, Stage::kOpen,
                   "slot count " + std::to_string(options.slot_count) + " is not within 1 to " +
                       std::to_string(kSlotsMax));
  }
  constexpr std::uint32_t kSlotBytesMin = 2 * limits::kHeaderPageBytes;
  constexpr std::uint32_t kSlotBytesMax = 16 * limits::kSlotBytes;
  if (options.slot_bytes < kSlotBytesMin || options.slot_bytes > kSlotBytesMax ||
      options.slot_bytes % limits::kHeaderPageBytes != 0) {
    return failure(ErrorCode::kConfig, Stage::kOpen,
                   "slot size " + std::to_string(options.slot_bytes) +
                       " is not a multiple of 4096 within 8 KiB to 16 MiB");
  }
  std::unique_ptr<SlabPool> pool(new SlabPool());
  WEFT_TRY_STATUS(pool->map_slab(options, events));
  return pool;
}

Status SlabPool::map_slab(const SlabOptions& options, EventSink& events) {
  slot_count_ = options.slot_count;
  slot_bytes_ = options.slot_bytes;
  const std::size_t bytes = std::size_t{slot_count_} * slot_bytes_;
  pages_ = SlabPages::kHugeTlb;
  if (!options.huge_pages || bytes % kHugePageBytes != 0 || !map_pages(bytes, MAP_HUGETLB)) {
    pages_ = SlabPages::kNormal;
    if (!map_pages(bytes, 0)) {
      return failure(ErrorCode::kResourceLimit, Stage::kOpen,
                     "slab of " + std::to_string(bytes) + " bytes: " + std::strerror(errno), errno);
    }
    if (options.huge_pages && madvise(base_, bytes, MADV_HUGEPAGE) == 0) {
      pages_ = SlabPages::kTransparentHuge;
    }
  }
  // A forked child must neither see nor copy registered pages.
  if (madvise(base_, bytes, MADV_DONTFORK) != 0) {
    return failure(ErrorCode::kResourceLimit, Stage::kOpen,
                   std::string("MADV_DONTFORK on the slab: ") + std::strerror(errno), errno);
  }
  place_and_touch(options, events);

  states_ = std::make_unique<SlotState[]>(slot_count_);
  free_ = std::make_unique<std::atomic<std::uint64_t>[]>(word_count());
  returned_ = std::make_unique<std::atomic<std::uint64_t>[]>(word_count());
  ranged_ = std::make_unique<std::atomic<bool>[]>(slot_count_);
  for (std::uint32_t i = 0; i < slot_count_; ++i) {
    states_[i].owner = this;
    states_[i].memory = base_ + std::size_t{i} * slot_bytes_;
    states_[i].slot_bytes = slot_bytes_;
    states_[i].slot_index = i;
    free_[i / 64] |= bit_of(i);
  }
  return ok();
}

bool SlabPool::map_pages(std::size_t bytes, int flags) {
  void* memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
  if (memory == MAP_FAILED) return false;
  base_ = static_cast<std::byte*>(memory);
  mapped_bytes_ = bytes;
  return true;
}

void SlabPool::place_and_touch(const SlabOptions& options, EventSink& events) {
  std::string node = "no preference";
  std::optional<NodeBinder> binder;
  if (options.numa_node) {
    binder.emplace();
    const bool bound = binder->bind(base_, mapped_bytes_, *options.numa_node);
    node = std::to_string(*options.numa_node) + (bound ? "" : " (could not be bound)");
  }
  const auto page_bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  for (std::size_t at = 0; at < mapped_bytes_; at += page_bytes) base_[at] = std::byte{0};
  if (binder && !binder->lies_on(base_, mapped_bytes_, *options.numa_node)) {
    node += " (not confirmed)";
  }
  const EventField fields[] = {{"bytes", std::to_string(mapped_bytes_)},
                               {"slots", std::to_string(options.slot_count)},
                               {"pages", to_string(pages_)},
                               {"numa_node", node}};
  events.report(Severity::kInfo, "slab_opened", fields);
}

SlabPool::~SlabPool() {
  if (states_ != nullptr) {
    for (std::uint32_t i = 0; i < slot_count_; ++i) {
      const bool idle = (free_[i / 64].load() & bit_of(i)) != 0 || ranged_[i].load();
      WEFT_ASSERT(idle && states_[i].references.load() == 0);
    }
  }
  if (base_ != nullptr) munmap(base_, mapped_bytes_);
}

std::optional<Lease> SlabPool::try_acquire() {
  // Highest first: ranges come from the low end, so both find room.
  for (std::uint32_t word = word_count(); word-- > 0;) {
    std::uint64_t free = free_[word].load();
    while (free != 0) {
      const auto place = static_cast<std::uint32_t>(63 - std::countl_zero(free));
      const std::uint64_t bit = std::uint64_t{1} << place;
      if ((free_[word].fetch_and(~bit) & bit) != 0) return Lease(&states_[word * 64 + place]);
      free = free_[word].load();
    }
  }
  return std::nullopt;
}

Result<Lease> SlabPool::acquire(Duration timeout) {
  if (auto lease = try_acquire()) return std::move(*lease);
  std::optional<Lease> found;
  // Counted before the look under the lock: set_free() either is seen there or sees the count.
  ++waiting_;
  wake_.wait_for(
      timeout, [&](Waiters&) { return (found = try_acquire()).has_value(); },
      [](Waiters&, bool) {});
  --waiting_;
  if (found) return std::move(*found);
  const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(timeout).count();
  return failure(ErrorCode::kTimeout, Stage::kFrame,
                 "no free slot of " + std::to_string(slot_count_) + " within " +
                     std::to_string(waited) + " ms");
}

void SlabPool::set_free(std::uint32_t index) {
  free_[index / 64].fetch_or(bit_of(index));
  if (waiting_.load() > 0) {
    wake_.update([](Waiters&) {});
  }
}

void SlabPool::give_back(SlotState& slot) {
  const std::uint32_t index = slot.slot_index;
  if (!ranged_[index].load()) return set_free(index);
  returned_[index / 64].fetch_or(bit_of(index));
  // release() may have run between the two lines above: whoever clears the bit frees the slot.
  if (!ranged_[index].load() &&
      (returned_[index / 64].fetch_and(~bit_of(index)) & bit_of(index)) != 0) {
    set_free(index);
  }
}

std::uint32_t SlabPool::free_count() const {
  std::uint32_t count = 0;
  for (std::uint32_t word = 0; word < word_count(); ++word) {
    count += static_cast<std::uint32_t>(std::popcount(free_[word].load()));
  }
  return count;
}

std::optional<std::uint32_t> SlabPool::take_range(std::uint32_t count) {
  std::uint32_t run = 0;
  for (std::uint32_t i = 0; i < slot_count_ && count > 0; ++i) {
    const bool taken = (free_[i / 64].fetch_and(~bit_of(i)) & bit_of(i)) != 0;
    run = taken ? run + 1 : 0;
    const std::uint32_t first = i + 1 - run;
    if (run == count) {
      for (std::uint32_t k = first; k <= i; ++k) ranged_[k].store(true);
      return first;
    }
    // A run that ends too short, or at the end of the pool, is not ours after all.
    const bool ends = i + 1 == slot_count_ || (free_[(i + 1) / 64].load() & bit_of(i + 1)) == 0;
    if (taken && ends) {
      for (std::uint32_t k = first; k <= i; ++k) set_free(k);
      run = 0;
    }
  }
  return std::nullopt;
}

std::uint64_t SlabPool::take_returned(std::uint32_t word) {
  if (returned_[word].load() == 0) return 0;
  return returned_[word].exchange(0);
}

void SlabPool::release(std::uint32_t index, bool in_use) {
  WEFT_ASSERT(ranged_[index].load());
  ranged_[index].store(false);
  const bool was_returned = (returned_[index / 64].fetch_and(~bit_of(index)) & bit_of(index)) != 0;
  if (!in_use || was_returned) set_free(index);
}

}  // namespace weft::transport
