// SPDX-License-Identifier: Apache-2.0
#include "apply/store/owner_lock.hpp"

#include <algorithm>
#include <vector>

namespace weft::apply {

namespace {

constexpr std::size_t kTextBytesMax = 1024;

// What the lock file says of its owner, made fit for a message: it is written by another process.
std::string holder_of(Store& weights) {
  auto file = weights.open(kOwnerLockName, Access::kRead);
  if (!file) return "unknown";
  std::vector<std::byte> bytes(kTextBytesMax);
  const auto count = (*file)->read_up_to(0, bytes);
  if (!count) return "unknown";
  std::string text(reinterpret_cast<const char*>(bytes.data()), *count);
  std::replace(text.begin(), text.end(), '\n', ' ');
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return text.empty() ? "unknown" : text;
}

}  // namespace

Result<OwnerLock> OwnerLock::acquire(Store& weights, const FleetId& fleet, std::string_view owner) {
  auto lock = weights.try_lock(kOwnerLockName, LockMode::kExclusive);
  if (!lock && lock.error().code == ErrorCode::kBusy) {
    return failure(ErrorCode::kBusy, Stage::kOpen,
                   "the weights directory has another writer: " + holder_of(weights),
                   lock.error().native);
  }
  if (!lock) return std::move(lock).error();
  // The text is for people who meet kBusy; the lock alone decides.
  WEFT_TRY(auto file, weights.open(kOwnerLockName, Access::kReadWrite));
  const std::string text =
      "fleet=" + to_hex(fleet) + "\nowner=" + std::string(owner.substr(0, 512)) + "\n";
  WEFT_TRY_STATUS(file->truncate(0));
  WEFT_TRY_STATUS(file->write(0, std::as_bytes(std::span(text))));
  return OwnerLock(*std::move(lock));
}

}  // namespace weft::apply
