// SPDX-License-Identifier: Apache-2.0
#include "transport/tree/shape.hpp"

#include <algorithm>
#include <bit>
#include <charconv>
#include <optional>

#include "weft/base/limits.hpp"

namespace weft::transport {
namespace {

Error unknown_shape(std::string_view shape) {
  return failure(ErrorCode::kConfig, Stage::kConfig,
                 "relay shape '" + std::string(shape.substr(0, 64)) +
                     "' is none of star, chain, kary(k) with k from 1 to " +
                     std::to_string(limits::kChildrenMax) +
                     ", binomial, pipeline, striped(k) with k from 1 to " +
                     std::to_string(kStripesMax) + ", regional(inner, outer), auto");
}

// What stands between "name(" and ")".
std::optional<std::string_view> argument(std::string_view text, std::string_view name) {
  const bool fits = text.size() > name.size() + 1 && text.starts_with(name) &&
                    text[name.size()] == '(' && text.ends_with(")");
  if (!fits) return std::nullopt;
  return text.substr(name.size() + 1, text.size() - name.size() - 2);
}

std::optional<std::uint32_t> number(std::string_view digits, std::uint32_t highest) {
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  const bool whole = error == std::errc{} && end == digits.data() + digits.size();
  return whole && value >= 1 && value <= highest ? std::optional(value) : std::nullopt;
}

std::string_view trimmed(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

// A comma outside of brackets divides inner and outer.
Result<Shape> parse_regional(std::string_view text, std::string_view whole) {
  int depth = 0;
  std::size_t comma = std::string_view::npos;
  for (std::size_t i = 0; i < text.size(); ++i) {
    depth += text[i] == '(' ? 1 : text[i] == ')' ? -1 : 0;
    if (text[i] == ',' && depth == 0 && comma == std::string_view::npos) comma = i;
  }
  if (comma == std::string_view::npos) return unknown_shape(whole);
  Shape shape;
  shape.kind = ShapeKind::kRegional;
  shape.inner = trimmed(text.substr(0, comma));
  shape.outer = trimmed(text.substr(comma + 1));
  for (const std::string& part : {shape.inner, shape.outer}) {
    WEFT_TRY(const Shape parsed, parse_shape(part));
    // One frame takes one way through a region and between them.
    if (parsed.kind != ShapeKind::kKary && parsed.kind != ShapeKind::kBinomial) {
      return unknown_shape(whole);
    }
  }
  return shape;
}

// The group that is interior in this stripe comes first, the others hang below it as leaves.
std::uint32_t striped_parent(std::uint32_t stripes, std::uint32_t stripe, std::uint32_t rank,
                             std::uint32_t agent_count) {
  const auto group_size = [&](std::uint32_t group) {
    return (agent_count - group + stripes - 1) / stripes;
  };
  const std::uint32_t agent = rank - 1;
  const std::uint32_t interior = group_size(stripe);
  const auto place_of = [&](std::uint32_t of) {
    const std::uint32_t group = of % stripes;
    if (group == stripe) return of / stripes;
    std::uint32_t before = interior;
    for (std::uint32_t other = 0; other < group; ++other) {
      if (other != stripe) before += group_size(other);
    }
    return before + of / stripes;
  };
  const std::uint32_t place = place_of(agent);
  if (place == 0) return 0;
  const std::uint32_t degree = std::max(stripes, (agent_count - 1 + interior - 1) / interior);
  // Interior places are the first ones, so the parent's place is its number within the group.
  return (place - 1) / degree * stripes + stripe + 1;
}

// The corners of the largest cube that root and agents fill.
std::uint32_t cube_dimensions(std::uint32_t agent_count) {
  return std::max(1U, static_cast<std::uint32_t>(std::bit_width(agent_count + 1)) - 1);
}

// The binomial pipeline as a tree per dimension: the root gives a frame to one corner of a cube,
// which spreads it over the half that has this bit; the other half gets it last. Agents beyond the
// cube share a corner with one in it: one of the two stands there, the other hangs below it, and
// they change places from stripe to stripe.
std::uint32_t pipeline_parent(std::uint32_t stripe, std::uint32_t rank, std::uint32_t agent_count) {
  const std::uint32_t dimensions = cube_dimensions(agent_count);
  const std::uint32_t corners = 1U << dimensions;
  const auto stands_at = [&](std::uint32_t corner) {
    const std::uint32_t twin = corner + corners - 1;
    const bool alone = corner == 0 || twin > agent_count;
    return alone || (stripe + corner) % 2 == 0 ? corner : twin;
  };
  const std::uint32_t corner = rank < corners ? rank : rank - (corners - 1);
  if (stands_at(corner) != rank) return stands_at(corner);
  const std::uint32_t first = 1U << stripe;
  if ((corner & first) == 0) return stands_at(corner | first);
  // Without the bit that comes last in the order stripe + 1, stripe + 2, ..., round the cube.
  for (std::uint32_t step = dimensions - 1; step > 0; --step) {
    const std::uint32_t bit = 1U << ((stripe + step) % dimensions);
    if ((corner & bit) != 0) return stands_at(corner & ~bit);
  }
  return 0;
}

}  // namespace

Result<Shape> parse_shape(std::string_view text) {
  Shape shape;
  if (text == "chain") return shape;
  if (text == "star") {
    shape.star = true;
    return shape;
  }
  if (text == "binomial" || text == "pipeline" || text == "auto") {
    shape.kind = text == "binomial"   ? ShapeKind::kBinomial
                 : text == "pipeline" ? ShapeKind::kPipeline
                                      : ShapeKind::kAuto;
    return shape;
  }
  if (const auto inside = argument(text, "regional")) return parse_regional(*inside, text);
  const auto kary = argument(text, "kary");
  const auto striped = argument(text, "striped");
  const auto degree = kary      ? number(*kary, limits::kChildrenMax)
                      : striped ? number(*striped, kStripesMax)
                                : std::nullopt;
  if (!degree) return unknown_shape(text);
  if (striped) shape.kind = ShapeKind::kStriped;
  shape.degree = *degree;
  return shape;
}

std::uint32_t stripe_count(const Shape& shape, std::uint32_t agent_count) {
  if (shape.kind == ShapeKind::kStriped) {
    return std::clamp(shape.degree, 1U, std::max(1U, agent_count));
  }
  return shape.kind == ShapeKind::kPipeline ? cube_dimensions(agent_count) : 1;
}

std::uint32_t parent_rank(const Shape& shape, std::uint32_t stripe, std::uint32_t rank,
                          std::uint32_t agent_count) {
  switch (shape.kind) {
    case ShapeKind::kBinomial:
      return rank & ~std::bit_floor(rank);
    case ShapeKind::kPipeline:
      return pipeline_parent(stripe, rank, agent_count);
    case ShapeKind::kStriped:
      return striped_parent(stripe_count(shape, agent_count), stripe, rank, agent_count);
    default:
      return shape.star ? 0 : (rank - 1) / shape.degree;
  }
}

}  // namespace weft::transport
