// SPDX-License-Identifier: Apache-2.0
// Checkpoints and projections of tests: every element knows its place, so that a wrong one shows.
#pragma once

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "codec/project/box.hpp"
#include "codec/project/gather.hpp"
#include "codec/project/lattice.hpp"
#include "codec/safetensors/schema.hpp"

namespace weft::codec::test {

// Threads: a value; one at a time.
struct NamedShape {
  std::string name;
  DType dtype = DType::kBF16;
  std::vector<std::uint64_t> shape;
};

inline std::uint64_t product(const std::vector<std::uint64_t>& shape) {
  std::uint64_t count = 1;
  for (const std::uint64_t size : shape) count *= size;
  return count;
}

inline Schema schema_of(const std::vector<NamedShape>& tensors) {
  std::vector<FileInput> files(1);
  files[0].name = "f";
  std::uint64_t offset = 0;
  std::vector<HeaderTensor> rows;
  for (const NamedShape& tensor : tensors) {
    const std::uint64_t bytes = product(tensor.shape) * element_bytes(tensor.dtype);
    rows.push_back({tensor.name, tensor.dtype, tensor.shape, offset, offset + bytes});
    offset += bytes;
  }
  files[0].bytes = 8 + offset;
  files[0].header = {8, std::move(rows)};
  return *build_schema(std::move(files), std::nullopt);
}

// A value for an element of a tensor that no neighbour has.
inline std::uint64_t value_of(std::uint32_t tensor, std::uint64_t element) {
  return (element + 1) * 0x9E37'79B9'7F4A'7C15ULL + tensor * 0xD1B5'4A32'D192'ED03ULL;
}

inline void put_value(std::vector<std::byte>& bytes, std::uint64_t element, std::uint32_t width,
                      std::uint64_t value) {
  std::memcpy(&bytes[static_cast<std::size_t>(element) * width], &value, width);
}

// Every element of a tensor, in order.
inline std::vector<std::byte> values_of(const Schema& schema, TensorIndex tensor) {
  const Tensor& found = schema.tensor(tensor);
  std::vector<std::byte> bytes(static_cast<std::size_t>(found.bytes));
  for (std::uint64_t i = 0; i < found.element_count; ++i) {
    put_value(bytes, i, found.element_bytes, value_of(tensor.value, i));
  }
  return bytes;
}

// What a trainer with this projection has in memory: the boxes walked element by element, which
// has nothing in common with the code under test.
inline std::vector<std::vector<std::byte>> shard_of(const Schema& schema,
                                                    const Projection& projection) {
  std::vector<std::vector<std::byte>> sources(projection.sources.size());
  for (const Box& box : projection.boxes) {
    const std::uint32_t width = schema.tensor(box.target).element_bytes;
    auto& bytes = sources[box.source];
    bytes.resize(static_cast<std::size_t>(projection.sources[box.source].element_count) * width);
    std::vector<std::uint64_t> at(box.rank);
    for (std::uint64_t n = 0; n < box.element_count(); ++n) {
      std::uint64_t from = box.source_offset;
      std::uint64_t to = box.target_offset;
      for (std::uint32_t a = 0; a < box.rank; ++a) {
        from += at[a] * box.axes[a].source_stride;
        to += at[a] * box.axes[a].target_stride;
      }
      put_value(bytes, from, width, value_of(box.target.value, to));
      for (std::uint32_t a = box.rank; a-- > 0;) {
        if (++at[a] < box.axes[a].extent) break;
        at[a] = 0;
      }
    }
  }
  return sources;
}

inline std::vector<std::span<const std::byte>> views_of(
    const std::vector<std::vector<std::byte>>& sources) {
  std::vector<std::span<const std::byte>> views;
  for (const auto& source : sources) views.emplace_back(source);
  return views;
}

inline Result<Lattice> lattice_of(const Schema& schema,
                                  const std::vector<Projection>& projections) {
  std::vector<Tile> tiles;
  for (std::uint32_t p = 0; p < projections.size(); ++p) {
    WEFT_TRY(const auto own, tiles_of(schema, projections[p], ProducerIndex{p}));
    tiles.insert(tiles.end(), own.begin(), own.end());
  }
  return Lattice::from_tiles(schema, std::move(tiles),
                             static_cast<std::uint32_t>(projections.size()));
}

// Gathers every chunk of every producer; the first wrong element, or an empty string.
inline std::string first_wrong(const Schema& schema, const std::vector<Projection>& projections) {
  const auto lattice = lattice_of(schema, projections);
  if (!lattice) return lattice.error().message();
  std::vector<std::byte> bytes;
  for (std::uint32_t p = 0; p < projections.size(); ++p) {
    const auto gather = Gather::open(schema, *lattice, ProducerIndex{p}, projections[p]);
    if (!gather) return gather.error().message();
    const auto sources = shard_of(schema, projections[p]);
    const auto views = views_of(sources);
    const ChunkRange range = lattice->chunks_of(ProducerIndex{p});
    for (std::uint32_t c = 0; c < range.count; ++c) {
      const ChunkIndex chunk{range.first.value + c};
      const ChunkPlace place = lattice->place(chunk);
      bytes.assign(place.bytes(), std::byte{0xEE});
      if (const Status read = gather->read(chunk, views, bytes); !read) {
        return read.error().message();
      }
      for (std::uint32_t i = 0; i < place.element_count; ++i) {
        const std::uint64_t expected = value_of(place.tensor.value, place.element_at(i));
        if (std::memcmp(&bytes[std::size_t{i} * place.element_bytes()], &expected,
                        place.element_bytes()) != 0) {
          return "tensor " + schema.tensor(place.tensor).name + " element " +
                 std::to_string(place.element_at(i));
        }
      }
      const auto direct = gather->in_place(chunk, views);
      if (!direct.empty() && std::memcmp(direct.data(), bytes.data(), bytes.size()) != 0) {
        return "in place: chunk " + std::to_string(chunk.value);
      }
    }
  }
  return {};
}

}  // namespace weft::codec::test
