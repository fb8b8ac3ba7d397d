// SPDX-License-Identifier: Apache-2.0
// Names and layouts that writer and reader of a journal share (docs/formats/journal.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "apply/journal/journal_writer.hpp"
#include "weft/base/ids.hpp"
#include "weft/base/result.hpp"
#include "weft/wire/manifest.hpp"

namespace weft::apply {

inline constexpr std::string_view kRecordsName = "records";
inline constexpr std::string_view kIndexName = "index";
inline constexpr std::string_view kTableName = "table";
inline constexpr std::string_view kSealName = "seal";

// What makes a journal count: written last, and checked before anything else is believed.
// Threads: a value; one at a time.
struct JournalSeal {
  Digest schema;
  std::uint64_t records_bytes = 0;
  std::uint64_t entry_count = 0;
  Digest index;  // of the index file
  Digest table;  // of the table file
  wire::Manifest manifest;

  std::vector<std::byte> encode() const;
  // Errors: kNeedsReseed.
  static Result<JournalSeal> decode(std::span<const std::byte> bytes);
};

void encode_entry(const JournalIndexEntry& entry, std::byte* to);
JournalIndexEntry decode_entry(const std::byte* from);

}  // namespace weft::apply
