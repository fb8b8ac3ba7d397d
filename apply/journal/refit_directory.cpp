// SPDX-License-Identifier: Apache-2.0
#include <charconv>
#include <optional>
#include <string>

#include "apply/journal/journal_reader.hpp"

namespace weft::apply {

// The inverse of to_string(RefitId); nothing else is accepted.
std::optional<RefitId> parse_refit_name(std::string_view name) {
  RefitId refit;
  const char* at = name.data();
  const char* const end = at + name.size();
  const auto take = [&](std::string_view prefix) {
    if (std::string_view(at, static_cast<std::size_t>(end - at)).substr(0, prefix.size()) != prefix)
      return false;
    at += prefix.size();
    return true;
  };
  const auto number = [&](auto& into, int base) {
    const auto parsed = std::from_chars(at, end, into, base);
    at = parsed.ptr;
    return parsed.ec == std::errc();
  };
  if (!take("e") || !number(refit.epoch.number, 10) || !take("-") ||
      !number(refit.epoch.coordinator.value, 16) || !take("-a") || !number(refit.attempt, 10) ||
      at != end || to_string(refit) != name) {
    return std::nullopt;
  }
  return refit;
}

Result<std::vector<RefitId>> list_refits(const Store& store) {
  WEFT_TRY(const auto entries, store.list());
  std::vector<RefitId> refits;
  for (const DirectoryEntry& entry : entries) {
    const auto refit = parse_refit_name(entry.name);
    if (entry.is_directory && refit) refits.push_back(*refit);
  }
  return refits;
}

Status remove_journal(Store& store, const RefitId& refit) {
  WEFT_TRY_STATUS(store.remove_tree(to_string(refit)));
  return store.sync_directory();
}

Result<std::uint64_t> refit_bytes(Store& store, const RefitId& refit) {
  auto directory = store.open_directory(to_string(refit), false);
  if (!directory && is_missing(directory.error())) return std::uint64_t{0};
  if (!directory) return directory.error();
  WEFT_TRY(const auto entries, (*directory)->list());
  std::uint64_t bytes = 0;
  for (const DirectoryEntry& entry : entries) {
    if (!entry.is_file) continue;
    WEFT_TRY(const FileIdentity identity, (*directory)->identity(entry.name));
    bytes += identity.bytes;
  }
  return bytes;
}

}  // namespace weft::apply
