// SPDX-License-Identifier: Apache-2.0
#include "codec/project/gather.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <tuple>

#include "codec/project/cut_piece.hpp"
#include "weft/base/assert.hpp"

namespace weft::codec {

namespace {

// A transpose is copied in squares, so that a cache line of the source is used whole.
constexpr std::uint64_t kSquare = 16;

// Part [begin, end) of a tile, where it is written to, and what is read.
// Threads: a value; one at a time.
struct Window {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::byte* into = nullptr;          // element `begin`
  const std::byte* source = nullptr;  // element 0
};

// Steps of an axis that may have elements in the window: those of [first, last).
// Threads: a value; one at a time.
struct Steps {
  std::uint64_t first = 0;
  std::uint64_t last = 0;
};

// `span`: from the first to the last element of one step.
Steps steps_within(const BoxAxis& axis, std::uint64_t at, std::uint64_t span,
                   const Window& window) {
  Steps steps{0, axis.extent};
  const std::uint64_t stride = axis.target_stride;
  if (at + span < window.begin) steps.first = (window.begin - at - span + stride - 1) / stride;
  if (at >= window.end) return {0, 0};
  steps.last = std::min(axis.extent, (window.end - at + stride - 1) / stride);
  return steps.first < steps.last ? steps : Steps{0, 0};
}

template <std::size_t kBytes>
void copy_strided(std::byte* to, std::uint64_t to_stride, const std::byte* from,
                  std::uint64_t from_stride, std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i) {
    std::memcpy(to + i * to_stride * kBytes, from + i * from_stride * kBytes, kBytes);
  }
}

// What a transpose reads: elements of a row are `row` apart, those of a column `column`.
// Threads: a value; one at a time.
struct Grid {
  const std::byte* begin = nullptr;
  std::uint64_t row = 0;
  std::uint64_t column = 0;
};

template <std::size_t kBytes>
using Square = std::byte[kSquare][kSquare][kBytes];

// `width` columns of `height` elements, each read along memory if it lies so.
template <std::size_t kBytes>
void read_square(const Grid& from, std::uint64_t height, std::uint64_t width,
                 Square<kBytes>& square) {
  for (std::uint64_t x = 0; x < width; ++x) {
    const std::byte* const line = from.begin + x * from.column * kBytes;
    if (from.row == 1) {
      std::memcpy(square[x], line, static_cast<std::size_t>(height) * kBytes);
    } else {
      copy_strided<kBytes>(square[x][0], 1, line, from.row, height);
    }
  }
}

// Rows of the target are columns of memory: a square is read along memory into a small buffer and
// written along the target, so that no cache line is fetched twice.
template <std::size_t kBytes>
void transpose(std::byte* to, std::uint64_t to_row, const Grid& from, std::uint64_t rows,
               std::uint64_t columns) {
  Square<kBytes> square;
  for (std::uint64_t c = 0; c < columns; c += kSquare) {
    const std::uint64_t width = std::min(columns - c, kSquare);
    for (std::uint64_t r = 0; r < rows; r += kSquare) {
      const std::uint64_t height = std::min(rows - r, kSquare);
      const Grid corner{from.begin + (r * from.row + c * from.column) * kBytes, from.row,
                        from.column};
      read_square<kBytes>(corner, height, width, square);
      for (std::uint64_t y = 0; y < height; ++y) {
        copy_strided<kBytes>(to + ((r + y) * to_row + c) * kBytes, 1, square[0][y], kSquare, width);
      }
    }
  }
}

// Copies what a piece has in the window, axis by axis; with kBytes 0 it is only counted.
// Threads: one at a time.
template <std::size_t kBytes>
class PieceCopy {
 public:
  PieceCopy(const TilePiece& piece, const Window& window) : piece_(piece), window_(window) {
    std::uint64_t span = 0;
    for (std::uint32_t i = piece.rank; i-- > 0;) {
      spans_[i] = span;  // of the axes inside axis i
      span += (piece.axes[i].extent - 1) * piece.axes[i].target_stride;
    }
  }
  // Returns the number of its elements.
  std::uint64_t run() {
    axis(0, piece_.tile_offset, piece_.source_offset);
    return count_;
  }

