// SPDX-License-Identifier: Apache-2.0
// One journal record: new values of some elements of one tensor, absolute, so that applying it any
// number of times gives the same bytes (docs/formats/journal.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "weft/base/ids.hpp"
#include "weft/base/result.hpp"

namespace weft::apply {

// How the changed elements of a record are named. The numbers are on disk for ever.
enum class RecordCoding : std::uint8_t {
  kGaps = 1,    // distance to the element before, in bytes (255 carries on), then the values
  kBitmap = 2,  // one bit per element, then the values
  kWhole = 3,   // the values of all elements
};

// Threads: a value; one at a time.
struct RecordHeader {
  TensorIndex tensor;
  std::uint64_t first_element = 0;
  std::uint32_t element_count = 0;  // elements the record is about
  std::uint32_t changed_count = 0;  // of these, with a value
  std::uint32_t payload_bytes = 0;
  RecordCoding coding = RecordCoding::kWhole;
  std::uint8_t element_bytes = 1;
};

inline constexpr std::uint32_t kRecordHeaderBytes = 40;
// Header and payload of the largest record: a whole chunk.
inline constexpr std::uint32_t kRecordBytesMax = kRecordHeaderBytes + 512 * 1024;

// Appends the record in the smallest of the three codings. `changed` ascends and is not empty;
// `new_bytes` holds all elements from first_element on.
void encode_record(TensorIndex tensor, std::uint64_t first_element, std::uint8_t element_bytes,
                   std::span<const std::uint32_t> changed, std::span<const std::byte> new_bytes,
                   std::vector<std::byte>& out);

// The same for a record that reaches over elements whose values are not known here: from the first
// changed element (offset 0) to the last; `values` holds those of the changed ones alone.
void encode_reaching_record(TensorIndex tensor, std::uint64_t first_element,
                            std::uint8_t element_bytes, std::span<const std::uint32_t> changed,
                            std::span<const std::byte> values, std::vector<std::byte>& out);

// Checks everything, the positions too. Errors: kNeedsReseed (a record that was written whole is
// not what was written).
Result<RecordHeader> load_record_header(std::span<const std::byte> record);
Status check_record(std::span<const std::byte> record);

// Where a record and a block lie in one file.
// Threads: a value; one at a time.
struct RecordInBlock {
  std::span<const std::byte> record;  // checked
  std::uint64_t record_begin = 0;     // of the record's first element, in the file
  std::uint64_t block_begin = 0;      // of the block, in the file
};

// Writes the values of the record that lie in the block, whole or in part, into it.
void apply_record(const RecordInBlock& place, std::span<std::byte> block);

// Writes the values of the record whose elements lie in the window into `values`, each at its place
// from the window's first element on, and marks those elements.
struct ElementWindow {
  std::uint64_t first_element = 0;
  std::uint64_t element_count = 0;
  std::span<std::uint64_t> touched;  // one bit per element
  std::span<std::byte> values;
};
void scatter_record(std::span<const std::byte> record, const ElementWindow& window);

// Lists the changed elements of a checked record, ascending: their flat indices in the tensor, and
// their values as they stand in the record. `offsets` holds changed_count numbers, `values` as many
// elements.
void list_record(std::span<const std::byte> record, std::span<std::uint64_t> offsets,
                 std::span<std::byte> values);

// Marks the pages of the block that apply_record would change (or, when they are many, all that the
// record covers): one flag per `page_bytes`.
void mark_record_pages(const RecordInBlock& place, std::uint32_t page_bytes,
                       std::span<std::uint8_t> touched);

}  // namespace weft::apply
