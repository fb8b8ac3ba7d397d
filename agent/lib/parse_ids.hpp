// SPDX-License-Identifier: Apache-2.0
// Identities as people type them: what to_hex() and to_string() print.
#pragma once

#include <string_view>

#include "weft/base/ids.hpp"
#include "weft/base/result.hpp"

namespace weft::agent {

// 32 hexadecimal digits. Errors: kConfig.
Result<Digest> parse_digest(std::string_view text);

// `e<number>-<16 hexadecimal digits>-a<attempt>`. Errors: kConfig.
Result<RefitId> parse_refit_id(std::string_view text);

}  // namespace weft::agent
