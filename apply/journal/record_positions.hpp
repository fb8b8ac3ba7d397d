// SPDX-License-Identifier: Apache-2.0
// The positions of a journal record's changes, as they stand in its payload: whether they hold, and
// each of them in a range (docs/formats/journal.md).
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "apply/journal/journal_record.hpp"
#include "weft/wire/byte_io.hpp"

namespace weft::apply {

inline constexpr std::uint32_t kGapCarry = 255;
inline constexpr std::uint32_t kGapWordBytes = 8;

// Gaps in one word, and how many of them only carry on.
// Threads: a value; one at a time.
struct GapWord {
  std::uint32_t sum = 0;
  std::uint32_t carries = 0;

  // How many elements lie before the one that the next gap counts from.
  std::uint32_t elements() const { return sum + (kGapWordBytes - carries); }
};

inline GapWord load_gaps(const std::byte* at) {
  const auto word = wire::load_le<std::uint64_t>(at);
  constexpr std::uint64_t kEven = 0x00FF'00FF'00FF'00FF;
  constexpr std::uint64_t kLow = 0x7F7F'7F7F'7F7F'7F7F;
  const std::uint64_t pairs = (word & kEven) + (word >> 8 & kEven);
  // The top bit of each byte that is not 255.
  const std::uint64_t others = (((~word & kLow) + kLow) | ~word) & ~kLow;
  return {static_cast<std::uint32_t>(pairs * 0x0001'0001'0001'0001 >> 48),
          kGapWordBytes - static_cast<std::uint32_t>(std::popcount(others))};
}

// Positions and values of a payload. `values` is null when the payload is too short.
// Threads: a value; one at a time.
struct RecordParts {
  std::span<const std::byte> positions;
  const std::byte* values = nullptr;
};

inline RecordParts parts_of(const RecordHeader& header, std::span<const std::byte> payload) {
  const std::size_t value_bytes = std::size_t{header.changed_count} * header.element_bytes;
  if (payload.size() < value_bytes) return {};
  const std::size_t position_bytes = payload.size() - value_bytes;
  return {payload.first(position_bytes), payload.data() + position_bytes};
}

// Positions ascend, so all are inside when the last one is.
inline bool gaps_hold(const RecordHeader& header, std::span<const std::byte> gaps) {
  std::uint64_t sum = 0;
  std::uint64_t carries = 0;
  std::size_t at = 0;
  for (; gaps.size() - at >= kGapWordBytes; at += kGapWordBytes) {
    const GapWord word = load_gaps(gaps.data() + at);
    sum += word.sum;
    carries += word.carries;
  }
  for (; at < gaps.size(); ++at) {
    const auto gap = static_cast<std::uint32_t>(gaps[at]);
    sum += gap;
    carries += gap == kGapCarry ? 1 : 0;
  }
  return gaps.size() - carries == header.changed_count && gaps.back() != std::byte{kGapCarry} &&
         sum + header.changed_count <= header.element_count;
}

inline bool bitmap_holds(const RecordHeader& header, std::span<const std::byte> bitmap) {
  if (bitmap.size() != (std::size_t{header.element_count} + 7) / 8) return false;
  std::uint32_t seen = 0;
  for (const std::byte bits : bitmap) {
    seen += static_cast<std::uint32_t>(std::popcount(static_cast<std::uint8_t>(bits)));
  }
  const std::uint32_t used = header.element_count % 8;
  return seen == header.changed_count && (used == 0 || (bitmap.back() >> used) == std::byte{0});
}

// Whether the positions are as many as the values and inside the record.
inline bool positions_hold(const RecordHeader& header, std::span<const std::byte> payload) {
  const RecordParts parts = parts_of(header, payload);
  if (parts.values == nullptr) return false;
  switch (header.coding) {
    case RecordCoding::kGaps:
      return !parts.positions.empty() && gaps_hold(header, parts.positions);
    case RecordCoding::kBitmap:
      return bitmap_holds(header, parts.positions);
    case RecordCoding::kWhole:
      return header.changed_count == header.element_count && parts.positions.empty();
  }
  return false;
}

// A range of elements, counted from the record's first.
// Threads: a value; one at a time.
struct ElementRange {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

template <typename F>
void each_by_gaps(const RecordHeader& header, const RecordParts& parts, ElementRange range, F&& f) {
  const std::byte* at = parts.positions.data();
  const std::byte* const end = at + parts.positions.size();
  const std::byte* value = parts.values;
  std::uint64_t position = 0;
  // What lies before the range is only added up.
  while (end - at >= static_cast<std::ptrdiff_t>(kGapWordBytes)) {
    const GapWord word = load_gaps(at);
    if (position + word.elements() > range.begin) break;
    position += word.elements();
    value += std::size_t{kGapWordBytes - word.carries} * header.element_bytes;
    at += kGapWordBytes;
  }
  for (; at < end && position < range.begin; ++at) {
    const auto gap = static_cast<std::uint32_t>(*at);
    if (gap != kGapCarry && position + gap >= range.begin) break;
    position += gap;
    if (gap == kGapCarry) continue;
    value += header.element_bytes;
    ++position;
  }
  for (; at < end; ++at) {
    const auto gap = static_cast<std::uint32_t>(*at);
    position += gap;
    if (gap == kGapCarry) continue;
    if (position >= range.end) return;
    f(static_cast<std::uint32_t>(position), value);
    value += header.element_bytes;
    ++position;
  }
}

template <typename F>
void each_by_bitmap(const RecordHeader& header, const RecordParts& parts, ElementRange range,
                    F&& f) {
  const std::byte* value = parts.values;
  std::size_t at = 0;
  for (; at < std::min<std::uint64_t>(range.begin / 8, parts.positions.size()); ++at) {
    const auto bits = static_cast<std::uint8_t>(parts.positions[at]);
    value += static_cast<std::size_t>(std::popcount(bits)) * header.element_bytes;
  }
  for (; at < parts.positions.size() && at * 8 < range.end; ++at) {
    for (auto bits = static_cast<std::uint32_t>(parts.positions[at]); bits != 0; bits &= bits - 1) {
      const auto position =
          static_cast<std::uint32_t>(at * 8) + static_cast<std::uint32_t>(std::countr_zero(bits));
      if (position >= range.begin && position < range.end) f(position, value);
      value += header.element_bytes;
    }
  }
}

// Calls f(position, place of its value) for every changed element of the range, ascending. The
// record is checked.
template <typename F>
void for_each_change(const RecordHeader& header, std::span<const std::byte> payload,
                     ElementRange range, F&& f) {
  const RecordParts parts = parts_of(header, payload);
  if (header.coding == RecordCoding::kGaps) {
    each_by_gaps(header, parts, range, f);
  } else if (header.coding == RecordCoding::kBitmap) {
    each_by_bitmap(header, parts, range, f);
  } else {
    const std::uint64_t end = std::min<std::uint64_t>(range.end, header.element_count);
    for (std::uint64_t at = range.begin; at < end; ++at) {
      f(static_cast<std::uint32_t>(at), parts.values + at * header.element_bytes);
    }
  }
}

inline ElementRange all_of(const RecordHeader& header) { return {0, header.element_count}; }

}  // namespace weft::apply
