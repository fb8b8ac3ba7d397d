// SPDX-License-Identifier: Apache-2.0
// Boxes from an exporter that nobody wants to describe: an index tensor is pushed through it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "codec/project/box.hpp"
#include "codec/safetensors/schema.hpp"
#include "weft/base/result.hpp"

namespace weft::codec {

// The exporter is run once on a shard whose elements are numbers: the first source counts from 0
// on, the next one goes on where it ends, and so forth. `exported` is what came out at elements
// [target_offset, + exported.size()) of `target`; its boxes are added to the projection.
// Errors: kConfig (a number that no source has, or more than the target takes; names tensor and
// element), kUnsupported (so irregular that boxes are no help; names the tensor).
Status derive_boxes(const Schema& schema, TensorIndex target, std::uint64_t target_offset,
                    std::span<const std::uint64_t> exported, Projection& projection);

// Random bits pushed through the real exporter must be what the projection gives: `exported` is all
// of the target, `gathered` what Gather gave for `place`. Errors: kConfig naming tensor and first
// wrong element.
Status compare_export(const Schema& schema, const ChunkPlace& place,
                      std::span<const std::byte> gathered, std::span<const std::byte> exported);

}  // namespace weft::codec
