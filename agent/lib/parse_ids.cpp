// SPDX-License-Identifier: Apache-2.0
#include "agent/lib/parse_ids.hpp"

#include <charconv>
#include <concepts>
#include <string>

namespace weft::agent {
namespace {

// The whole of `text`, without sign or prefix.
template <std::unsigned_integral T>
bool parse_whole(std::string_view text, int base, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  return !text.empty() && error == std::errc{} && end == text.data() + text.size();
}

}  // namespace

Result<Digest> parse_digest(std::string_view text) {
  Digest digest;
  if (text.size() == 32 && parse_whole(text.substr(0, 16), 16, digest.high) &&
      parse_whole(text.substr(16), 16, digest.low)) {
    return digest;
  }
  return failure(ErrorCode::kConfig, Stage::kConfig,
                 "'" + std::string(text) + "' is no digest: 32 hexadecimal digits");
}

Result<RefitId> parse_refit_id(std::string_view text) {
  RefitId refit;
  const std::size_t first = text.find('-');
  const std::size_t second = text.rfind('-');
  if (text.starts_with('e') && first != std::string_view::npos && second == first + 17 &&
      text.substr(second).starts_with("-a") &&
      parse_whole(text.substr(1, first - 1), 10, refit.epoch.number) &&
      parse_whole(text.substr(first + 1, 16), 16, refit.epoch.coordinator.value) &&
      parse_whole(text.substr(second + 2), 10, refit.attempt)) {
    return refit;
  }
  return failure(ErrorCode::kConfig, Stage::kConfig,
                 "'" + std::string(text) +
                     "' is no refit: e<epoch>-<coordinator>-a<attempt>, as `weft status` shows it");
}

}  // namespace weft::agent
