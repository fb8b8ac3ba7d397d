// SPDX-License-Identifier: Apache-2.0
#include "agent/lib/fault_point.hpp"

#include <signal.h>

#include <charconv>
#include <cstdlib>
#include <string>

namespace weft::agent {
namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

}  // namespace

void kill_point(std::string_view name) {
  static const std::string wanted = environment("WEFT_TEST_KILL_AT");
  if (!wanted.empty() && wanted == name) raise(SIGKILL);
}

std::optional<std::uint32_t> corrupt_frame_point() {
  static const std::string wanted = environment("WEFT_TEST_CORRUPT_FRAME");
  std::uint32_t sequence = 0;
  const auto parsed = std::from_chars(wanted.data(), wanted.data() + wanted.size(), sequence);
  if (wanted.empty() || parsed.ec != std::errc{}) return std::nullopt;
  return sequence;
}

}  // namespace weft::agent
