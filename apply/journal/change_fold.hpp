// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "apply/journal/journal_reader.hpp"
#include "apply/journal/journal_record.hpp"
#include "codec/safetensors/schema.hpp"

namespace weft::apply {

// ChangeFold walks several journals of consecutive refits at once and hands out every element that
// any of them names, once, with the value of the last one that does.
// Owns:    a window of elements and the records that touch it; nothing grows with the model.
// Threads: one at a time; the journals must outlive it.
class ChangeFold {
 public:
  // May take the two arrays away. False: no more.
  using Visit = std::function<bool(const codec::Tensor& tensor, std::vector<std::uint64_t>& offsets,
                                   std::vector<std::byte>& values)>;

  ChangeFold(const codec::Schema& schema, std::vector<const JournalReader*> oldest_first)
      : schema_(schema), journals_(std::move(oldest_first)) {}

  // Reads and checks every record. Errors: kNeedsReseed (damaged), I/O.
  Status check() const;
  // The number of elements handed out. Errors: as check(); what was handed out before is void then.
  Result<std::uint64_t> fold(const Visit& visit);

 private:
  struct Held {
    std::uint64_t begin_element = 0;
    std::uint64_t end_element = 0;
    std::uint32_t changed_count = 0;
    std::vector<std::byte> bytes;
  };
  struct Stream {
    const JournalReader* journal;
    JournalCursor cursor;
    std::optional<JournalIndexEntry> ahead;
    std::vector<Held> held;  // records that reach into the next window
  };
  struct Window {
    const codec::Tensor* tensor = nullptr;
    TensorIndex index;
    std::uint64_t address = 0;  // of the tensor
    std::uint64_t begin = 0;    // elements
    std::uint64_t end = 0;
  };

  Result<bool> next_window(Window& window);
  Status place(Window& window, std::uint64_t address) const;
  Status gather(Stream& stream, const Window& window);
  bool list(const Window& window);
  void merge(const Window& window);
  template <std::size_t kWidth>
  void pick(std::uint64_t begin);
  bool hand_out(const Window& window, const Visit& visit, std::uint64_t& total);

  const codec::Schema& schema_;
  std::vector<const JournalReader*> journals_;
  std::vector<Stream> streams_;
  std::vector<TensorIndex> by_address_;
  std::vector<std::uint64_t> addresses_;  // of by_address_
  std::vector<std::uint64_t> touched_;    // a bit per element of the window
  std::vector<std::byte> window_values_;
  std::vector<std::uint64_t> offsets_;
  std::vector<std::byte> values_;
};

}  // namespace weft::apply
