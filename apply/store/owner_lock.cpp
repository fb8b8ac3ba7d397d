// SPDX-License-Identifier: Apache-2.0
#include "apply/store/owner_lock.hpp"

#include <algorithm>
#include <vector>

namespace weft::apply {

namespace {

constexpr std::size_t kTextBytesMax = 8192;
constexpr std::size_t kShownBytesMax = 700;
constexpr std::string_view kStateLine = "\nstate=";

std::string text_of(Store& weights) {
  auto file = weights.open(kOwnerLockName, Access::kRead);
  if (!file) return {};
  std::vector<std::byte> bytes(kTextBytesMax);
  const auto count = (*file)->read_up_to(0, bytes);
  return count ? std::string(reinterpret_cast<const char*>(bytes.data()), *count) : std::string();
}

// What the lock file says of its owner, made fit for a message: it is written by another process.
std::string holder_of(Store& weights) {
  std::string text = text_of(weights).substr(0, kShownBytesMax);
  std::replace(text.begin(), text.end(), '\n', ' ');
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return text.empty() ? "unknown" : text;
}

}  // namespace

std::string state_dir_of_owner(Store& weights) {
  const std::string text = text_of(weights);
  const std::size_t at = text.find(kStateLine);
  if (at == std::string::npos) return {};
  const std::size_t begin = at + kStateLine.size();
  return text.substr(begin, text.find('\n', begin) - begin);
}

Result<OwnerLock> OwnerLock::acquire(Store& weights, const FleetId& fleet, std::string_view owner,
                                     std::string_view state_dir) {
  auto lock = weights.try_lock(kOwnerLockName, LockMode::kExclusive);
  if (!lock && lock.error().code == ErrorCode::kBusy) {
    return failure(ErrorCode::kBusy, Stage::kOpen,
                   "the weights directory has another writer: " + holder_of(weights),
                   lock.error().native);
  }
  if (!lock) return std::move(lock).error();
  // The text is for people who meet kBusy; the lock alone decides.
  WEFT_TRY(auto file, weights.open(kOwnerLockName, Access::kReadWrite));
  std::string text =
      "fleet=" + to_hex(fleet) + "\nowner=" + std::string(owner.substr(0, 512)) + "\n";
  // A path with a line break is not told: readers would find another one.
  if (!state_dir.empty() && state_dir.find('\n') == std::string_view::npos) {
    text += "state=" + std::string(state_dir) + "\n";
  }
  WEFT_TRY_STATUS(file->truncate(0));
  WEFT_TRY_STATUS(file->write(0, std::as_bytes(std::span(text))));
  return OwnerLock(*std::move(lock));
}

}  // namespace weft::apply
