// SPDX-License-Identifier: Apache-2.0
#include "agent/lib/shard_source.hpp"

#include <cstring>
#include <string>
#include <utility>

#include "codec/project/cast.hpp"
#include "weft/base/limits.hpp"

namespace weft::agent {

// One worker's memory.
// Threads: one at a time.
struct ShardSource::Scratch {
  codec::DecodeWorkspace workspace;
  std::vector<std::byte> wide;
};

ShardSource::ShardSource(const codec::Schema& schema, const codec::Lattice& lattice,
                         const codec::Gather& gather, ShardBaseline& baseline,
                         const PutTensors& put, codec::NodeOfMemory node_of)
    : schema_(schema),
      lattice_(lattice),
      gather_(gather),
      baseline_(baseline),
      put_(put),
      node_of_(std::move(node_of)) {}

ShardSource::~ShardSource() = default;

std::unique_ptr<ShardSource::Scratch> ShardSource::take_scratch() {
  auto scratch = scratches_.with([](auto& idle) -> std::unique_ptr<Scratch> {
    if (idle.empty()) return nullptr;
    auto last = std::move(idle.back());
    idle.pop_back();
    return last;
  });
  return scratch != nullptr ? std::move(scratch) : std::make_unique<Scratch>();
}

std::optional<codec::ChunkValues> ShardSource::in_place(ChunkIndex chunk) {
  const auto row = gather_.row_of(chunk);
  if (!row || put_.tensors[row->source].type != ShardType::kSame) return std::nullopt;
  const auto new_bytes = gather_.in_place(chunk, put_.views);
  if (new_bytes.empty()) return std::nullopt;
  return codec::ChunkValues{baseline_.old_bytes(chunk), new_bytes};
}

std::optional<std::uint32_t> ShardSource::numa_node(ChunkIndex chunk) const {
  return node_of_(baseline_.old_bytes(chunk).data());
}

Status ShardSource::read(ChunkIndex chunk, std::span<std::byte> old_bytes,
                         std::span<std::byte> new_bytes) {
  auto scratch = take_scratch();
  Status filled = fill(chunk, lattice_.place(chunk), *scratch, new_bytes);
  scratches_.with([&](auto& idle) { idle.push_back(std::move(scratch)); });
  if (filled && !old_bytes.empty()) {
    std::memcpy(old_bytes.data(), baseline_.old_bytes(chunk).data(), old_bytes.size());
  }
  return filled;
}

void ShardSource::encoded(ChunkIndex chunk, const codec::ChunkValues& values,
                          std::uint32_t changed_count) {
  if (changed_count == 0) return;
  auto scratch = take_scratch();
  baseline_.note(chunk, values.new_bytes, scratch->workspace);
  scratches_.with([&](auto& idle) { idle.push_back(std::move(scratch)); });
}

Status ShardSource::fill(ChunkIndex chunk, const codec::ChunkPlace& place, Scratch& scratch,
                         std::span<std::byte> new_bytes) const {
  const auto wrong = [&](const char* what) {
    return failure(ErrorCode::kConfig, Stage::kScan,
                   "tensor " + schema_.tensor(place.tensor).name + ": " + what);
  };
  const auto sources = gather_.sources_of(chunk);
  const PutTensor& first = put_.tensors[sources.front()];
  for (const std::uint32_t source : sources) {
    const PutTensor& each = put_.tensors[source];
    if (each.type != first.type || (each.converter != nullptr && sources.size() > 1)) {
      return wrong("its parts come in different types, or one of them from a converter");
    }
  }
  if (first.converter == nullptr) {
    return fill_in_type(chunk, place, first.type, scratch, new_bytes);
  }
  const auto row = gather_.row_of(chunk);
  if (!row) return wrong("a converter can only give a box that is one row");
  return (*first.converter)(row->first_element, new_bytes);
}

Status ShardSource::fill_in_type(ChunkIndex chunk, const codec::ChunkPlace& place, ShardType type,
                                 Scratch& scratch, std::span<std::byte> new_bytes) const {
  if (type == ShardType::kSame) return gather_.read(chunk, put_.views, new_bytes);
  scratch.wide.resize(std::size_t{limits::kChunkElementsMax} * 4);
  const auto wide = std::span(scratch.wide).first(std::size_t{place.element_count} * 4);
  WEFT_TRY_STATUS(gather_.read_as(4, chunk, put_.views, wide));
  codec::cast_from_f32(schema_.tensor(place.tensor).dtype, wide, new_bytes);
  return ok();
}

}  // namespace weft::agent
