// SPDX-License-Identifier: Apache-2.0
// Any text as a file of boxes: what is accepted stays inside its source and its tensor, is read
// back from what it is written as, and gives tiles that a lattice takes or refuses.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "codec/project/box_file.hpp"
#include "codec/project/lattice.hpp"
#include "fuzz/fuzz_schema.hpp"

namespace {

using namespace weft;

bool is_expected(ErrorCode code) {
  return code == ErrorCode::kFormat || code == ErrorCode::kConfig ||
         code == ErrorCode::kUnsupported || code == ErrorCode::kResourceLimit;
}

void check_inside(const codec::Schema& schema, const codec::Projection& projection) {
  for (const codec::Box& box : projection.boxes) {
    std::uint64_t last = box.target_offset;
    for (const codec::BoxAxis& axis : box.used_axes()) {
      last += (axis.extent - 1) * axis.target_stride;
    }
    if (box.source_end() > projection.sources[box.source].element_count ||
        last >= schema.tensor(box.target).element_count) {
      std::abort();
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const codec::Schema& schema = fuzz::fuzz_schema();
  const std::string_view text(reinterpret_cast<const char*>(bytes), size);
  const auto projection = codec::parse_boxes(text, schema);
  if (!projection) {
    if (!is_expected(projection.error().code)) std::abort();
    return 0;
  }
  check_inside(schema, *projection);
  const auto again = codec::parse_boxes(codec::format_boxes(*projection, schema), schema);
  if (!again || again->sources != projection->sources || again->boxes != projection->boxes) {
    std::abort();
  }
  auto tiles = codec::tiles_of(schema, *projection, {0});
  if (!tiles) {
    if (!is_expected(tiles.error().code)) std::abort();
    return 0;
  }
  const auto lattice = codec::Lattice::from_tiles(schema, *std::move(tiles), 1);
  if (!lattice && !is_expected(lattice.error().code)) std::abort();
  return 0;
}
