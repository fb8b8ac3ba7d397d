// SPDX-License-Identifier: Apache-2.0
#include "apply/journal/journal_record.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

#include "apply/journal/record_positions.hpp"
#include "weft/base/assert.hpp"
#include "weft/base/limits.hpp"
#include "weft/wire/byte_io.hpp"
#include "weft/wire/digest.hpp"

namespace weft::apply {

namespace {

constexpr std::uint32_t kRecordMagic = 0x4352'4A57;  // "WJRC"
constexpr std::size_t kCheckOffset = 32;
// From so many changes per page on every page is taken as touched without looking.
constexpr std::uint32_t kDenseChangesPerPage = 8;

static_assert(kRecordHeaderBytes == kCheckOffset + 8);
static_assert(kRecordBytesMax == kRecordHeaderBytes + limits::kChunkBytesMax);

Error damaged(const std::string& why) {
  return failure(ErrorCode::kNeedsReseed, Stage::kApply, "journal record: " + why);
}

std::uint64_t record_check(std::span<const std::byte> record) {
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  XXH3_64bits_update(&state, record.data(), kCheckOffset);
  XXH3_64bits_update(&state, record.data() + kRecordHeaderBytes,
                     record.size() - kRecordHeaderBytes);
  return XXH3_64bits_digest(&state);
}

std::uint64_t gap_bytes(std::span<const std::uint32_t> changed) {
  std::uint64_t bytes = changed.size();
  std::uint32_t expected = 0;
  for (const std::uint32_t offset : changed) {
    bytes += (offset - expected) / kGapCarry;
    expected = offset + 1;
  }
  return bytes;
}

std::byte* put_gaps(std::span<const std::uint32_t> changed, std::byte* out) {
  std::uint32_t expected = 0;
  for (const std::uint32_t offset : changed) {
    std::uint32_t gap = offset - expected;
    for (; gap >= kGapCarry; gap -= kGapCarry) *out++ = std::byte{kGapCarry};
    *out++ = static_cast<std::byte>(gap);
    expected = offset + 1;
  }
  return out;
}

std::byte* put_bitmap(std::span<const std::uint32_t> changed, std::uint32_t element_count,
                      std::byte* out) {
  const std::size_t bytes = (std::size_t{element_count} + 7) / 8;
  std::memset(out, 0, bytes);
  for (const std::uint32_t offset : changed) {
    out[offset / 8] |= static_cast<std::byte>(1U << (offset % 8));
  }
  return out + bytes;
}

template <std::size_t kBytes>
void put_values(std::span<const std::uint32_t> changed, const std::byte* from, std::byte* out) {
  for (const std::uint32_t offset : changed) {
    std::memcpy(out, from + std::size_t{offset} * kBytes, kBytes);
    out += kBytes;
  }
}

// Gaps or bitmap, whichever is shorter.
RecordHeader sparse_header(std::uint32_t element_count, std::uint8_t element_bytes,
                           std::span<const std::uint32_t> changed) {
  const std::uint64_t values = changed.size() * std::uint64_t{element_bytes};
  const std::uint64_t by_gaps = gap_bytes(changed) + values;
  const std::uint64_t by_bitmap = (std::uint64_t{element_count} + 7) / 8 + values;
  RecordHeader header;
  header.element_count = element_count;
  header.element_bytes = element_bytes;
  header.changed_count = static_cast<std::uint32_t>(changed.size());
  header.payload_bytes = static_cast<std::uint32_t>(std::min(by_gaps, by_bitmap));
  header.coding = by_gaps <= by_bitmap ? RecordCoding::kGaps : RecordCoding::kBitmap;
  return header;
}

// Appends the header, without its check, and room for the payload; gives the room.
std::byte* put_header(const RecordHeader& header, std::vector<std::byte>& out) {
  const std::size_t start = out.size();
  out.resize(start + kRecordHeaderBytes + header.payload_bytes);
  std::byte* const at = out.data() + start;
  wire::store_le(at, kRecordMagic);
  wire::store_le(at + 4, header.tensor.value);
  wire::store_le(at + 8, header.first_element);
  wire::store_le(at + 16, header.element_count);
  wire::store_le(at + 20, header.changed_count);
  wire::store_le(at + 24, header.payload_bytes);
  at[28] = static_cast<std::byte>(header.coding);
  at[29] = static_cast<std::byte>(header.element_bytes);
  wire::store_le(at + 30, std::uint16_t{0});
  return at + kRecordHeaderBytes;
}

void put_check(std::vector<std::byte>& out, std::size_t start) {
  wire::store_le(out.data() + start + kCheckOffset, record_check(std::span(out).subspan(start)));
}

// Where the values go.
std::byte* put_positions(const RecordHeader& header, std::span<const std::uint32_t> changed,
                         std::byte* out) {
  return header.coding == RecordCoding::kGaps ? put_gaps(changed, out)
                                              : put_bitmap(changed, header.element_count, out);
}

// The header of a record that check_record has accepted.
RecordHeader parse_header(std::span<const std::byte> record) {
  RecordHeader header;
  const std::byte* at = record.data();
  header.tensor.value = wire::load_le<std::uint32_t>(at + 4);
  header.first_element = wire::load_le<std::uint64_t>(at + 8);
  header.element_count = wire::load_le<std::uint32_t>(at + 16);
  header.changed_count = wire::load_le<std::uint32_t>(at + 20);
  header.payload_bytes = wire::load_le<std::uint32_t>(at + 24);
  header.coding = static_cast<RecordCoding>(at[28]);
  header.element_bytes = static_cast<std::uint8_t>(at[29]);
  return header;
}

// Those of the bytes at `at` that lie in a window.
void write_inside(std::uint64_t at, std::span<const std::byte> bytes, std::uint64_t window_begin,
                  std::span<std::byte> window) {
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const std::uint64_t place = at + i;
    if (place < window_begin || place - window_begin >= window.size()) continue;
    window[static_cast<std::size_t>(place - window_begin)] = bytes[i];
  }
}

// Writes what lies in a window of bytes, counted from the record's first byte.
template <std::size_t kBytes>
void scatter(const RecordHeader& header, std::span<const std::byte> payload,
             std::uint64_t window_begin, std::span<std::byte> window) {
  const std::uint64_t window_end = window_begin + window.size();
  // The elements that lie in it whole; those across its edges are taken byte by byte.
  const std::uint64_t first = (window_begin + kBytes - 1) / kBytes;
  const std::uint64_t last = std::max(window_end / kBytes, first);
  for_each_change(header, payload, {first, last},
                  [=](std::uint32_t position, const std::byte* value) {
                    const std::uint64_t at = std::uint64_t{position} * kBytes - window_begin;
                    std::memcpy(window.data() + at, value, kBytes);
                  });
  if constexpr (kBytes > 1) {
    const auto write_bytes = [=](std::uint32_t position, const std::byte* value) {
      write_inside(std::uint64_t{position} * kBytes, {value, kBytes}, window_begin, window);
    };
    if (first * kBytes > window_begin) {
      for_each_change(header, payload, {first - 1, first}, write_bytes);
    }
    if (last * kBytes < window_end) {
      for_each_change(header, payload, {last, last + 1}, write_bytes);
    }
  }
}

template <std::size_t kBytes>
void scatter_elements(const RecordHeader& header, std::span<const std::byte> payload,
                      const ElementWindow& window) {
  const std::uint64_t from = header.first_element;
  const std::uint64_t window_end = window.first_element + window.element_count;
  if (window_end <= from) return;
  const ElementRange range = {window.first_element - std::min(window.first_element, from),
                              window_end - from};
  for_each_change(header, payload, range, [&](std::uint32_t position, const std::byte* value) {
    const std::uint64_t place = from + position - window.first_element;
    window.touched[static_cast<std::size_t>(place / 64)] |= std::uint64_t{1} << (place % 64);
    std::memcpy(window.values.data() + static_cast<std::size_t>(place) * kBytes, value, kBytes);
  });
}

}  // namespace