 private:
  void axis(std::uint32_t number, std::uint64_t at, std::uint64_t from) {
    if (number == piece_.rank) {
      if (at < window_.begin || at >= window_.end) return;
      if constexpr (kBytes != 0) std::memcpy(to(at), of(from), kBytes);
      ++count_;
      return;
    }
    const BoxAxis& each = piece_.axes[number];
    Steps steps = steps_within(each, at, spans_[number], window_);
    if (steps.first == steps.last) return;
    if (number + 1 == piece_.rank) {
      row(each, at, from, steps);
      return;
    }
    if constexpr (kBytes != 0) {
      if (number + 2 == piece_.rank) squares(number, at, from, steps);
    }
    for (std::uint64_t i = steps.first; i < steps.last; ++i) {
      axis(number + 1, at + i * each.target_stride, from + i * each.source_stride);
    }
  }

  void row(const BoxAxis& each, std::uint64_t at, std::uint64_t from, const Steps& steps) {
    const std::uint64_t count = steps.last - steps.first;
    count_ += count;
    if constexpr (kBytes == 0) return;
    std::byte* const target = to(at + steps.first * each.target_stride);
    const std::byte* const source = of(from + steps.first * each.source_stride);
    if (each.target_stride == 1 && each.source_stride == 1) {
      std::memcpy(target, source, static_cast<std::size_t>(count) * kBytes);
    } else {
      copy_strided<kBytes>(target, each.target_stride, source, each.source_stride, count);
    }
  }

  // Takes the whole rows out of `steps` where the last two axes are a transpose.
  void squares(std::uint32_t number, std::uint64_t at, std::uint64_t from, Steps& steps) {
    const BoxAxis& outer = piece_.axes[number];
    const BoxAxis& inner = piece_.axes[number + 1];
    if (inner.target_stride != 1 || inner.source_stride <= outer.source_stride) return;
    Steps whole = steps;
    while (whole.first < whole.last && at + whole.first * outer.target_stride < window_.begin) {
      ++whole.first;
    }
    while (whole.first < whole.last &&
           at + (whole.last - 1) * outer.target_stride + inner.extent > window_.end) {
      --whole.last;
    }
    if (whole.first == whole.last) return;
    count_ += (whole.last - whole.first) * inner.extent;
    transpose<kBytes>(
        to(at + whole.first * outer.target_stride), outer.target_stride,
        {of(from + whole.first * outer.source_stride), outer.source_stride, inner.source_stride},
        whole.last - whole.first, inner.extent);
    for (std::uint64_t i = steps.first; i < whole.first; ++i) {
      axis(number + 1, at + i * outer.target_stride, from + i * outer.source_stride);
    }
    steps.first = whole.last;
  }

  std::byte* to(std::uint64_t at) const { return window_.into + (at - window_.begin) * kBytes; }
  const std::byte* of(std::uint64_t from) const { return window_.source + from * kBytes; }

  const TilePiece& piece_;
  const Window& window_;
  std::uint64_t count_ = 0;
  std::array<std::uint64_t, limits::kBoxRankMax> spans_{};
};

void copy_piece(const TilePiece& piece, const Window& window, std::uint32_t element_bytes) {
  switch (element_bytes) {
    case 1:
      PieceCopy<1>(piece, window).run();
      break;
    case 2:
      PieceCopy<2>(piece, window).run();
      break;
    case 4:
      PieceCopy<4>(piece, window).run();
      break;
    default:
      WEFT_ASSERT(element_bytes == 8);
      PieceCopy<8>(piece, window).run();
  }
}

std::span<const Tile> tiles_of_producer(const Lattice& lattice, ProducerIndex producer) {
  const auto& all = lattice.tiles();
  const auto begin = std::find_if(all.begin(), all.end(),
                                  [&](const Tile& tile) { return tile.producer == producer; });
  const auto end =
      std::find_if(begin, all.end(), [&](const Tile& tile) { return tile.producer != producer; });
  return {begin, end};
}

}  // namespace

