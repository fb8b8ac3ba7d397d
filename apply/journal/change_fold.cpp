// SPDX-License-Identifier: Apache-2.0
#include "apply/journal/change_fold.hpp"

#include <algorithm>
#include <bit>
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
    held.changed_count = header.changed_count;
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

// Offsets and values of the elements that are touched.
template <std::size_t kWidth>
void ChangeFold::pick(std::uint64_t begin) {
  std::uint64_t* offset = offsets_.data();
  std::byte* value = values_.data();
  for (std::size_t w = 0; w < touched_.size(); ++w) {
    for (std::uint64_t word = touched_[w]; word != 0; word &= word - 1) {
      const std::size_t place = w * 64 + static_cast<std::size_t>(std::countr_zero(word));
      *offset++ = begin + place;
      std::memcpy(value, window_values_.data() + place * kWidth, kWidth);
      value += kWidth;
    }
  }
}

// The records of one refit that stand behind one another: they are the list as they are. False: it
// takes a window to find what is named twice, or what of it lies in this one.
bool ChangeFold::list(const Window& window) {
  const std::vector<Held>* only = nullptr;
  for (const Stream& stream : streams_) {
    if (stream.held.empty()) continue;
    if (only != nullptr) return false;
    only = &stream.held;
  }
  if (only == nullptr) return false;
  std::size_t count = 0;
  std::uint64_t end = window.begin;
  for (const Held& held : *only) {
    if (held.begin_element < end || held.end_element > window.end) return false;
    end = held.end_element;
    count += held.changed_count;
  }
  const std::size_t width = window.tensor->element_bytes;
  offsets_.resize(count);
  values_.resize(count * width);
  std::size_t at = 0;
  for (const Held& held : *only) {
    list_record(held.bytes, std::span(offsets_).subspan(at, held.changed_count),
                std::span(values_).subspan(at * width, held.changed_count * width));
    at += held.changed_count;
  }
  return true;
}

// Every record of the window over the ones before it.
void ChangeFold::merge(const Window& window) {
  const auto count = static_cast<std::size_t>(window.end - window.begin);
  const std::size_t width = window.tensor->element_bytes;
  touched_.assign((count + 63) / 64, 0);
  window_values_.resize(count * width);
  for (const Stream& stream : streams_) {  // oldest first: later values win
    for (const Held& held : stream.held) {
      scatter_record(held.bytes, {window.begin, count, touched_, window_values_});
    }
  }
  std::size_t hits = 0;
  for (const std::uint64_t word : touched_) hits += static_cast<std::size_t>(std::popcount(word));
  offsets_.resize(hits);
  values_.resize(hits * width);
  switch (width) {
    case 1:
      return pick<1>(window.begin);
    case 2:
      return pick<2>(window.begin);
    case 4:
      return pick<4>(window.begin);
    default:
      return pick<8>(window.begin);
  }
}

bool ChangeFold::hand_out(const Window& window, const Visit& visit, std::uint64_t& total) {
  if (!list(window)) merge(window);
  for (Stream& stream : streams_) {
    std::erase_if(stream.held, [&](const Held& held) { return held.end_element <= window.end; });
  }
  total += offsets_.size();
  return offsets_.empty() || visit(*window.tensor, offsets_, values_);
}

}  // namespace weft::apply