void encode_record(TensorIndex tensor, std::uint64_t first_element, std::uint8_t element_bytes,
                   std::span<const std::uint32_t> changed, std::span<const std::byte> new_bytes,
                   std::vector<std::byte>& out) {
  const auto element_count = static_cast<std::uint32_t>(new_bytes.size() / element_bytes);
  WEFT_ASSERT(!changed.empty() && new_bytes.size() <= limits::kChunkBytesMax &&
              changed.back() < element_count);
  RecordHeader header = sparse_header(element_count, element_bytes, changed);
  header.tensor = tensor;
  header.first_element = first_element;
  if (new_bytes.size() <= header.payload_bytes) {
    header.coding = RecordCoding::kWhole;
    header.changed_count = element_count;
    header.payload_bytes = static_cast<std::uint32_t>(new_bytes.size());
  }
  const std::size_t start = out.size();
  std::byte* const payload = put_header(header, out);
  if (header.coding == RecordCoding::kWhole) {
    std::memcpy(payload, new_bytes.data(), new_bytes.size());
  } else {
    std::byte* const values = put_positions(header, changed, payload);
    switch (element_bytes) {
      case 1:
        put_values<1>(changed, new_bytes.data(), values);
        break;
      case 2:
        put_values<2>(changed, new_bytes.data(), values);
        break;
      case 4:
        put_values<4>(changed, new_bytes.data(), values);
        break;
      default:
        WEFT_ASSERT(element_bytes == 8);
        put_values<8>(changed, new_bytes.data(), values);
    }
  }
  put_check(out, start);
}

