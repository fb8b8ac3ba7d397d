// SPDX-License-Identifier: Apache-2.0
#include "apply/journal/change_fold.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <utility>

#include "weft/base/limits.hpp"

namespace weft::apply {

namespace {

constexpr std::uint64_t kWindowElements = limits::kChunkElementsMax;

Error unsound() {
  return failure(ErrorCode::kNeedsReseed, Stage::kPublish,
                 "journal: a record is not about the tensor that its index names");
}

}  // namespace

Status ChangeFold::check() const {
  std::vector<std::byte> record;
  for (const JournalReader* journal : journals_) {
    JournalCursor cursor = journal->cursor();
    while (true) {
      WEFT_TRY(const auto entry, cursor.next());
      if (!entry) break;
      WEFT_TRY_STATUS(journal->read_record(*entry, record));
    }
  }
  return ok();
}

Result<std::uint64_t> ChangeFold::fold(const Visit& visit) {
  const auto bases = file_bases(schema_);
  const auto address_of = [&](TensorIndex index) {
    const codec::Tensor& tensor = schema_.tensor(index);
    return bases[tensor.file_index] + tensor.file_offset;
  };
  by_address_.clear();
  for (std::uint32_t i = 0; i < schema_.tensors().size(); ++i) {
    if (schema_.tensor(TensorIndex{i}).element_count != 0) by_address_.push_back(TensorIndex{i});
  }
  std::sort(by_address_.begin(), by_address_.end(),
            [&](TensorIndex a, TensorIndex b) { return address_of(a) < address_of(b); });
  addresses_.clear();
  for (const TensorIndex index : by_address_) addresses_.push_back(address_of(index));
  streams_.clear();
  for (const JournalReader* journal : journals_) {
    streams_.push_back({journal, journal->cursor(), {}, {}});
    WEFT_TRY(streams_.back().ahead, streams_.back().cursor.next());
  }
  std::uint64_t total = 0;
  Window window;
  while (true) {
    WEFT_TRY(const bool more, next_window(window));
    if (!more) return total;
    for (Stream& stream : streams_) WEFT_TRY_STATUS(gather(stream, window));
    if (!hand_out(window, visit, total)) return total;
  }
}

// Goes on in the same tensor while records reach further, else to the first byte of the next one.
Result<bool> ChangeFold::next_window(Window& window) {
  const bool held = std::any_of(streams_.begin(), streams_.end(),
                                [](const Stream& stream) { return !stream.held.empty(); });
  if (held) {
    window.begin = window.end;
  } else {
    std::optional<std::uint64_t> first;
    for (const Stream& stream : streams_) {
      if (stream.ahead && (!first || stream.ahead->address < *first)) {
        first = stream.ahead->address;
      }
    }
    if (!first) return false;
    WEFT_TRY_STATUS(place(window, *first));
  }
  window.end = std::min(window.begin + kWindowElements, window.tensor->element_count);
  return true;
}

Status ChangeFold::place(Window& window, std::uint64_t address) const {
  const auto above = std::upper_bound(addresses_.begin(), addresses_.end(), address);
  if (above == addresses_.begin()) return unsound();
  const auto at = static_cast<std::size_t>(above - addresses_.begin()) - 1;
  window.index = by_address_[at];
  window.address = addresses_[at];
  window.tensor = &schema_.tensor(window.index);
  window.begin = (address - window.address) / window.tensor->element_bytes;
  return window.begin < window.tensor->element_count ? ok() : Status(unsound());
}

Status ChangeFold::gather(Stream& stream, const Window& window) {
  const std::uint64_t end = window.address + window.end * window.tensor->element_bytes;
  while (stream.ahead && stream.ahead->address < end) {
    Held held;
    WEFT_TRY_STATUS(stream.journal->read_record(*stream.ahead, held.bytes));
    WEFT_TRY(const RecordHeader header, load_record_header(held.bytes));
    held.begin_element = header.first_element;
    held.end_element = header.first_element + header.element_count;
    if (header.tensor != window.index || header.element_bytes != window.tensor->element_bytes ||
        held.end_element > window.tensor->element_count ||
        stream.ahead->address != window.address + held.begin_element * header.element_bytes) {
      return unsound();
    }
    stream.held.push_back(std::move(held));
    WEFT_TRY(stream.ahead, stream.cursor.next());
  }
  return ok();
}

// Offsets and values of the elements that are touched; a few in a hundred, as a rule.
template <std::size_t Width>
void ChangeFold::pick(std::uint64_t begin) {
  const std::size_t count = touched_.size();
  const std::uint8_t* const touched = touched_.data();
  std::uint64_t* offset = offsets_.data();
  std::byte* value = values_.data();
  const auto take = [&](std::size_t i) {
    if (touched[i] == 0) return;
    *offset++ = begin + i;
    std::memcpy(value, window_values_.data() + i * Width, Width);
    value += Width;
  };
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    std::uint64_t eight = 0;
    std::memcpy(&eight, touched + i, 8);
    if (eight == 0) continue;
    for (std::size_t k = i; k < i + 8; ++k) take(k);
  }
  for (; i < count; ++i) take(i);
}

bool ChangeFold::hand_out(const Window& window, const Visit& visit, std::uint64_t& total) {
  const auto count = static_cast<std::size_t>(window.end - window.begin);
  const std::size_t width = window.tensor->element_bytes;
  touched_.assign(count, 0);
  window_values_.resize(count * width);
  for (Stream& stream : streams_) {  // oldest first: later values win
    for (const Held& held : stream.held) {
      scatter_record(held.bytes, {window.begin, touched_, window_values_});
    }
    std::erase_if(stream.held, [&](const Held& held) { return held.end_element <= window.end; });
  }
  const auto hits = static_cast<std::size_t>(std::count(touched_.begin(), touched_.end(), 1));
  offsets_.resize(hits);
  values_.resize(hits * width);
  switch (width) {
    case 1:
      pick<1>(window.begin);
      break;
    case 2:
      pick<2>(window.begin);
      break;
    case 4:
      pick<4>(window.begin);
      break;
    default:
      pick<8>(window.begin);
      break;
  }
  total += offsets_.size();
  return offsets_.empty() || visit(*window.tensor, offsets_, values_);
}

}  // namespace weft::apply
