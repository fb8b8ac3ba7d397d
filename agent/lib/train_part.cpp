// SPDX-License-Identifier: Apache-2.0
#include "agent/lib/train_part.hpp"

#include <algorithm>
#include <utility>

#include "codec/project/box_file.hpp"

namespace weft::agent {

namespace {

// The whole checkpoint from shard tensors of the same names.
codec::Projection whole_checkpoint(const codec::Schema& schema) {
  codec::Projection projection;
  for (std::uint32_t t = 0; t < schema.tensors().size(); ++t) {
    const codec::Tensor& tensor = schema.tensors()[t];
    projection.sources.push_back({tensor.name, tensor.element_count});
    if (tensor.element_count == 0) continue;
    codec::Box box;
    box.source = t;
    box.target = TensorIndex{t};
    box.rank = 1;
    box.axes[0] = {tensor.element_count, 1, 1};
    projection.boxes.push_back(box);
  }
  return projection;
}

}  // namespace

Status read_boxes(const PublisherOptions& options, TrainPart& part) {
  std::vector<codec::Tile> tiles;
  part.producer = ProducerIndex{options.producer};
  part.producer_count =
      static_cast<std::uint32_t>(std::max<std::size_t>(1, options.box_files.size()));
  if (options.producer >= part.producer_count) {
    return failure(ErrorCode::kConfig, Stage::kPublish,
                   "producer " + std::to_string(options.producer) + " of " +
                       std::to_string(part.producer_count));
  }
  for (std::uint32_t p = 0; p < part.producer_count; ++p) {
    Result<codec::Projection> read =
        options.box_files.empty() ? Result<codec::Projection>(whole_checkpoint(part.schema()))
                                  : codec::parse_boxes(options.box_files[p], part.schema());
    if (!read) {
      Error error = std::move(read).error();
      error.detail += " (boxes of producer " + std::to_string(p) + ")";
      return error;
    }
    WEFT_TRY(const auto own, codec::tiles_of(part.schema(), *read, ProducerIndex{p}));
    tiles.insert(tiles.end(), own.begin(), own.end());
    if (p == options.producer) part.projection = *std::move(read);
  }
  WEFT_TRY(part.lattice,
           codec::Lattice::from_tiles(part.schema(), std::move(tiles), part.producer_count));
  WEFT_TRY(part.gather,
           codec::Gather::open(part.schema(), part.lattice, part.producer, part.projection));
  return ok();
}

void index_sources(TrainPart& part) {
  part.uses.resize(part.projection.sources.size());
  part.marks.emplace(part.uses.size());
  for (std::uint32_t s = 0; s < part.uses.size(); ++s) {
    part.uses[s].elements = part.projection.sources[s].element_count;
    part.places.emplace(part.projection.sources[s].name, s);
  }
  const codec::ChunkRange own = part.lattice.chunks_of(part.producer);
  for (std::uint32_t i = 0; i < own.count; ++i) {
    const ChunkIndex chunk{own.first.value + i};
    const codec::ChunkPlace place = part.lattice.place(chunk);
    part.own_elements += place.element_count;
    const auto sources = part.gather.sources_of(chunk);
    part.source_counts.push_back(static_cast<std::uint32_t>(sources.size()));
    const codec::DType type = part.schema().tensor(place.tensor).dtype;
    for (const std::uint32_t source : sources) {
      SourceUse& use = part.uses[source];
      use.chunks.push_back(chunk);
      use.one_type = use.one_type && (!use.type || *use.type == type);
      use.type = type;
    }
  }
}

}  // namespace weft::agent