void encode_reaching_record(TensorIndex tensor, std::uint64_t first_element,
                            std::uint8_t element_bytes, std::span<const std::uint32_t> changed,
                            std::span<const std::byte> values, std::vector<std::byte>& out) {
  WEFT_ASSERT(!changed.empty() && changed.front() == 0 &&
              values.size() == changed.size() * element_bytes &&
              (changed.back() + std::uint64_t{1}) * element_bytes <= limits::kChunkBytesMax);
  RecordHeader header = sparse_header(changed.back() + 1, element_bytes, changed);
  header.tensor = tensor;
  header.first_element = first_element;
  WEFT_ASSERT(header.payload_bytes <= limits::kChunkBytesMax);
  const std::size_t start = out.size();
  std::byte* const payload = put_header(header, out);
  std::memcpy(put_positions(header, changed, payload), values.data(), values.size());
  put_check(out, start);
}

Result<RecordHeader> load_record_header(std::span<const std::byte> record) {
  if (record.size() < kRecordHeaderBytes) return damaged("shorter than its header");
  if (wire::load_le<std::uint32_t>(record.data()) != kRecordMagic) return damaged("wrong magic");
  const RecordHeader header = parse_header(record);
  const std::uint32_t bytes = header.element_bytes;
  if ((bytes != 1 && bytes != 2 && bytes != 4 && bytes != 8) ||
      wire::load_le<std::uint16_t>(record.data() + 30) != 0) {
    return damaged("element size");
  }
  if (header.element_count == 0 || header.element_count > limits::kChunkBytesMax / bytes ||
      header.changed_count == 0 || header.changed_count > header.element_count) {
    return damaged("element count");
  }
  if (header.coding != RecordCoding::kGaps && header.coding != RecordCoding::kBitmap &&
      header.coding != RecordCoding::kWhole) {
    return damaged("unknown coding");
  }
  if (header.first_element > ~std::uint64_t{0} / 8 - header.element_count) {
    return damaged("first element");
  }
  if (header.payload_bytes > kRecordBytesMax - kRecordHeaderBytes) return damaged("payload length");
  return header;
}

Status check_record(std::span<const std::byte> record) {
  WEFT_TRY(const RecordHeader header, load_record_header(record));
  if (record.size() != kRecordHeaderBytes + std::size_t{header.payload_bytes}) {
    return damaged("another length than its header says");
  }
  if (wire::load_le<std::uint64_t>(record.data() + kCheckOffset) != record_check(record)) {
    return damaged("its check does not hold");
  }
  return positions_hold(header, record.subspan(kRecordHeaderBytes))
             ? ok()
             : damaged("positions do not add up");
}

