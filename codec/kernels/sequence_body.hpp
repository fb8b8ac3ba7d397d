// SPDX-License-Identifier: Apache-2.0
// Writing and reading of bit sequences, once per instruction set.
#pragma once

#include <cstdint>

#include "codec/bits/bit_reader.hpp"
#include "codec/bits/bit_writer.hpp"
#include "codec/bits/sequence.hpp"

namespace weft::codec::kernel {

// The places below `universe` that are not listed.
static inline std::uint32_t complement(const std::uint32_t* listed, std::uint32_t count,
                                       std::uint32_t universe, std::uint32_t* others) {
  std::uint32_t next = 0;
  std::uint32_t written = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    while (next < listed[i]) others[written++] = next++;
    next = listed[i] + 1;
  }
  while (next < universe) others[written++] = next++;
  return written;
}

// The low k bits of gaps, four at a time where they fit into one word; next(i) gives gap i and is
// called once for each, in order.
template <typename Next>
[[gnu::always_inline]] inline void put_remainders(BitWriter& out, std::uint32_t count,
                                                  std::uint32_t k, Next&& next) {
  const std::uint64_t mask = (std::uint64_t{1} << k) - 1;
  std::uint32_t i = 0;
  if (4 * k <= 56) {
    for (; i + 4 <= count; i += 4) {
      const std::uint64_t a = next(i) & mask;
      const std::uint64_t b = next(i + 1) & mask;
      const std::uint64_t c = next(i + 2) & mask;
      const std::uint64_t d = next(i + 3) & mask;
      out.put(a | b << k | (c | d << k) << (2 * k), 4 * k);
    }
  }
  for (; i < count; ++i) out.put(next(i) & mask, k);
}

// Gaps between ascending positions: remainders of k bits first, then the unary plane. `quotients`
// has room for count numbers; it may be the list itself.
template <typename Isa>
void write_rice(BitWriter& to, const std::uint32_t* positions, std::uint32_t count, std::uint32_t k,
                std::uint32_t* quotients) {
  // A copy without an address: what it writes are bytes, which might be its own fields otherwise.
  BitWriter out = to;
  std::uint32_t done = 0;
  std::uint32_t next = 0;  // position that a gap of zero would give
  if constexpr (Isa::kWide) {
    done = Isa::put_remainders(out, positions, count, k, quotients, next);
  }
  put_remainders(out, count - done, k, [&](std::uint32_t i) {
    const std::uint32_t gap = positions[done + i] - next;
    next = positions[done + i] + 1;
    quotients[done + i] = gap >> k;
    return gap;
  });
  out.put_unary(count, [quotients](std::uint32_t i) { return quotients[i]; });
  to = out;
}

// `scratch` has room for universe + 64 numbers.
template <typename Isa>
void write_sequence(BitWriter& out, const std::uint32_t* positions, std::uint32_t count,
                    std::uint32_t universe, std::uint32_t* scratch) {
  const SequenceChoice choice = choose_sequence(count, universe);
  out.put(choice.code, 5);
  if (choice.code == kSequenceEmpty) return;
  if (choice.code == kSequenceFull) {
    out.put_count(universe);
  } else if (choice.code == kSequenceRaw) {
    out.put_count(universe);
    out.put_ones(count, universe, [&](std::uint32_t i) { return positions[i]; });
  } else if (choice.code < kSequenceInverted) {
    out.put_count(count);
    write_rice<Isa>(out, positions, count, choice.code - kSequenceRice, scratch);
  } else {
    out.put_count(universe);
    const std::uint32_t others = complement(positions, count, universe, scratch);
    out.put_count(others);
    write_rice<Isa>(out, scratch, others, choice.code - kSequenceInverted, scratch);
  }
}

// Reads `count` gaps, at least one; positions ascend by construction. False when the bits run out
// or the last position is not below `limit`. `positions` has room for 16 more.
template <typename Isa>
bool read_rice(BitReader& in, std::uint32_t count, std::uint32_t k, std::uint32_t limit,
               std::uint32_t* positions) {
  std::uint64_t remainder_at = in.position();
  if (!in.skip(std::uint64_t{count} * k)) return false;
  const std::uint64_t unary_start = in.position();
  if constexpr (Isa::kWide) {
    const std::uint64_t unary_bits = Isa::find_stops(in, count, positions);
    return unary_bits != 0 && in.skip(unary_bits) &&
           Isa::add_remainders(in.start(), remainder_at, k, count, limit, positions);
  }
  const std::uint64_t mask = (std::uint64_t{1} << k) - 1;
  std::uint64_t word_at = unary_start;  // of the current window of 56 bits
  std::uint64_t word = in.window(word_at) & ((std::uint64_t{1} << 56) - 1);
  std::uint64_t next_bit = unary_start;  // behind the last stop bit
  std::uint64_t position = 0;
  std::uint32_t i = 0;
  for (;;) {
    std::uint32_t ones = Isa::popcount(word);
    if (ones > count - i) ones = count - i;
    for (const std::uint32_t group_end = i + ones; i < group_end; ++i) {
      const std::uint64_t stop = word_at + Isa::trailing_zeros(word);
      word &= word - 1;
      const std::uint64_t quotient = stop - next_bit;
      next_bit = stop + 1;
      position += (quotient << k) + (in.window(remainder_at) & mask);
      remainder_at += k;
      positions[i] = static_cast<std::uint32_t>(position);
      ++position;
    }
    if (i == count) break;
    word_at += 56;
    if (word_at >= in.end()) return false;
    word = in.window(word_at) & ((std::uint64_t{1} << 56) - 1);
  }
  return in.skip(next_bit - unary_start) && position <= limit;
}

template <typename Isa>
SequenceHead read_raw(BitReader& in, std::uint32_t universe, std::uint32_t count_max,
                      std::uint32_t* positions) {
  std::uint32_t count = 0;
  for (std::uint32_t done = 0; done < universe; done += 56) {
    const std::uint32_t width = universe - done < 56 ? universe - done : 56;
    std::uint64_t word = in.take(width);
    if (Isa::popcount(word) > count_max - count) return {};
    while (word != 0) {
      positions[count++] = done + Isa::trailing_zeros(word);
      word &= word - 1;
    }
  }
  return {in.ok(), count, universe};
}

template <typename Isa>
SequenceHead read_sequence(BitReader& in, std::uint32_t universe_max, std::uint32_t count_max,
                           std::uint32_t* positions, std::uint32_t* scratch) {
  const auto code = static_cast<std::uint32_t>(in.take(5));
  if (!in.ok()) return {};
  if (code == kSequenceEmpty) return {true, 0, 0};
  const std::uint32_t number = in.take_count();
  if (!in.ok() || number > universe_max) return {};
  if (code == kSequenceFull) {
    if (number > count_max) return {};
    for (std::uint32_t i = 0; i < number; ++i) positions[i] = i;
    return {true, number, number};
  }
  if (code == kSequenceRaw) return read_raw<Isa>(in, number, count_max, positions);
  if (code < kSequenceInverted) {
    if (number > count_max) return {};
    return {read_rice<Isa>(in, number, code - kSequenceRice, universe_max, positions), number, 0};
  }
  const std::uint32_t listed = in.take_count();
  if (!in.ok() || listed >= number || number - listed > count_max ||
      !read_rice<Isa>(in, listed, code - kSequenceInverted, number, scratch)) {
    return {};
  }
  complement(scratch, listed, number, positions);
  return {true, number - listed, number};
}

}  // namespace weft::codec::kernel
