// SPDX-License-Identifier: Apache-2.0
// Pieces that the record layouts of the three logs share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "weft/base/error.hpp"
#include "weft/base/limits.hpp"
#include "weft/wire/byte_io.hpp"
#include "weft/wire/messages.hpp"

namespace weft::apply {

inline void write_epoch(wire::ByteWriter& out, const Epoch& epoch) {
  out.write(epoch.number);
  out.write(epoch.coordinator.value);
}
inline Epoch read_epoch(wire::ByteReader& in) {
  Epoch epoch;
  epoch.number = in.read<std::uint64_t>();
  epoch.coordinator.value = in.read<std::uint64_t>();
  return epoch;
}

inline void write_cause(wire::ByteWriter& out, const wire::Cause& cause) {
  out.write(static_cast<std::uint8_t>(cause.code));
  out.write_string(std::string_view(cause.detail).substr(0, limits::kErrorDetailBytesMax));
}
inline std::optional<wire::Cause> read_cause(wire::ByteReader& in) {
  wire::Cause cause;
  const auto code = in.read<std::uint8_t>();
  cause.detail = in.read_string(limits::kErrorDetailBytesMax);
  if (code < 1 || code > kErrorCodeCount) return std::nullopt;
  cause.code = static_cast<ErrorCode>(code);
  return cause;
}

inline void write_prepared(wire::ByteWriter& out, const wire::PreparedRefit& prepared) {
  out.write_refit_id(prepared.refit);
  out.write_content(prepared.base);
  out.write_content(prepared.target);
}
inline wire::PreparedRefit read_prepared(wire::ByteReader& in) {
  wire::PreparedRefit prepared;
  prepared.refit = in.read_refit_id();
  prepared.base = in.read_content();
  prepared.target = in.read_content();
  return prepared;
}

// A flag byte, then the refit_id if it is 1.
inline void write_refit_if(wire::ByteWriter& out, const std::optional<RefitId>& refit) {
  out.write(static_cast<std::uint8_t>(refit ? 1 : 0));
  if (refit) out.write_refit_id(*refit);
}
// `valid` becomes false when the flag is neither 0 nor 1.
inline std::optional<RefitId> read_refit_if(wire::ByteReader& in, bool& valid) {
  const auto flag = in.read<std::uint8_t>();
  if (flag > 1) valid = false;
  if (flag != 1) return std::nullopt;
  return in.read_refit_id();
}

}  // namespace weft::apply