Result<Gather> Gather::open(const Schema& schema, const Lattice& lattice, ProducerIndex producer,
                            const Projection& projection) {
  WEFT_TRY(auto tiles, tiles_of(schema, projection, producer));
  std::sort(tiles.begin(), tiles.end(), [](const Tile& a, const Tile& b) {
    return std::tuple(a.tensor, a.first_element) < std::tuple(b.tensor, b.first_element);
  });
  Gather gather;
  gather.lattice_ = &lattice;
  gather.producer_ = producer;
  const auto own = tiles_of_producer(lattice, producer);
  if (!std::equal(own.begin(), own.end(), tiles.begin(), tiles.end())) {
    return failure(
        ErrorCode::kConfig, Stage::kOpen,
        "projection: the lattice has other tiles for producer " + std::to_string(producer.value));
  }
  gather.first_tile_ = static_cast<std::size_t>(own.data() - lattice.tiles().data());
  WEFT_TRY(auto by_tile, cut_pieces(schema, projection, tiles));
  gather.take_pieces(std::move(by_tile), projection);
  return gather;
}

Result<Gather> Gather::open_part(const Schema& schema, const Lattice& lattice,
                                 ProducerIndex producer, const Projection& projection) {
  for (const Box& box : projection.boxes) WEFT_TRY_STATUS(check_box(schema, projection, box));
  Gather gather;
  gather.lattice_ = &lattice;
  gather.producer_ = producer;
  const auto own = tiles_of_producer(lattice, producer);
  gather.first_tile_ = static_cast<std::size_t>(own.data() - lattice.tiles().data());
  WEFT_TRY(auto by_tile, cut_pieces(schema, projection, own, Fill::kPart));
  gather.take_pieces(std::move(by_tile), projection);
  return gather;
}

void Gather::take_pieces(std::vector<std::vector<TilePiece>> by_tile,
                         const Projection& projection) {
  for (const auto& of_tile : by_tile) {
    first_pieces_.push_back(static_cast<std::uint32_t>(pieces_.size()));
    std::uint64_t highest = 0;
    for (const TilePiece& piece : of_tile) {
      highest = std::max(highest, piece.tile_end);
      highest_ends_.push_back(highest);
      pieces_.push_back(piece);
    }
  }
  first_pieces_.push_back(static_cast<std::uint32_t>(pieces_.size()));
  source_ends_.resize(projection.sources.size());
  for (const Box& box : projection.boxes) {
    std::uint64_t& needed = source_ends_[box.source];
    needed = std::max(needed, box.source_end());
  }
}

// Chunks of a producer are numbered tile by tile.
ChunkRange Gather::chunks_of_tile(std::size_t number) const {
  const std::uint32_t first_piece = first_pieces_[number];
  const std::uint32_t last_piece = first_pieces_[number + 1];
  if (first_piece == last_piece) return {};
  const ChunkRange own = lattice_->chunks_of(producer_);
  std::uint32_t first = own.first.value;
  for (std::uint32_t end = first + own.count; first < end;) {
    const std::uint32_t middle = first + (end - first) / 2;
    const bool before = lattice_->tile_of({middle}) < first_tile_ + number;
    before ? first = middle + 1 : end = middle;
  }
  const std::uint64_t per_chunk = chunk_elements_max(lattice_->place({first}).element_bytes());
  const std::uint64_t begin = pieces_[first_piece].tile_offset / per_chunk;
  const std::uint64_t end = (highest_ends_[last_piece - 1] + per_chunk - 1) / per_chunk;
  return {{first + static_cast<std::uint32_t>(begin)}, static_cast<std::uint32_t>(end - begin)};
}

std::vector<Gather::ChunkShare> Gather::shares() const {
  std::vector<ChunkShare> shares;
  for (std::size_t t = 0; t + 1 < first_pieces_.size(); ++t) {
    const ChunkRange chunks = chunks_of_tile(t);
    for (std::uint32_t i = 0; i < chunks.count; ++i) {
      const ChunkIndex chunk{chunks.first.value + i};
      const ChunkPieces found = pieces_of(chunk);
      Window window;
      window.begin = found.place.tile_offset;
      window.end = window.begin + found.place.element_count;
      std::uint64_t count = 0;
      for (const TilePiece& piece : found.pieces) {
        if (piece.tile_end > window.begin) count += PieceCopy<0>(piece, window).run();
      }
      if (count != 0) shares.push_back({chunk, static_cast<std::uint32_t>(count)});
    }
  }
  return shares;
}

