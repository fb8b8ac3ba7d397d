// SPDX-License-Identifier: Apache-2.0
#include "agent/lib/box_source.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <tuple>
#include <utility>

#include "codec/project/cast.hpp"
#include "codec/project/cover.hpp"
#include "codec/project/tensor_box.hpp"

namespace weft::agent {

namespace {

constexpr const char* kViewName = "the view";

Error misuse(const std::string& what) {
  return failure(ErrorCode::kConfig, Stage::kPublish, "put_shard: " + what);
}

// "in tensor w elements [3, 4)" out of what a cover check says.
std::string place_in(const Error& error) {
  const std::size_t begin = error.detail.find("in tensor ");
  return begin == std::string::npos ? error.detail : error.detail.substr(begin);
}

void sort_tiles(std::vector<codec::Tile>& tiles) {
  for (codec::Tile& tile : tiles) tile = codec::shortest_form(tile);
  std::sort(tiles.begin(), tiles.end(), [](const codec::Tile& a, const codec::Tile& b) {
    return std::tuple(a.tensor, a.first_element) < std::tuple(b.tensor, b.first_element);
  });
}

Result<std::vector<codec::Box>> boxes_of(const codec::Schema& schema,
                                         std::span<const ShardBox> boxes) {
  std::vector<codec::Box> result;
  for (const ShardBox& each : boxes) {
    codec::Box box;
    const auto target = schema.find(each.tensor);
    if (!target) return misuse(each.tensor + " is no tensor of the checkpoint");
    box.target = *target;
    if (each.axes.size() > box.axes.size()) {
      return misuse("a box of tensor " + each.tensor + " has more than " +
                    std::to_string(box.axes.size()) + " axes");
    }
    box.source_offset = each.source_offset;
    box.target_offset = each.target_offset;
    box.rank = static_cast<std::uint32_t>(each.axes.size());
    for (std::size_t a = 0; a < each.axes.size(); ++a) {
      box.axes[a] = {each.axes[a].extent, each.axes[a].source_stride, each.axes[a].target_stride};
    }
    result.push_back(box);
  }
  return result;
}

}  // namespace

BoxSource::BoxSource(const codec::Schema& schema, const codec::Lattice& lattice,
                     ProducerIndex producer, const ShardBaseline& baseline,
                     codec::ChunkSource& note)
    : schema_(schema),
      lattice_(lattice),
      producer_(producer),
      own_(lattice.chunks_of(producer)),
      baseline_(baseline),
      note_(note),
      given_chunks_(own_.count) {}

// FP32 is cast whole, so that chunks can be put together from several views.
Status BoxSource::set_view(const ShardView& view) {
  const codec::DType type = schema_.tensor(projection_.boxes.front().target).dtype;
  const std::uint32_t width = codec::element_bytes(type);
  const bool as_it_is = view.type == ShardType::kSame || type == codec::DType::kF32;
  for (const codec::Box& box : projection_.boxes) {
    const codec::Tensor& tensor = schema_.tensor(box.target);
    const std::string own(codec::name(tensor.dtype));
    if (as_it_is && !view.dtype.empty() && view.dtype != own) {
      return misuse("the view is " + std::string(view.dtype) + ", tensor " + tensor.name + " has " +
                    own);
    }
    const bool fits = as_it_is ? codec::element_bytes(tensor.dtype) == width : tensor.dtype == type;
    if (!fits) return misuse("tensor " + tensor.name + " has " + own + ", another box's has not");
  }
  if (as_it_is) {
    if (view.bytes.size() % width != 0) {
      return misuse("a view of " + std::to_string(view.bytes.size()) + " bytes for elements of " +
                    std::to_string(width));
    }
    view_ = view.bytes;
  } else {
    if (!codec::can_cast(type) || view.bytes.size() % 4 != 0) {
      return misuse("FP32 cannot be cast to " + std::string(codec::name(type)) +
                    ", or the view is not whole FP32 values");
    }
    cast_.resize(view.bytes.size() / 2);
    codec::cast_from_f32(type, view.bytes, cast_);
    view_ = cast_;
  }
  projection_.sources = {{kViewName, view_.size() / width}};
  return ok();
}

Status BoxSource::check_disjoint(std::vector<codec::Tile> tiles, const std::string& what) const {
  sort_tiles(tiles);
  const Status disjoint = codec::check_cover(schema_, tiles, codec::Cover::kAtMostOnce);
  if (disjoint || disjoint.error().code != ErrorCode::kConfig) return disjoint;
  return misuse(what + place_in(disjoint.error()));
}

// Against what was given before, and against the other producers' tiles of the same tensors.
Status BoxSource::check_once(const std::vector<codec::Tile>& fresh) const {
  const auto is_of_fresh = [&](const codec::Tile& tile) {
    return std::any_of(fresh.begin(), fresh.end(),
                       [&](const codec::Tile& each) { return each.tensor == tile.tensor; });
  };
  std::vector<codec::Tile> mine = fresh;
  std::copy_if(given_.begin(), given_.end(), std::back_inserter(mine), is_of_fresh);
  WEFT_TRY_STATUS(check_disjoint(std::move(mine), "an overlap with what was given before "));
  std::vector<codec::Tile> all = fresh;
  std::copy_if(
      lattice_.tiles().begin(), lattice_.tiles().end(), std::back_inserter(all),
      [&](const codec::Tile& tile) { return tile.producer != producer_ && is_of_fresh(tile); });
  return check_disjoint(std::move(all), "another producer's elements ");
}

Status BoxSource::open(std::span<const ShardBox> boxes, const ShardView& view) {
  if (boxes.empty()) return misuse("no boxes");
  projection_ = {};
  WEFT_TRY(projection_.boxes, boxes_of(schema_, boxes));
  WEFT_TRY_STATUS(set_view(view));
  WEFT_TRY(fresh_, codec::tiles_of(schema_, projection_, producer_));
  WEFT_TRY_STATUS(check_once(fresh_));
  WEFT_TRY(gather_, codec::Gather::open_part(schema_, lattice_, producer_, projection_));
  shares_ = gather_.shares();
  return ok();
}

Result<std::vector<ChunkIndex>> BoxSource::take() {
  std::vector<ChunkIndex> whole;
  const std::span<const std::byte> sources[] = {view_};
  for (const auto& [chunk, element_count] : shares_) {
    const codec::ChunkPlace place = lattice_.place(chunk);
    given_chunks_[chunk.value - own_.first.value] = true;
    if (element_count == place.element_count) {
      whole.push_back(chunk);
      continue;
    }
    Parts& parts = parts_[chunk];
    if (parts.element_count == 0) {
      const auto old_bytes = baseline_.old_bytes(chunk);
      parts.bytes.assign(old_bytes.begin(), old_bytes.end());
    }
    WEFT_TRY_STATUS(gather_.read(chunk, sources, parts.bytes));
    parts.element_count += element_count;
    if (parts.element_count == place.element_count) whole.push_back(chunk);
  }
  given_.insert(given_.end(), fresh_.begin(), fresh_.end());
  return whole;
}

void BoxSource::release(std::span<const ChunkIndex> encoded) {
  for (const ChunkIndex chunk : encoded) parts_.erase(chunk);
  view_ = {};
  cast_ = {};
}

std::vector<ChunkIndex> BoxSource::unfinished() const {
  std::vector<ChunkIndex> chunks;
  for (const auto& [chunk, parts] : parts_) chunks.push_back(chunk);
  return chunks;
}

Status BoxSource::check_complete(const codec::Projection& put) const {
  std::vector<codec::Tile> tiles = given_;
  WEFT_TRY(const auto by_name, codec::tiles_of(schema_, put, producer_));
  tiles.insert(tiles.end(), by_name.begin(), by_name.end());
  std::copy_if(lattice_.tiles().begin(), lattice_.tiles().end(), std::back_inserter(tiles),
               [&](const codec::Tile& tile) { return tile.producer != producer_; });
  sort_tiles(tiles);
  const Status complete = codec::check_cover(schema_, tiles);
  if (complete || complete.error().code != ErrorCode::kConfig) return complete;
  return misuse("a gap " + place_in(complete.error()));
}

std::optional<codec::ChunkValues> BoxSource::in_place(ChunkIndex chunk) {
  const auto old_bytes = baseline_.old_bytes(chunk);
  if (const auto parts = parts_.find(chunk); parts != parts_.end()) {
    return codec::ChunkValues{old_bytes, parts->second.bytes};
  }
  const std::span<const std::byte> sources[] = {view_};
  const auto new_bytes = gather_.in_place(chunk, sources);
  if (new_bytes.empty()) return std::nullopt;
  return codec::ChunkValues{old_bytes, new_bytes};
}

Status BoxSource::read(ChunkIndex chunk, std::span<std::byte> old_bytes,
                       std::span<std::byte> new_bytes) {
  const std::span<const std::byte> sources[] = {view_};
  WEFT_TRY_STATUS(gather_.read(chunk, sources, new_bytes));
  if (!old_bytes.empty()) {
    std::memcpy(old_bytes.data(), baseline_.old_bytes(chunk).data(), old_bytes.size());
  }
  return ok();
}

}  // namespace weft::agent