void apply_record(const RecordInBlock& place, std::span<std::byte> block) {
  const RecordHeader header = parse_header(place.record);
  const auto payload = place.record.subspan(kRecordHeaderBytes);
  // The window is the block from the record's begin on; counted from the record's first element.
  const std::uint64_t begin = std::max(place.block_begin, place.record_begin);
  if (begin - place.block_begin >= block.size()) return;
  const std::uint64_t window_begin = begin - place.record_begin;
  const auto window = block.subspan(static_cast<std::size_t>(begin - place.block_begin));
  if (header.coding == RecordCoding::kWhole) {
    if (window_begin >= payload.size()) return;
    const auto part = payload.subspan(static_cast<std::size_t>(window_begin));
    std::memcpy(window.data(), part.data(), std::min(part.size(), window.size()));
    return;
  }
  switch (header.element_bytes) {
    case 1:
      return scatter<1>(header, payload, window_begin, window);
    case 2:
      return scatter<2>(header, payload, window_begin, window);
    case 4:
      return scatter<4>(header, payload, window_begin, window);
    default:
      return scatter<8>(header, payload, window_begin, window);
  }
}

void scatter_record(std::span<const std::byte> record, const ElementWindow& window) {
  const RecordHeader header = parse_header(record);
  const auto payload = record.subspan(kRecordHeaderBytes);
  switch (header.element_bytes) {
    case 1:
      return scatter_elements<1>(header, payload, window);
    case 2:
      return scatter_elements<2>(header, payload, window);
    case 4:
      return scatter_elements<4>(header, payload, window);
    default:
      return scatter_elements<8>(header, payload, window);
  }
}

void list_record(std::span<const std::byte> record, std::span<std::uint64_t> offsets,
                 std::span<std::byte> values) {
  const RecordHeader header = parse_header(record);
  WEFT_ASSERT(offsets.size() == header.changed_count &&
              values.size() == offsets.size() * header.element_bytes);
  const auto payload = record.subspan(kRecordHeaderBytes);
  std::memcpy(values.data(), payload.data() + (payload.size() - values.size()), values.size());
  std::uint64_t* next = offsets.data();
  for_each_change(header, payload, all_of(header),
                  [&next, &header](std::uint32_t position, const std::byte*) {
                    *next++ = header.first_element + position;
                  });
}

void mark_record_pages(const RecordInBlock& place, std::uint32_t page_bytes,
                       std::span<std::uint8_t> touched) {
  const RecordHeader header = parse_header(place.record);
  const std::uint64_t bytes = std::uint64_t{header.element_count} * header.element_bytes;
  const std::uint64_t block_end = place.block_begin + touched.size() * std::uint64_t{page_bytes};
  const auto mark = [&](std::uint64_t begin, std::uint64_t end) {
    begin = std::max(begin + place.record_begin, place.block_begin);
    end = std::min(end + place.record_begin, block_end);
    if (begin >= end) return;
    const std::uint64_t last = (end - 1 - place.block_begin) / page_bytes;
    for (std::uint64_t page = (begin - place.block_begin) / page_bytes; page <= last; ++page) {
      touched[static_cast<std::size_t>(page)] = 1;
    }
  };
  const std::uint64_t pages = (bytes + page_bytes - 1) / page_bytes;
  if (header.coding == RecordCoding::kWhole ||
      header.changed_count >= pages * kDenseChangesPerPage) {
    mark(0, bytes);
    return;
  }
  for_each_change(header, place.record.subspan(kRecordHeaderBytes), all_of(header),
                  [&](std::uint32_t position, const std::byte*) {
                    const std::uint64_t begin = std::uint64_t{position} * header.element_bytes;
                    mark(begin, begin + header.element_bytes);
                  });
}

}  // namespace weft::apply
