// SPDX-License-Identifier: Apache-2.0
#include "codec/project/lattice.hpp"

#include <algorithm>
#include <string>
#include <tuple>

#include "weft/base/assert.hpp"
#include "weft/wire/byte_io.hpp"
#include "weft/wire/digest.hpp"

namespace weft::codec {

namespace {

constexpr std::uint32_t kLatticeMagic = 0x544C'4657;  // "WFLT"
constexpr std::size_t kTileBytes = 4 + 4 + 8 + 8;

std::string run_text(const Schema& schema, TensorIndex tensor, std::uint64_t first,
                     std::uint64_t end) {
  return "tensor " + schema.tensor(tensor).name + " elements [" + std::to_string(first) + ", " +
         std::to_string(end) + ")";
}

// Every element of every tensor in exactly one tile. `tiles` is sorted by tensor and first element.
Status check_cover(const Schema& schema, const std::vector<Tile>& tiles) {
  auto tile = tiles.begin();
  for (std::uint32_t t = 0; t < schema.tensors().size(); ++t) {
    const std::uint64_t element_count = schema.tensor(TensorIndex{t}).element_count;
    std::uint64_t next = 0;
    for (; tile != tiles.end() && tile->tensor.value == t; ++tile) {
      const auto wrong = [&](const char* what, std::uint64_t first, std::uint64_t end) {
        return failure(
            ErrorCode::kConfig, Stage::kOpen,
            std::string("lattice: ") + what + " in " + run_text(schema, tile->tensor, first, end));
      };
      if (tile->element_count == 0 || tile->first_element > element_count ||
          tile->element_count > element_count - tile->first_element) {
        return wrong("a tile out of range", tile->first_element,
                     tile->first_element + tile->element_count);
      }
      if (tile->first_element > next) return wrong("a gap", next, tile->first_element);
      if (tile->first_element < next) return wrong("an overlap", tile->first_element, next);
      next = tile->first_element + tile->element_count;
    }
    if (next != element_count) {
      return failure(ErrorCode::kConfig, Stage::kOpen,
                     "lattice: a gap in " + run_text(schema, TensorIndex{t}, next, element_count));
    }
  }
  if (tile == tiles.end()) return ok();
  return failure(ErrorCode::kConfig, Stage::kOpen, "lattice: a tile of a tensor that is not there");
}

// Not more than kTilesPerTensorMax tiles per tensor and producer. `tiles` is in lattice order.
Status check_tile_counts(const Schema& schema, const std::vector<Tile>& tiles) {
  std::uint32_t same_count = 0;
  for (std::size_t i = 0; i < tiles.size(); ++i) {
    const bool same = i > 0 && tiles[i].tensor == tiles[i - 1].tensor &&
                      tiles[i].producer == tiles[i - 1].producer;
    same_count = same ? same_count + 1 : 1;
    if (same_count > limits::kTilesPerTensorMax) {
      return failure(ErrorCode::kUnsupported, Stage::kOpen,
                     "lattice: more than " + std::to_string(limits::kTilesPerTensorMax) +
                         " tiles of tensor " + schema.tensor(tiles[i].tensor).name +
                         " for one producer: hand it over as a residual");
    }
  }
  return ok();
}

}  // namespace

Result<Lattice> Lattice::default_for(const Schema& schema) {
  std::vector<Tile> tiles;
  for (std::uint32_t t = 0; t < schema.tensors().size(); ++t) {
    const std::uint64_t element_count = schema.tensor(TensorIndex{t}).element_count;
    if (element_count != 0) tiles.push_back({TensorIndex{t}, ProducerIndex{0}, 0, element_count});
  }
  return from_tiles(schema, std::move(tiles), 1);
}

Result<Lattice> Lattice::from_tiles(const Schema& schema, std::vector<Tile> tiles,
                                    std::uint32_t producer_count) {
  if (producer_count == 0 || producer_count > limits::kProducersMax) {
    return failure(ErrorCode::kConfig, Stage::kOpen,
                   "lattice: " + std::to_string(producer_count) + " producers");
  }
  // The default lattice of a checkpoint with more tensors than kTilesMax is still in order.
  if (tiles.size() > std::max<std::size_t>(limits::kTilesMax, schema.tensors().size())) {
    return failure(ErrorCode::kUnsupported, Stage::kOpen,
                   "lattice: " + std::to_string(tiles.size()) + " tiles, at most " +
                       std::to_string(limits::kTilesMax));
  }
  std::sort(tiles.begin(), tiles.end(), [](const Tile& a, const Tile& b) {
    return std::tuple(a.tensor, a.first_element) < std::tuple(b.tensor, b.first_element);
  });
  for (const Tile& tile : tiles) {
    if (tile.producer.value >= producer_count) {
      return failure(ErrorCode::kConfig, Stage::kOpen,
                     "lattice: a tile of producer " + std::to_string(tile.producer.value) + " of " +
                         std::to_string(producer_count));
    }
  }
  WEFT_TRY_STATUS(check_cover(schema, tiles));
  std::stable_sort(tiles.begin(), tiles.end(),
                   [](const Tile& a, const Tile& b) { return a.producer < b.producer; });
  WEFT_TRY_STATUS(check_tile_counts(schema, tiles));
  Lattice lattice;
  lattice.producer_count_ = producer_count;
  lattice.tiles_ = std::move(tiles);
  WEFT_TRY_STATUS(lattice.settle(schema));
  return lattice;
}

// Numbers the chunks and computes the digest.
Status Lattice::settle(const Schema& schema) {
  schema_digest_ = schema.digest();
  ranges_.resize(producer_count_);
  std::uint64_t next = 0;
  for (const Tile& tile : tiles_) {
    const ElementFormat format = schema.tensor(tile.tensor).format();
    const std::uint64_t elements_max = chunk_elements_max(format.element_bytes);
    const std::uint64_t count = (tile.element_count + elements_max - 1) / elements_max;
    if (count > limits::kChunksMax - next) {
      return failure(ErrorCode::kResourceLimit, Stage::kOpen,
                     "lattice: more than " + std::to_string(limits::kChunksMax) + " chunks");
    }
    ChunkRange& range = ranges_[tile.producer.value];
    if (range.count == 0) range.first.value = static_cast<std::uint32_t>(next);
    range.count += static_cast<std::uint32_t>(count);
    formats_.push_back(format);
    first_chunks_.push_back(static_cast<std::uint32_t>(next));
    next += count;
  }
  chunk_count_ = static_cast<std::uint32_t>(next);
  digest_ = wire::digest128(encode());
  return ok();
}

ChunkPlace Lattice::place(ChunkIndex chunk) const {
  WEFT_ASSERT(chunk.value < chunk_count_);
  const auto after = std::upper_bound(first_chunks_.begin(), first_chunks_.end(), chunk.value);
  const auto number = static_cast<std::size_t>(after - first_chunks_.begin()) - 1;
  const Tile& tile = tiles_[number];
  const std::uint64_t elements_max = chunk_elements_max(formats_[number].element_bytes);
  const std::uint64_t start = (chunk.value - first_chunks_[number]) * elements_max;
  ChunkPlace place;
  place.tensor = tile.tensor;
  place.first_element = tile.first_element + start;
  place.element_count =
      static_cast<std::uint32_t>(std::min(elements_max, tile.element_count - start));
  place.format = formats_[number];
  place.producer = tile.producer;
  return place;
}

std::vector<std::byte> Lattice::encode() const {
  wire::ByteWriter out;
  out.write(kLatticeMagic);
  out.write(std::uint32_t{1});
  out.write_bits128(schema_digest_);
  out.write(limits::kChunkElementsMax);
  out.write(limits::kChunkBytesMax);
  out.write(producer_count_);
  out.write(static_cast<std::uint32_t>(tiles_.size()));
  for (const Tile& tile : tiles_) {
    out.write(tile.tensor.value);
    out.write(tile.producer.value);
    out.write(tile.first_element);
    out.write(tile.element_count);
  }
  return std::move(out).take();
}

Result<Lattice> Lattice::decode(const Schema& schema, std::span<const std::byte> bytes) {
  wire::ByteReader in(bytes);
  const bool known = in.read<std::uint32_t>() == kLatticeMagic && in.read<std::uint32_t>() == 1;
  const Digest schema_digest{in.read_bits128()};
  const bool same_cut = in.read<std::uint32_t>() == limits::kChunkElementsMax &&
                        in.read<std::uint32_t>() == limits::kChunkBytesMax;
  const auto producer_count = in.read<std::uint32_t>();
  const std::uint64_t tile_count = in.read<std::uint32_t>();
  if (!known || !same_cut || !in.ok() || in.remaining() != tile_count * kTileBytes) {
    return failure(ErrorCode::kProtocol, Stage::kOpen,
                   "lattice of " + std::to_string(bytes.size()) + " bytes is not one of version 1");
  }
  if (schema_digest != schema.digest()) {
    return failure(
        ErrorCode::kProtocol, Stage::kOpen,
        "lattice is of schema " + to_hex(schema_digest) + ", not of " + to_hex(schema.digest()));
  }
  std::vector<Tile> tiles(tile_count);
  for (Tile& tile : tiles) {
    tile.tensor.value = in.read<std::uint32_t>();
    tile.producer.value = in.read<std::uint32_t>();
    tile.first_element = in.read<std::uint64_t>();
    tile.element_count = in.read<std::uint64_t>();
  }
  WEFT_TRY(Lattice lattice, from_tiles(schema, std::move(tiles), producer_count));
  const auto again = lattice.encode();
  if (!std::equal(again.begin(), again.end(), bytes.begin(), bytes.end())) {
    return failure(ErrorCode::kProtocol, Stage::kOpen, "lattice: tiles are not in lattice order");
  }
  return lattice;
}

}  // namespace weft::codec