Gather::ChunkPieces Gather::pieces_of(ChunkIndex chunk) const {
  ChunkPieces found;
  const std::size_t tile = lattice_->tile_of(chunk);
  WEFT_ASSERT(tile >= first_tile_ && tile - first_tile_ + 1 < first_pieces_.size());
  found.place = lattice_->place(chunk);
  const std::uint64_t begin = found.place.tile_offset;
  const std::uint64_t end = begin + found.place.element_count;
  const std::uint32_t first = first_pieces_[tile - first_tile_];
  const std::uint32_t last = first_pieces_[tile - first_tile_ + 1];
  // From the first piece at whose place anything reaches beyond `begin`, to the last that starts
  // before `end`.
  const auto ends = highest_ends_.begin();
  const auto from = std::upper_bound(ends + first, ends + last, begin) - ends;
  const auto to =
      std::partition_point(pieces_.begin() + from, pieces_.begin() + last,
                           [&](const TilePiece& piece) { return piece.tile_offset < end; }) -
      pieces_.begin();
  found.pieces = std::span(pieces_).subspan(static_cast<std::size_t>(from),
                                            static_cast<std::size_t>(to - from));
  return found;
}

std::vector<std::uint32_t> Gather::sources_of(ChunkIndex chunk) const {
  std::vector<std::uint32_t> sources;
  for (const TilePiece& piece : pieces_of(chunk).pieces) sources.push_back(piece.source);
  std::sort(sources.begin(), sources.end());
  sources.erase(std::unique(sources.begin(), sources.end()), sources.end());
  return sources;
}

std::optional<Gather::SourceRow> Gather::row_of(ChunkIndex chunk) const {
  const ChunkPieces found = pieces_of(chunk);
  if (found.pieces.size() != 1) return std::nullopt;
  const TilePiece& piece = found.pieces[0];
  const bool row = piece.rank == 0 || (piece.rank == 1 && piece.axes[0].source_stride == 1 &&
                                       piece.axes[0].target_stride == 1);
  if (!row) return std::nullopt;
  return SourceRow{piece.source,
                   piece.source_offset + (found.place.tile_offset - piece.tile_offset)};
}

std::span<const std::byte> Gather::in_place(
    ChunkIndex chunk, std::span<const std::span<const std::byte>> sources) const {
  const auto row = row_of(chunk);
  if (!row || row->source >= sources.size()) return {};
  const ChunkPlace place = lattice_->place(chunk);
  const std::uint64_t begin = row->first_element * place.element_bytes();
  const auto source = sources[row->source];
  if (source.size() < begin + place.bytes()) return {};
  return source.subspan(static_cast<std::size_t>(begin), place.bytes());
}

Status Gather::read(ChunkIndex chunk, std::span<const std::span<const std::byte>> sources,
                    std::span<std::byte> into) const {
  return read_as(lattice_->place(chunk).element_bytes(), chunk, sources, into);
}

Status Gather::read_as(std::uint32_t width, ChunkIndex chunk,
                       std::span<const std::span<const std::byte>> sources,
                       std::span<std::byte> into) const {
  const ChunkPieces found = pieces_of(chunk);
  WEFT_ASSERT(into.size() == std::size_t{found.place.element_count} * width);
  Window window;
  window.begin = found.place.tile_offset;
  window.end = window.begin + found.place.element_count;
  window.into = into.data();
  for (const TilePiece& piece : found.pieces) {
    if (piece.tile_end <= window.begin) continue;
    if (piece.source >= sources.size() ||
        sources[piece.source].size() / width < source_ends_[piece.source]) {
      return failure(ErrorCode::kConfig, Stage::kScan,
                     "source " + std::to_string(piece.source) +
                         " is shorter than its boxes need: " +
                         std::to_string(source_ends_[piece.source]) + " elements");
    }
    window.source = sources[piece.source].data();
    copy_piece(piece, window, width);
  }
  return ok();
}

}  // namespace weft::codec
