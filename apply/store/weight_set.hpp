// SPDX-License-Identifier: Apache-2.0
// One set of weight files of `double_buffer`, and the stamp that says what it holds
// (docs/formats/state.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "apply/store/store.hpp"
#include "weft/base/ids.hpp"
#include "weft/base/result.hpp"

namespace weft::apply {

// The numbers are on disk for ever.
enum class WeightSet : std::uint8_t {
  kNone = 0,  // in_place: the weights directory itself
  kA = 'a',
  kB = 'b',
};

inline constexpr std::string_view kStampName = "weft.stamp";

// The name of its directory; empty for kNone.
constexpr std::string_view name_of(WeightSet set) {
  return set == WeightSet::kA ? "a" : set == WeightSet::kB ? "b" : "";
}
constexpr WeightSet other(WeightSet set) {
  return set == WeightSet::kA ? WeightSet::kB : WeightSet::kA;
}

// What a set holds. Clean: exactly `content`, synced, in files of these identities. Dirty: journals
// that lead on from `content` may have been written in part; version 0: anything.
// Threads: a value; one at a time.
struct SetStamp {
  bool clean = false;
  Content content;
  Bits128 boot_id;                  // of the kernel that ran when it was written
  std::vector<FileIdentity> files;  // of a clean set; place = file index of the schema
  auto operator<=>(const SetStamp&) const = default;
};

// nullopt: no stamp, or none that can be believed.
Result<std::optional<SetStamp>> read_stamp(Store& set);
// Durable when it returns ok.
Status write_stamp(Store& set, const SetStamp& stamp);

// A small file replaced as a whole: written beside it, synced, renamed, directory synced. Readable
// by everybody.
Status replace_small_file(Store& directory, std::string_view name,
                          std::span<const std::byte> bytes);

// Makes `target` hold every file and folder of `source` (but the "weft." files of its top), byte by
// byte and mode by mode, synced; files that are there are overwritten, others left alone.
// `space_only`: nothing but room for the bytes. Errors: as File; kResourceLimit for folders too
// deep.
Status copy_set(Store& source, Store& target, bool space_only);

}  // namespace weft::apply
