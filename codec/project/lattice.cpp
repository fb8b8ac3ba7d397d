// SPDX-License-Identifier: Apache-2.0
#include "codec/project/lattice.hpp"

#include <algorithm>
#include <string>
#include <tuple>

#include "codec/project/cover.hpp"
#include "codec/project/tensor_box.hpp"
#include "weft/base/assert.hpp"
#include "weft/wire/byte_io.hpp"
#include "weft/wire/digest.hpp"

namespace weft::codec {

namespace {

constexpr std::uint32_t kLatticeMagic = 0x544C'4657;  // "WFLT"
constexpr std::size_t kRunBytes = 4 + 4 + 8 + 8;
constexpr std::size_t kBoxBytesMin = kRunBytes + 4;

// Lattices of runs alone keep the first version's bytes, and with them their digest.
constexpr std::uint32_t kRunsVersion = 1;
constexpr std::uint32_t kBoxesVersion = 2;

// Sizes that cannot be right, before anything is multiplied.
Status check_form(const std::vector<Tile>& tiles, std::uint32_t producer_count) {
  for (const Tile& tile : tiles) {
    if (tile.producer.value >= producer_count) {
      return failure(ErrorCode::kConfig, Stage::kOpen,
                     "lattice: a tile of producer " + std::to_string(tile.producer.value) + " of " +
                         std::to_string(producer_count));
    }
    // Nothing stands behind the last axis: run_count() would count it.
    bool sound = std::all_of(tile.outer.begin() + tile.axis_count(), tile.outer.end(),
                             [](const TileAxis& axis) { return axis == TileAxis{}; });
    std::uint64_t runs = 1;
    for (std::uint32_t i = 0; i < tile.axis_count() && sound; ++i) {
      sound = tile.outer[i].extent <= tile.element_count / runs;
      runs *= sound ? tile.outer[i].extent : 1;
    }
    if (!sound || tile.element_count % runs != 0 ||
        (tile.element_count == 0 && tile.axis_count() != 0)) {
      return failure(ErrorCode::kConfig, Stage::kOpen,
                     "lattice: a tile of " + std::to_string(tile.element_count) +
                         " elements with axes for others");
    }
  }
  return ok();
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
  WEFT_TRY_STATUS(check_form(tiles, producer_count));
  for (Tile& tile : tiles) {
    if (!tile.is_one_run()) tile = shortest_form(tile);
  }
  std::sort(tiles.begin(), tiles.end(), [](const Tile& a, const Tile& b) {
    return std::tuple(a.tensor, a.first_element) < std::tuple(b.tensor, b.first_element);
  });
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

std::size_t Lattice::tile_of(ChunkIndex chunk) const {
  WEFT_ASSERT(chunk.value < chunk_count_);
  const auto after = std::upper_bound(first_chunks_.begin(), first_chunks_.end(), chunk.value);
  return static_cast<std::size_t>(after - first_chunks_.begin()) - 1;
}

ChunkPlace Lattice::place(ChunkIndex chunk) const {
  const std::size_t number = tile_of(chunk);
  const Tile& tile = tiles_[number];
  const std::uint64_t elements_max = chunk_elements_max(formats_[number].element_bytes);
  const std::uint64_t start = (chunk.value - first_chunks_[number]) * elements_max;
  ChunkPlace place;
  place.tensor = tile.tensor;
  place.first_element = tile.element_at(start);
  place.tile = tile;
  place.tile_offset = start;
  place.element_count =
      static_cast<std::uint32_t>(std::min(elements_max, tile.element_count - start));
  place.format = formats_[number];
  place.producer = tile.producer;
  return place;
}

std::vector<std::byte> Lattice::encode() const {
  const bool runs =
      std::all_of(tiles_.begin(), tiles_.end(), [](const Tile& tile) { return tile.is_one_run(); });
  wire::ByteWriter out;
  out.write(kLatticeMagic);
  out.write(runs ? kRunsVersion : kBoxesVersion);
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
    if (runs) continue;
    out.write(tile.axis_count());
    for (std::uint32_t i = 0; i < tile.axis_count(); ++i) {
      out.write(tile.outer[i].extent);
      out.write(tile.outer[i].stride);
    }
  }
  return std::move(out).take();
}

namespace {

// Errors show in the reader, or in the bytes that the result encodes to.
Tile read_tile(wire::ByteReader& in, bool runs) {
  Tile tile;
  tile.tensor.value = in.read<std::uint32_t>();
  tile.producer.value = in.read<std::uint32_t>();
  tile.first_element = in.read<std::uint64_t>();
  tile.element_count = in.read<std::uint64_t>();
  if (runs) return tile;
  const auto axes = in.read<std::uint32_t>();
  for (std::uint32_t i = 0; i < axes && i < limits::kTileAxesMax; ++i) {
    tile.outer[i].extent = in.read<std::uint64_t>();
    tile.outer[i].stride = in.read<std::uint64_t>();
  }
  return tile;
}

}  // namespace

Result<Lattice> Lattice::decode(const Schema& schema, std::span<const std::byte> bytes) {
  wire::ByteReader in(bytes);
  const bool magic = in.read<std::uint32_t>() == kLatticeMagic;
  const auto version = in.read<std::uint32_t>();
  const bool runs = version == kRunsVersion;
  const Digest schema_digest{in.read_bits128()};
  const bool same_cut = in.read<std::uint32_t>() == limits::kChunkElementsMax &&
                        in.read<std::uint32_t>() == limits::kChunkBytesMax;
  const auto producer_count = in.read<std::uint32_t>();
  const std::uint64_t tile_count = in.read<std::uint32_t>();
  // Nothing is allocated for more tiles than the bytes can hold.
  const bool sized =
      runs ? in.remaining() == tile_count * kRunBytes : in.remaining() >= tile_count * kBoxBytesMin;
  if (!magic || (!runs && version != kBoxesVersion) || !same_cut || !in.ok() || !sized) {
    return failure(ErrorCode::kProtocol, Stage::kOpen,
                   "lattice of " + std::to_string(bytes.size()) + " bytes is not one of version " +
                       std::to_string(kRunsVersion) + " or " + std::to_string(kBoxesVersion));
  }
  if (schema_digest != schema.digest()) {
    return failure(
        ErrorCode::kProtocol, Stage::kOpen,
        "lattice is of schema " + to_hex(schema_digest) + ", not of " + to_hex(schema.digest()));
  }
  std::vector<Tile> tiles(tile_count);
  for (Tile& tile : tiles) tile = read_tile(in, runs);
  if (!in.ok() || in.remaining() != 0) {
    return failure(ErrorCode::kProtocol, Stage::kOpen, "lattice: its tiles do not fill it");
  }
  WEFT_TRY(Lattice lattice, from_tiles(schema, std::move(tiles), producer_count));
  const auto again = lattice.encode();
  if (!std::equal(again.begin(), again.end(), bytes.begin(), bytes.end())) {
    return failure(ErrorCode::kProtocol, Stage::kOpen, "lattice: tiles are not in lattice order");
  }
  return lattice;
}

}  // namespace weft::codec
