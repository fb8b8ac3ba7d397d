// SPDX-License-Identifier: Apache-2.0
#include "apply/journal/refit_shelf.hpp"

#include <algorithm>
#include <set>

#include "apply/journal/journal_reader.hpp"
#include "apply/spool/spool.hpp"

namespace weft::apply {

Result<std::unique_ptr<RefitShelf>> RefitShelf::open(Store& state, DiskBudget& budget,
                                                     std::uint32_t retain_count) {
  std::unique_ptr<RefitShelf> shelf(new RefitShelf(budget, retain_count));
  WEFT_TRY(shelf->spools_, state.open_directory("spool", true));
  WEFT_TRY(shelf->journals_, state.open_directory("journal", true));
  WEFT_TRY_STATUS(state.sync_directory());
  budget.set_reclaim([raw = shelf.get()] { return raw->drop_oldest(); });
  return shelf;
}

RefitShelf::~RefitShelf() {
  budget_.set_reclaim({});
  for (const Item& item : items_) budget_.give_back(item.bytes);
}

Result<std::vector<RefitId>> RefitShelf::list() const {
  WEFT_TRY(const auto spooled, list_refits(*spools_));
  WEFT_TRY(const auto journalled, list_refits(*journals_));
  std::set<RefitId> all(spooled.begin(), spooled.end());
  all.insert(journalled.begin(), journalled.end());
  return std::vector<RefitId>(all.begin(), all.end());
}

Status RefitShelf::retain(const RefitId& refit) {
  WEFT_TRY(std::uint64_t bytes, refit_bytes(*spools_, refit));
  WEFT_TRY(const std::uint64_t journal_bytes, refit_bytes(*journals_, refit));
  bytes += journal_bytes;
  // Older ones go to make room for it; if it alone is too much it goes as well.
  if (retain_count_ == 0 || !budget_.charge(bytes)) return remove(refit);
  {
    const std::lock_guard lock(mutex_);
    items_.push_back({refit, bytes});
  }
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      if (items_.size() <= retain_count_) return ok();
    }
    if (!drop_oldest()) return ok();
  }
}

bool RefitShelf::drop_oldest() {
  Item oldest;
  {
    const std::lock_guard lock(mutex_);
    if (items_.empty()) return false;
    oldest = items_.front();
    items_.erase(items_.begin());
  }
  // What could not be removed keeps its bytes charged: they are still on the disk.
  if (!remove(oldest.refit)) return false;
  budget_.give_back(oldest.bytes);
  return true;
}

Status RefitShelf::remove(const RefitId& refit) {
  WEFT_TRY_STATUS(Spool::remove(*spools_, refit));
  return remove_journal(*journals_, refit);
}

Status RefitShelf::drop(const RefitId& refit) {
  std::uint64_t bytes = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto place = std::find_if(items_.begin(), items_.end(),
                                    [&](const Item& item) { return item.refit == refit; });
    if (place != items_.end()) {
      bytes = place->bytes;
      items_.erase(place);
    }
  }
  WEFT_TRY_STATUS(remove(refit));
  budget_.give_back(bytes);
  return ok();
}

std::vector<RefitId> RefitShelf::retained() const {
  const std::lock_guard lock(mutex_);
  std::vector<RefitId> refits;
  for (const Item& item : items_) refits.push_back(item.refit);
  return refits;
}

}  // namespace weft::apply
