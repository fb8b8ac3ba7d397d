// SPDX-License-Identifier: Apache-2.0
// Boxes as a text file (docs/formats/boxes.md).
#pragma once

#include <string>
#include <string_view>

#include "codec/project/box.hpp"
#include "codec/safetensors/schema.hpp"
#include "weft/base/result.hpp"

namespace weft::codec {

// Every box is checked. Errors: kFormat (names the line), kConfig (names the line and the tensor),
// kResourceLimit (more lines than a file may have).
Result<Projection> parse_boxes(std::string_view text, const Schema& schema);

// What parse_boxes reads back to an equal projection. The boxes must be sound.
std::string format_boxes(const Projection& projection, const Schema& schema);

}  // namespace weft::codec
