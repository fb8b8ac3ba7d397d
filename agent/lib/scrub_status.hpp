// SPDX-License-Identifier: Apache-2.0
// How far a scrubber is, as members tell it and as every page and status shows it.
#pragma once

#include <optional>

#include "agent/lib/json_writer.hpp"
#include "apply/patch/scrubber.hpp"
#include "weft/base/clock.hpp"
#include "weft/wire/messages.hpp"

namespace weft::agent {

// As of `now`.
wire::ScrubReport scrub_report(const apply::ScrubProgress& progress, TimePoint now);

// The member `scrub` of docs/json.md; null where nothing was told.
void write_scrub(JsonWriter& json, const std::optional<wire::ScrubReport>& scrub);

}  // namespace weft::agent
